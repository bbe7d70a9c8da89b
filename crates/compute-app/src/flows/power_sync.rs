//! Guests whose power state changes although no operation is open, and guests that no document names (Nova's power
//! synchronization and its cleanup of deleted instances).
//!
//! ```text
//!   ACTIVE, PAUSED, SUSPENDED   shut off       → SHUTOFF; an active one is started instead if its host has
//!                                                just booted and resume_guests_state_on_host_boot is set
//!   ACTIVE                      suspended      → stop
//!   SHUTOFF                     not shut off   → stop
//!   RESCUED, RESIZED            shut off       → the state stays; the guest is started under the same condition
//!   otherwise                                    only the power state is recorded
//! ```

use jiff::Timestamp;
use kilonova_compute_db::servers::{self, PowerState, Server, TaskState, VmState, deleted};
use kilonova_compute_db::{documents, unknown_guests};
use kilonova_flow::{self as flow, Outcome as End};
use kilonova_ids::HostName;
use kilonova_node_api::{Desired, Domain, Observation, Outcome, Power};
use kilonova_store::Tx;
use kilonova_wire::time;

use super::begin;
use super::journal::{self, Requester};
use super::operation::{Operation, PowerAction};
use crate::options::Orphans;
use crate::{Compute, Error};

/// A server without an open operation, and its guest.
struct Idle<'a> {
    compute: &'a Compute,
    host: &'a HostName,
    server: Server,
    domain: Domain,
    now: Timestamp,
}

impl Idle<'_> {
    fn put(&self, tx: &mut Tx<'_>, power: Power) -> Result<(), Error> {
        let domain = self.domain.clone();
        let mut domain = Domain { power, starts_paused: false, verb: None, ..domain };
        domain.require_guest();
        let desired = Desired::Present(Box::new(domain));
        Ok(documents::put(tx, self.compute, self.host, self.server.id, &desired)?)
    }

    fn set_power_state(&self, tx: &mut Tx<'_>, power_state: PowerState) -> Result<(), Error> {
        if self.server.power_state == power_state {
            return Ok(());
        }
        Ok(servers::set_power(tx, self.server.id, power_state, self.now)?)
    }

    /// Records an action of the guest or its host that no operation requested.
    fn record(
        &self,
        tx: &mut Tx<'_>,
        power: PowerAction,
        failure: Option<&str>,
    ) -> Result<(), Error> {
        let (server, now) = (&self.server, self.now);
        let (by, action) = (Requester::service(server), power.action());
        let end = if failure.is_some() { End::Failed } else { End::Done };
        let id = journal::record(tx, server.id, &by, &Operation::Recorded(action), end, now)?;
        let name = format!("compute_{action}_instance");
        Ok(flow::event(tx, id, &begin::event(&name, self.host, failure, now, now))?)
    }

    /// Begins a start or a stop with the owner's identity.
    fn begin(
        &self,
        tx: &mut Tx<'_>,
        action: PowerAction,
        task: TaskState,
        power: Power,
    ) -> Result<(), Error> {
        let context = begin::owner_context(&self.server);
        let state = Operation::Power(action);
        begin::begin(tx, &context, &self.server, Some(task), state, self.now)?;
        self.put(tx, power)
    }
}

/// Applies a report about a guest whose server has no open operation.
pub(super) fn observed(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    domain: Domain,
    observation: &Observation,
    now: Timestamp,
) -> Result<(), Error> {
    use VmState::{Active, Paused, Rescued, Resized, Stopped, Suspended};
    let Some(server) = servers::find(tx, observation.server)? else { return Ok(()) };
    if server.host.as_ref() != Some(host) || server.task_state.is_some() {
        return Ok(());
    }
    let resume = observation.at_start
        && compute.options.resume_guests_state_on_host_boot
        && domain.power == Power::On;
    let (state, id) = (server.vm_state, server.id);
    let idle = Idle { compute, host, server, domain, now };
    match (&observation.outcome, state) {
        (Outcome::Stopped, Active) if resume => {
            tracing::info!(server = %id, %host, "the guest ran before its host booted; starting it");
            // The server stays ACTIVE, as upstream: if the start fails, it goes to `ERROR`.
            idle.set_power_state(tx, PowerState::Shutdown)?;
            idle.begin(tx, PowerAction::Start, TaskState::PoweringOn, Power::On)
        }
        (Outcome::Stopped, Active | Paused | Suspended) => {
            tracing::info!(server = %id, %host, "the guest shut itself off");
            servers::set_state(tx, id, Stopped, None, PowerState::Shutdown, now)?;
            idle.put(tx, Power::Off)?;
            idle.record(tx, PowerAction::Stop, None)
        }
        (Outcome::Suspended, Active)
        | (Outcome::Running | Outcome::Paused | Outcome::Suspended, Stopped) => {
            tracing::info!(
                server = %id, %host, vm_state = state.as_str(), outcome = ?observation.outcome,
                "the guest's power state differs from the server's; stopping it"
            );
            idle.begin(tx, PowerAction::Stop, TaskState::PoweringOff, Power::Off)
        }
        (Outcome::Stopped, Rescued | Resized) => {
            idle.set_power_state(tx, PowerState::Shutdown)?;
            if resume {
                idle.put(tx, Power::On)
            } else if state == Resized && idle.domain.power != Power::Off {
                idle.put(tx, Power::Off)
            } else {
                Ok(())
            }
        }
        (Outcome::Failed { step, message }, Rescued | Resized)
            if idle.server.power_state == PowerState::Shutdown
                && idle.domain.power == Power::On =>
        {
            let why = format!("{host}: {step}: {message}");
            idle.record(tx, PowerAction::Start, Some(&why))
        }
        (Outcome::Running, Active | Paused | Suspended | Rescued | Resized) => {
            idle.set_power_state(tx, PowerState::Running)
        }
        (Outcome::Paused, Active | Paused | Suspended) => {
            idle.set_power_state(tx, PowerState::Paused)
        }
        (Outcome::Suspended, Paused | Suspended) => idle.set_power_state(tx, PowerState::Suspended),
        // Every other pair leaves the row unchanged.
        _ => Ok(()),
    }
}

/// Handles a host's report of a guest that no document names. Applies `running_deleted_instance_action` to guests of
/// deleted servers; leaves other guests unchanged and records them.
pub(super) fn orphan(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    observation: &Observation,
    now: Timestamp,
) -> Result<(), Error> {
    let (id, options) = (observation.server, &compute.options);
    let Some(deleted_at) = deleted::since(tx, id)? else {
        return Ok(unknown_guests::seen(tx, host, id, now)?);
    };
    if options.running_deleted_instance_action == Orphans::Noop {
        return Ok(());
    }
    if deleted_at > time::before(now, options.running_deleted_instance_timeout) {
        return Ok(());
    }
    if options.running_deleted_instance_action == Orphans::Log {
        tracing::warn!(
            server = %id, %host,
            "the host still has a guest of a deleted server; destroy it there \
             (running_deleted_instance_action = log)"
        );
        return Ok(());
    }
    tracing::warn!(server = %id, %host, "the host still has a guest of a deleted server; destroying it");
    Ok(documents::put(tx, compute, host, id, &Desired::Absent)?)
}

//! What guests do by themselves, and what a host has that nobody asked for (Nova's power sync and its
//! clean-up of deleted instances).
//!
//! ```text
//!   ACTIVE, PAUSED, SUSPENDED   shut off      → SHUTOFF; at a host's start those that ran may run again
//!   ACTIVE                      suspended     → stop
//!   SHUTOFF                     does something → stop
//!   otherwise                                   the power state only
//! ```
//!
//! Only while nothing is being done to the server: who does something says what comes of it.

use kilonova_flow::{self as flow, NewOperation, Outcome as End};
use kilonova_ids::ascending;
use kilonova_node_api::{Desired, Domain, Observation, Outcome, Power};
use kilonova_store::Tx;
use serde_json::json;

use super::power::{RUNNING, SHUTDOWN};
use super::start;
use super::stay::{PAUSED, SUSPENDED};
use crate::db::documents;
use crate::db::servers::{self, Server, VmState, deleted};
use crate::options::Orphans;
use crate::{Compute, Error};

/// What is done where.
struct Scene<'a> {
    compute: &'a Compute,
    host: &'a str,
    server: Server,
    domain: Domain,
    now: i64,
}

impl Scene<'_> {
    fn put(&self, tx: &mut Tx<'_>, power: Power) -> Result<(), Error> {
        let domain = Domain { power, verb: None, ..self.domain.clone() };
        let desired = Desired::Present(Box::new(domain));
        let generation = documents::put(tx, self.host, self.server.id, &desired)?;
        self.compute.wake_on_commit(tx, self.host, generation);
        Ok(())
    }

    fn set_power(&self, tx: &mut Tx<'_>, power_state: i64) -> Result<(), Error> {
        if self.server.power_state == power_state {
            return Ok(());
        }
        servers::set_power(tx, self.server.id, power_state, self.now)
    }

    /// Notes an action that nobody asked for, and that is over.
    fn note(&self, tx: &mut Tx<'_>, kind: &'static str, why: Option<&str>) -> Result<(), Error> {
        let (server, now) = (&self.server, self.now);
        let operation = NewOperation {
            id: ascending(),
            kind,
            subject: server.id,
            request_id: start::nobody(server).request_id_text(),
            project_id: server.project_id.clone(),
            user_id: server.user_id.clone(),
            step: "done",
            data: json!({}),
        };
        let end = if why.is_some() { End::Failed } else { End::Done };
        flow::record(tx, &operation, end, now)?;
        let name = format!("compute_{kind}_instance");
        Ok(flow::event(tx, operation.id, &start::event(&name, self.host, why, now, now))?)
    }

    /// Has something done in the owner's name.
    fn begin(
        &self,
        tx: &mut Tx<'_>,
        kind: &'static str,
        task: &str,
        power: Power,
    ) -> Result<(), Error> {
        let nobody = start::nobody(&self.server);
        start::begin(tx, &nobody, &self.server, kind, "settle", task, self.now)?;
        self.put(tx, power)
    }
}

/// A guest is as its host says, while nothing is being done to it.
pub(super) fn settle(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &str,
    domain: Domain,
    observation: &Observation,
    now: i64,
) -> Result<(), Error> {
    use VmState::{Active, Paused, Rescued, Resized, Stopped, Suspended};
    let Some(server) = servers::find(tx, observation.server)? else { return Ok(()) };
    if server.host.as_deref() != Some(host) || server.task_state.is_some() {
        return Ok(());
    }
    let again = observation.at_start
        && compute.options.resume_guests_state_on_host_boot
        && domain.power == Power::On;
    let (state, id) = (server.vm_state, server.id);
    let scene = Scene { compute, host, server, domain, now };
    match (&observation.outcome, state) {
        (Outcome::Stopped, Active) if again => {
            tracing::info!(server = %id, host, "ran when its host went down; it is started");
            servers::set_state(tx, id, Stopped, None, SHUTDOWN, now)?;
            scene.begin(tx, "start", "powering-on", Power::On)
        }
        (Outcome::Stopped, Active | Paused | Suspended) => {
            tracing::info!(server = %id, host, "has stopped by itself");
            servers::set_state(tx, id, Stopped, None, SHUTDOWN, now)?;
            scene.put(tx, Power::Off)?;
            scene.note(tx, "stop", None)
        }
        (Outcome::Suspended, Active)
        | (Outcome::Running | Outcome::Paused | Outcome::Suspended, Stopped) => {
            tracing::info!(server = %id, host, outcome = ?observation.outcome, "is not as it was left; it is stopped");
            scene.begin(tx, "stop", "powering-off", Power::Off)
        }
        (Outcome::Stopped, Rescued | Resized) => {
            scene.set_power(tx, SHUTDOWN)?;
            match (again, state) {
                (true, _) => scene.put(tx, Power::On),
                (false, Resized) if scene.domain.power != Power::Off => scene.put(tx, Power::Off),
                _ => Ok(()),
            }
        }
        (Outcome::Failed { step, message }, Rescued | Resized)
            if scene.server.power_state == SHUTDOWN && scene.domain.power == Power::On =>
        {
            let why = format!("{host}: {step}: {message}");
            scene.note(tx, "start", Some(&why))
        }
        (Outcome::Running, Active | Paused | Suspended | Rescued | Resized) => {
            scene.set_power(tx, RUNNING)
        }
        (Outcome::Paused, Active | Paused | Suspended) => scene.set_power(tx, PAUSED),
        (Outcome::Suspended, Paused | Suspended) => scene.set_power(tx, SUSPENDED),
        _ => Ok(()),
    }
}

/// A host has a guest that no document names. If it is one of ours that was deleted, it goes, as far
/// as the operator wants that; whose it is otherwise, nobody here can say.
pub(super) fn stranger(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &str,
    observation: &Observation,
    now: i64,
) -> Result<(), Error> {
    let (id, options) = (observation.server, &compute.options);
    if options.running_deleted_instance_action == Orphans::Noop {
        return Ok(());
    }
    let Some(deleted_at) = deleted::since(tx, id)? else { return Ok(()) };
    let patience = options.running_deleted_instance_timeout.saturating_mul(1_000_000);
    if deleted_at > now.saturating_sub(patience) {
        return Ok(());
    }
    tracing::warn!(server = %id, host, "a guest is left of a server that was deleted");
    if options.running_deleted_instance_action == Orphans::Log {
        return Ok(());
    }
    let generation = documents::put(tx, host, id, &Desired::Absent)?;
    compute.wake_on_commit(tx, host, generation);
    Ok(())
}

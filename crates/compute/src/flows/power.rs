//! Stop, start, reboot: the same document with another power state or a new verb.

use kilonova_flow::{self as flow, Operation, Outcome as End};
use kilonova_ids::ServerId;
use kilonova_node_api::{Desired, Observation, Outcome, Power, Verb};
use kilonova_store::Tx;
use kilonova_wire::{Context, Fault};

use super::start;
use crate::app::states;
use crate::db::documents;
use crate::db::servers::{self, Server, VmState};
use crate::{Compute, Error};

/// Nova's power states.
pub(super) const RUNNING: i64 = 1;
/// Nova's power states.
pub(super) const SHUTDOWN: i64 = 4;

/// What is asked of a server's power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// `os-start`.
    Start,
    /// `os-stop`.
    Stop,
    /// `reboot`, type `SOFT`.
    RebootSoft,
    /// `reboot`, type `HARD`.
    RebootHard,
}

impl Change {
    /// The key of the action body, which the refusal names.
    fn action(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::RebootSoft | Self::RebootHard => "reboot",
        }
    }

    fn task(self) -> &'static str {
        match self {
            Self::Start => "powering-on",
            Self::Stop => "powering-off",
            Self::RebootSoft => "rebooting",
            Self::RebootHard => "rebooting_hard",
        }
    }

    /// Why what was under way is called off.
    fn instead(self) -> &'static str {
        match self {
            Self::Start => "The server was started.",
            Self::Stop => "The server was stopped.",
            Self::RebootSoft => "The server was rebooted.",
            Self::RebootHard => "The server was rebooted hard.",
        }
    }

    /// The row of the table of states.
    fn rule(self) -> &'static str {
        match self {
            Self::RebootHard => "reboot_hard",
            other => other.action(),
        }
    }
}

/// Begins the change.
///
/// # Errors
/// 409 in Nova's words when the server is not in a state for it.
pub fn change_power(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    change: Change,
    now: i64,
) -> Result<(), Error> {
    states::check(context, server, change.rule())?;
    let Some(host) = &server.host else { return Err(states::not_ready(server)) };
    let Some(document) = documents::get(tx, host, server.id)? else {
        return Err(states::not_ready(server));
    };
    let Desired::Present(mut domain) = document.desired else {
        return Err(Fault::conflict(format!("Instance {} is being removed", server.id)).into());
    };
    if let Some(open) = flow::open_of(tx, server.id)? {
        flow::finish(tx, &open, End::Cancelled, Some(change.instead()), now)?;
    }
    let operation =
        start::begin(tx, context, server, change.action(), "settle", change.task(), now)?;
    domain.power = if change == Change::Stop { Power::Off } else { Power::On };
    domain.verb = match change {
        Change::RebootSoft => Some((operation, Verb::RebootSoft)),
        Change::RebootHard => Some((operation, Verb::RebootHard)),
        // What was called off is not to be done to a guest in another state.
        Change::Start | Change::Stop => None,
    };
    if change == Change::RebootHard {
        // One that was being rescued when it failed boots from its own disk again.
        domain.rescue = None;
    }
    let generation = documents::put(tx, host, server.id, &Desired::Present(domain))?;
    compute.wake_on_commit(tx, host, generation);
    Ok(())
}

/// Has a server rebooted hard whose soft reboot takes too long (`reboot_timeout`).
///
/// # Errors
/// The database's.
pub fn force_reboot(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: i64,
) -> Result<(), Error> {
    let Some(server) = servers::find(tx, server)? else { return Ok(()) };
    let nobody = start::nobody(&server);
    if server.task_state.as_deref() != Some("rebooting")
        || states::check(&nobody, &server, Change::RebootHard.rule()).is_err()
    {
        return Ok(());
    }
    tracing::info!(server = %server.id, "a soft reboot takes too long and becomes a hard one");
    change_power(tx, compute, &nobody, &server, Change::RebootHard, now)
}

pub(super) fn settled(
    tx: &mut Tx<'_>,
    host: &str,
    operation: &Operation,
    observation: &Observation,
    now: i64,
) -> Result<(), Error> {
    let id = observation.server;
    let name = format!("compute_{}_instance", operation.kind);
    let failure = match (&observation.outcome, operation.kind.as_str()) {
        (Outcome::Running, "start" | "reboot") => {
            servers::set_state(tx, id, VmState::Active, None, RUNNING, now)?;
            servers::set_launched(tx, id, now)?;
            None
        }
        (Outcome::Stopped, "stop") => {
            servers::set_state(tx, id, VmState::Stopped, None, SHUTDOWN, now)?;
            None
        }
        (Outcome::Failed { step, message }, _) => Some(format!("{host}: {step}: {message}")),
        _ => return Ok(()),
    };
    flow::event(
        tx,
        operation.id,
        &start::event(&name, host, failure.as_deref(), operation.created_at, now),
    )?;
    let Some(message) = failure else {
        return Ok(flow::finish(tx, operation, End::Done, None, now)?);
    };
    let told = match operation.kind.as_str() {
        "stop" => "The host could not shut the guest off.",
        "reboot" => "The host could not restart the guest.",
        _ => "The host could not start the guest.",
    };
    let fault = servers::Fault::new(told, &*message, now);
    servers::set_error(tx, id, &fault, now)?;
    Ok(flow::finish(tx, operation, End::Failed, Some(&message), now)?)
}

//! Start, stop, reboot: the same document with another power state or a new verb.

use jiff::Timestamp;
use kilonova_compute_db::documents::{self, Delivery};
use kilonova_compute_db::servers::{self, PowerState, Server, TaskState, VmState};
use kilonova_flow::{self as flow, Outcome as End};
use kilonova_ids::{HostName, ServerId};
use kilonova_node_api::{DESTROY_STEP, Desired, Domain, Observation, Outcome, Power, Verb};
use kilonova_store::Tx;
use kilonova_wire::{Context, Refusal};

use super::begin;
use super::journal::{self, OpenOperation};
use super::operation::{Operation, PowerAction};
use crate::actions::ServerAction;
use crate::{Compute, Error, states};

/// A command that changes the power state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerCommand {
    /// `os-start`.
    Start,
    /// `os-stop`.
    Stop,
    /// `reboot`, type `SOFT`.
    RebootSoft,
    /// `reboot`, type `HARD`.
    RebootHard,
}

impl PowerCommand {
    fn action(self) -> PowerAction {
        match self {
            Self::Start => PowerAction::Start,
            Self::Stop => PowerAction::Stop,
            Self::RebootSoft | Self::RebootHard => PowerAction::Reboot,
        }
    }

    /// Why the open operation is cancelled.
    fn cancels_because(self) -> &'static str {
        match self {
            Self::Start => "The server was started.",
            Self::Stop => "The server was stopped.",
            Self::RebootSoft => "The server was rebooted.",
            Self::RebootHard => "The server was rebooted hard.",
        }
    }

    /// The command's key in the table of server actions.
    fn server_action(self) -> ServerAction {
        match self {
            Self::Start => ServerAction::Start,
            Self::Stop => ServerAction::Stop,
            Self::RebootSoft => ServerAction::Reboot,
            Self::RebootHard => ServerAction::RebootHard,
        }
    }
}

/// Begins the change.
///
/// # Errors
/// 409 with Nova's message when the server's state does not allow the change.
pub fn change_power(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    command: PowerCommand,
    now: Timestamp,
) -> Result<(), Error> {
    states::allow(context, server, command.server_action())?;
    let Some(host) = &server.host else { return Err(states::not_ready(server)) };
    let Some(document) = documents::on(tx, host, server.id)? else {
        return Err(states::not_ready(server));
    };
    let Desired::Present(mut domain) = document.desired else {
        return Err(Refusal::conflict(format!("Instance {} is being removed", server.id)).into());
    };
    if let Some(open) = journal::open_of(tx, server.id)? {
        journal::finish(tx, &open, End::Cancelled, Some(command.cancels_because()), now)?;
    }
    let state = Operation::Power(command.action());
    let task = command.server_action().row().task;
    let hosts = std::slice::from_ref(host);
    let (open, next) = begin::begin_on(tx, context, server, task, state, hosts, now)?;
    domain.power = if command == PowerCommand::Stop { Power::Off } else { Power::On };
    domain.starts_paused = false;
    // A hard reboot creates a guest that its host has lost anew, as upstream; no other command may do so.
    domain.existing = command != PowerCommand::RebootHard;
    // The move that brought the guest has ended.
    domain.from = None;
    domain.kept_machine_type.clone_from(&server.machine_type);
    domain.verb = match command {
        PowerCommand::RebootSoft => Some((open.row.id, Verb::RebootSoft)),
        PowerCommand::RebootHard => Some((open.row.id, Verb::RebootHard)),
        // A verb of a cancelled operation must not reach the guest in another power state.
        PowerCommand::Start | PowerCommand::Stop => None,
    };
    if command == PowerCommand::RebootHard {
        // A server that failed during a rescue boots from its own disk again.
        domain.config.rescue = None;
    }
    let document = Desired::Present(domain);
    for next in next {
        // A host that does not have the guest's ports yet must not create the guest without them.
        let delivery = Delivery::AsBefore;
        documents::put_next_as(tx, compute, host, next, server.id, &document, delivery)?;
    }
    Ok(())
}

/// Falls back to a hard reboot for a server whose soft reboot takes longer than `reboot_timeout`.
///
/// # Errors
/// Store errors only.
pub fn force_reboot(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(server) = servers::find(tx, server)? else { return Ok(()) };
    let context = begin::owner_context(&server);
    if server.task_state != Some(TaskState::Rebooting)
        || states::allow(&context, &server, ServerAction::RebootHard).is_err()
    {
        return Ok(());
    }
    tracing::info!(server = %server.id, "soft reboot exceeded reboot_timeout; falling back to a hard reboot");
    change_power(tx, compute, &context, &server, PowerCommand::RebootHard, now)
}

/// Applies a host's report. After a failed start or stop, the server and its guest's document are as before, as upstream
/// (`reverts_task_state` in `nova/compute/manager.py`). A failed reboot puts the server into `ERROR`, unless its guest was
/// never shut off (`_reboot_instance`); so does a failed start after the host booted (`_resume_guests_state`).
pub(super) fn settled(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    open: &OpenOperation,
    power: PowerAction,
    observation: &Observation,
    now: Timestamp,
) -> Result<(), Error> {
    let id = observation.server;
    let failure = match (power, &observation.outcome) {
        (PowerAction::Start | PowerAction::Reboot, Outcome::Running) => {
            servers::set_state(tx, id, VmState::Active, None, PowerState::Running, now)?;
            servers::set_launched(tx, id, now)?;
            None
        }
        (PowerAction::Stop, Outcome::Stopped) => {
            servers::set_state(tx, id, VmState::Stopped, None, PowerState::Shutdown, now)?;
            None
        }
        (_, Outcome::Failed { step, message }) => Some(format!("{host}: {step}: {message}")),
        (PowerAction::Start | PowerAction::Reboot, Outcome::Stopped)
        | (PowerAction::Stop, Outcome::Running)
        | (
            _,
            Outcome::Paused
            | Outcome::Suspended
            | Outcome::Ready
            | Outcome::Working { .. }
            | Outcome::MigratingOut(_)
            | Outcome::MigratedOut
            | Outcome::Absent,
        ) => return Ok(()),
    };
    let name = format!("compute_{}_instance", power.action());
    let ended = begin::event(&name, host, failure.as_deref(), open.row.created_at, now);
    flow::event(tx, open.row.id, &ended)?;
    let Some(message) = failure else {
        return journal::finish(tx, open, End::Done, None, now);
    };
    let Some(server) = servers::find(tx, id)? else {
        return journal::finish(tx, open, End::Cancelled, None, now);
    };
    let outcome = &observation.outcome;
    let still_runs = server.power_state == PowerState::Running
        && matches!(outcome, Outcome::Failed { step, .. } if step == DESTROY_STEP);
    let summary = match power {
        PowerAction::Reboot if !still_runs => Some("The host could not restart the guest."),
        // An active server is started only after its host has booted.
        PowerAction::Start if server.vm_state == VmState::Active => {
            Some("The host could not start the guest.")
        }
        PowerAction::Reboot | PowerAction::Start | PowerAction::Stop => None,
    };
    match summary {
        Some(summary) => {
            let fault = servers::Fault::new(summary, &*message, now);
            servers::set_error(tx, id, &fault, now)?;
        }
        None => as_before(tx, compute, host, &server, now)?,
    }
    journal::fail(tx, open, &message, now)
}

/// Ends the task, and requests the power state that the guest had before. The document must not keep the power state of
/// a failed change: a later move would take the guest for stopped.
fn as_before(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    server: &Server,
    now: Timestamp,
) -> Result<(), Error> {
    if let Some(Desired::Present(domain)) =
        documents::get(tx, host, server.id)?.map(|document| document.desired)
    {
        let power = match server.power_state {
            PowerState::Running => Power::On,
            PowerState::Paused => Power::Paused,
            PowerState::Suspended => Power::Suspended,
            PowerState::NoState | PowerState::Shutdown => Power::Off,
        };
        let before = Domain { power, starts_paused: false, verb: None, ..*domain };
        let before = Desired::Present(Box::new(before));
        documents::put_as(tx, compute, host, server.id, &before, Delivery::AsBefore)?;
    }
    Ok(servers::set_task(tx, server.id, None, now)?)
}

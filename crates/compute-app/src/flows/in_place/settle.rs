//! Handles the host's report on a requested change.

use kilonova_compute_db::documents;
use kilonova_compute_db::resting::{self, Why};
use kilonova_compute_db::servers::{self, Fault, PowerState, VmState};
use kilonova_flow::Outcome as End;
use kilonova_node_api::{Desired, Outcome, Power};
use kilonova_store::Tx;

use super::command::recorded_as;
use super::{FlowContext, roll_back, shelve, snapshot, soft_delete};
use crate::Error;
use crate::flows::operation::{InPlace, InPlaceChange};

/// The requested result of a change in place.
enum Goal {
    /// The guest reaches this state.
    State(VmState, PowerState),
    /// The guest does not change.
    Unchanged,
}

/// The result of the change, if the report shows that it is complete; `None` if the guest is in
/// another state.
fn goal(change: &InPlaceChange, outcome: &Outcome) -> Option<Goal> {
    let when =
        |wanted: Outcome, state, power| (*outcome == wanted).then_some(Goal::State(state, power));
    match change {
        InPlaceChange::Pause => when(Outcome::Paused, VmState::Paused, PowerState::Paused),
        InPlaceChange::Suspend => {
            when(Outcome::Suspended, VmState::Suspended, PowerState::Suspended)
        }
        InPlaceChange::Rescue => when(Outcome::Running, VmState::Rescued, PowerState::Running),
        InPlaceChange::Rebuild => when(Outcome::Stopped, VmState::Stopped, PowerState::Shutdown)
            .or_else(|| when(Outcome::Running, VmState::Active, PowerState::Running)),
        InPlaceChange::Shelve(_) => when(Outcome::Stopped, VmState::Shelved, PowerState::Shutdown),
        InPlaceChange::SoftDelete => {
            when(Outcome::Stopped, VmState::SoftDeleted, PowerState::Shutdown)
        }
        InPlaceChange::Unpause
        | InPlaceChange::Resume
        | InPlaceChange::Unrescue
        | InPlaceChange::Unshelve
        | InPlaceChange::Restore => when(Outcome::Running, VmState::Active, PowerState::Running),
        InPlaceChange::CreateImage(_)
        | InPlaceChange::CreateBackup(..)
        | InPlaceChange::Guest(_) => Some(Goal::Unchanged),
    }
}

pub(super) fn settled(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    operation: &InPlace,
    outcome: &Outcome,
) -> Result<(), Error> {
    if let Outcome::Failed { step, message } = outcome {
        return failed(tx, ctx, operation, &format!("{}: {step}: {message}", ctx.host));
    }
    if *outcome == Outcome::Absent {
        return Ok(());
    }
    let change = &operation.change;
    if !snapshot::is_uploaded(tx, ctx.compute, change)? {
        let why = format!("{}: snapshot: the host did not upload the disk", ctx.host);
        return failed(tx, ctx, operation, &why);
    }
    let (id, now) = (ctx.server.id, ctx.now);
    let Some(goal) = goal(change, outcome) else {
        return shut_off_meanwhile(tx, ctx, change, outcome);
    };
    ctx.event(tx, recorded_as(change), None)?;
    match goal {
        Goal::Unchanged => {
            snapshot::completed(tx, ctx, change)?;
            servers::set_task(tx, id, None, now)?;
        }
        Goal::State(vm_state, power_state) => {
            if let InPlaceChange::Shelve(image) = change {
                return shelve::shelved(tx, ctx, &operation.before, *image);
            }
            servers::set_state(tx, id, vm_state, None, power_state, now)?;
            after(tx, ctx, change)?;
        }
    }
    ctx.finish(tx, End::Done, None)
}

/// Applies the effects of the change on the server, other than its state.
fn after(tx: &mut Tx<'_>, ctx: &FlowContext<'_>, change: &InPlaceChange) -> Result<(), Error> {
    let (id, now) = (ctx.server.id, ctx.now);
    match change {
        InPlaceChange::SoftDelete => soft_delete::deleted(tx, ctx),
        InPlaceChange::Unshelve => shelve::discard_shelved_image(tx, ctx.compute, id),
        InPlaceChange::Restore | InPlaceChange::Unrescue => Ok(resting::end(tx, id)?),
        InPlaceChange::Rescue => {
            servers::set_relaunched(tx, id, now)?;
            Ok(resting::put(tx, id, Why::Rescued, None, now)?)
        }
        InPlaceChange::Rebuild => Ok(servers::set_relaunched(tx, id, now)?),
        InPlaceChange::Pause
        | InPlaceChange::Unpause
        | InPlaceChange::Suspend
        | InPlaceChange::Resume
        | InPlaceChange::CreateImage(_)
        | InPlaceChange::CreateBackup(..)
        | InPlaceChange::Guest(_)
        | InPlaceChange::Shelve(_) => Ok(()),
    }
}

/// Handles a guest in a state other than the requested one. The only possible cause is a shutdown
/// in the meantime: the operation fails and the server becomes `SHUTOFF`.
fn shut_off_meanwhile(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    change: &InPlaceChange,
    outcome: &Outcome,
) -> Result<(), Error> {
    if *outcome != Outcome::Stopped {
        return Ok(());
    }
    let why = format!("{}: the guest shut itself off during the change", ctx.host);
    ctx.event(tx, recorded_as(change), Some(&why))?;
    shut_off(tx, ctx)?;
    ctx.fail(tx, &why)
}

/// Sets the server to `SHUTOFF`, and keeps the guest shut off through its document.
pub(super) fn shut_off(tx: &mut Tx<'_>, ctx: &FlowContext<'_>) -> Result<(), Error> {
    let id = ctx.server.id;
    if let Some(Desired::Present(mut domain)) =
        documents::get(tx, ctx.host, id)?.map(|document| document.desired)
    {
        domain.config.rescue = None;
        domain.power = Power::Off;
        domain.starts_paused = false;
        domain.require_guest();
        domain.verb = None;
        ctx.put(tx, &Desired::Present(domain))?;
    }
    Ok(servers::set_state(tx, id, VmState::Stopped, None, PowerState::Shutdown, ctx.now)?)
}

/// Rolls back a change that has failed; a failed rebuild sets the server to `ERROR` instead.
pub(super) fn failed(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    operation: &InPlace,
    why: &str,
) -> Result<(), Error> {
    ctx.event(tx, recorded_as(&operation.change), Some(why))?;
    if operation.change != InPlaceChange::Rebuild {
        return roll_back::begin(tx, ctx, operation, why);
    }
    // The old disk may be gone, so a rebuild cannot be rolled back.
    let fault = Fault::new("The host could not rebuild the guest.", why, ctx.now);
    servers::set_error(tx, ctx.server.id, &fault, ctx.now)?;
    ctx.fail(tx, why)
}

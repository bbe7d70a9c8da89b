//! The rollback of a failed change: the host restores the guest's previous state.

use kilonova_compute_db::servers::{self, Fault};
use kilonova_node_api::{Desired, Outcome, Power};
use kilonova_store::Tx;

use super::{FlowContext, settle};
use crate::flows::operation::{Before, InPlace, InPlaceStep, Operation};
use crate::{Error, images, ports};

pub(super) fn begin(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    operation: &InPlace,
    why: &str,
) -> Result<(), Error> {
    if let Some(image) = operation.change.image() {
        images::discard(tx, ctx.compute, image)?;
    }
    let undo = InPlace {
        change: operation.change.clone().without_image(),
        before: operation.before.clone(),
        step: InPlaceStep::Undo { reason: why.to_owned() },
    };
    ctx.advance(tx, &Operation::InPlace(undo))?;
    ctx.put(tx, &Desired::Present(operation.before.domain.clone()))
}

pub(super) fn rolled_back(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    before: &Before,
    reason: &str,
    outcome: &Outcome,
) -> Result<(), Error> {
    match (outcome, before.domain.power) {
        (Outcome::Absent, _) => return Ok(()),
        // The guest has no memory to lose.
        (Outcome::Failed { step, message }, Power::Off | Power::Suspended) => {
            tracing::warn!(
                server = %ctx.server.id, host = %ctx.host,
                "rollback of {} failed: {step}: {message}; the guest was not running",
                ctx.open.state.action()
            );
            as_before(tx, ctx, before)?;
        }
        (Outcome::Failed { step, message }, _) => {
            let message = format!("{reason}. The rollback failed: {step}: {message}");
            let summary = format!(
                "The host could not carry out {}, and could not restore the guest.",
                ctx.open.state.action()
            );
            let fault = Fault::new(&summary, message, ctx.now);
            servers::set_error(tx, ctx.server.id, &fault, ctx.now)?;
        }
        (Outcome::Stopped, Power::On | Power::Paused | Power::Suspended) => {
            settle::shut_off(tx, ctx)?;
        }
        (Outcome::Stopped, Power::Off | Power::Incoming | Power::AsIs)
        | (
            Outcome::Running
            | Outcome::Paused
            | Outcome::Suspended
            | Outcome::Ready
            | Outcome::Working { .. }
            | Outcome::MigratingOut(_)
            | Outcome::MigratedOut,
            _,
        ) => as_before(tx, ctx, before)?,
    }
    ports::record_guest_change(tx, ctx.compute, &ctx.server)?;
    ctx.fail(tx, reason)
}

/// Restores the server's previous state; an earlier `ERROR` keeps its fault.
fn as_before(tx: &mut Tx<'_>, ctx: &FlowContext<'_>, before: &Before) -> Result<(), Error> {
    let id = ctx.server.id;
    if before.vm_state == ctx.server.vm_state {
        return Ok(servers::set_task(tx, id, None, ctx.now)?);
    }
    Ok(servers::set_state(tx, id, before.vm_state, None, before.power_state, ctx.now)?)
}

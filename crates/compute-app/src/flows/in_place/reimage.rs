//! The rebuild of a volume-backed server: the host shuts the guest off and releases its root volume, Cinder replaces
//! the data of the volume (`volumes::root`), and then the host recreates the guest as in any rebuild.

use jiff::Timestamp;
use kilonova_compute_db::documents::{self, Delivery};
use kilonova_compute_db::servers::{self, Fault};
use kilonova_ids::ServerId;
use kilonova_node_api::{Desired, Outcome};
use kilonova_store::Tx;

use super::command::after_rebuild;
use super::{FlowContext, settle};
use crate::actions::ServerAction;
use crate::flows::journal;
use crate::flows::operation::{InPlace, InPlaceStep, Operation};
use crate::{Compute, Error, volumes};

/// Ends the replacement of the root volume's data; `why` is the reason, if it failed. Puts the volume back into the
/// host's document, which is held back until the worker has connected the volume; without the volume, a guest would
/// start with an empty local disk.
pub(super) fn give_back(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    why: Option<&str>,
) -> Result<(), Error> {
    if !volumes::end_reimage(tx, server, why)? {
        return Ok(());
    }
    let Some(host) = servers::host_of(tx, server)? else { return Ok(()) };
    let document = documents::get(tx, &host, server)?.map(|document| document.desired);
    let Some(Desired::Present(mut domain)) = document else { return Ok(()) };
    domain.config.volumes = volumes::placeholders(tx, compute, server)?;
    let (document, delivery) = (Desired::Present(domain), Delivery::AsBefore);
    Ok(documents::put_as(tx, compute, &host, server, &document, delivery)?)
}

/// Handles the host's report on the shutdown before the replacement. Only a failure matters here, because the volume
/// worker detects the release of the root volume itself.
pub(super) fn released(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    operation: &InPlace,
    outcome: &Outcome,
) -> Result<(), Error> {
    let Outcome::Failed { step, message } = outcome else { return Ok(()) };
    let why = format!("{}: {step}: {message}", ctx.host);
    give_back(tx, ctx.compute, ctx.server.id, Some(&why))?;
    settle::failed(tx, ctx, operation, &why)
}

/// Continues the rebuild after Cinder has replaced the data of the root volume.
///
/// # Errors
/// Store errors only.
pub(crate) fn reimaged(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: Timestamp,
) -> Result<(), Error> {
    waiting(tx, compute, server, now, |tx, ctx, operation| {
        let document = documents::get(tx, ctx.host, server)?.map(|document| document.desired);
        let Some(Desired::Present(mut domain)) = document else { return Ok(()) };
        domain.power = after_rebuild(operation.before.vm_state);
        domain.config.boot.rebuilt = Some(ctx.open.row.id);
        domain.config.volumes = volumes::placeholders(tx, compute, server)?;
        servers::clear_machine_type(tx, server)?;
        let next = InPlace { step: InPlaceStep::Settle, ..operation.clone() };
        ctx.advance(tx, &Operation::InPlace(next))?;
        ctx.put(tx, &Desired::Present(domain))
    })
}

/// Fails the rebuild, because Cinder will not replace the data of the root volume.
///
/// # Errors
/// Store errors only.
pub(crate) fn not_reimaged(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    why: &str,
    now: Timestamp,
) -> Result<(), Error> {
    give_back(tx, compute, server, Some(why))?;
    waiting(tx, compute, server, now, |tx, ctx, _| {
        ctx.event(tx, ServerAction::Rebuild, Some(why))?;
        let fault = Fault::new("The data of the root volume could not be replaced.", why, now);
        servers::set_error(tx, server, &fault, now)?;
        ctx.fail(tx, why)
    })
}

/// Calls `advance` for the rebuild that waits for Cinder, if there is one.
fn waiting(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: Timestamp,
    advance: impl FnOnce(&mut Tx<'_>, &FlowContext<'_>, &InPlace) -> Result<(), Error>,
) -> Result<(), Error> {
    let Some(open) = journal::open_of(tx, server)? else { return Ok(()) };
    let Operation::InPlace(operation) = &open.state else { return Ok(()) };
    if operation.step != InPlaceStep::Reimage {
        return Ok(());
    }
    let Some(host) = servers::host_of(tx, server)? else { return Ok(()) };
    let Some(ctx) = FlowContext::load(tx, compute, &host, &open, now)? else { return Ok(()) };
    advance(tx, &ctx, operation)
}

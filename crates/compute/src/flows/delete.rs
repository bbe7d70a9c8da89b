//! The end of a server. What it holds is given back in the transaction that removes its row, and
//! that one runs when its host says that nothing of it is left.
//!
//! A host that is lost is not waited for: the server goes, and what it had there is dirty. The
//! document stays, so that the host drops the guest when it is back, and says so.
//!
//! A server that is moving may be on two hosts; each gives back its side, and the row goes with the
//! last.

use kilonova_flow::{self as flow, Operation, Outcome as End};
use kilonova_ids::ServerId;
use kilonova_node_api::{Desired, Observation, Outcome};
use kilonova_store::Tx;
use kilonova_wire::Context;
use serde_json::json;

use super::{moving, start, stay};
use crate::app::{boot, moves as claims, nics};
use crate::db::documents;
use crate::db::moves::{self, Move};
use crate::db::servers::{self, Server};
use crate::{Compute, Error};

/// Begins the deletion, or carries it out at once for a server that is on no host, or on one that is
/// lost. Whatever else was being done to it is cancelled. Deleting twice is deleting once.
///
/// # Errors
/// The database's.
pub fn delete(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    now: i64,
) -> Result<(), Error> {
    let open = flow::open_of(tx, server.id)?;
    if open.as_ref().is_some_and(|open| open.kind == "delete" && !stay::is_one(open)) {
        give_up(tx, compute, server.id, now)?;
        return Ok(());
    }
    let status = if open.is_some() { "cancelled" } else { "confirmed" };
    moving::call_off(tx, compute, server, open.as_ref(), status, now)?;
    stay::drop_image(tx, compute, server.id)?;
    if let Some(open) = open {
        stay::call_off(tx, compute, &open)?;
        flow::finish(tx, &open, End::Cancelled, Some("The server was deleted."), now)?;
    }
    start::begin(tx, context, server, "delete", "destroy", "deleting", now)?;
    let documents = documents::of_server(tx, server.id)?;
    for (host, _) in &documents {
        let generation = documents::put(tx, host, server.id, &Desired::Absent)?;
        compute.wake_on_commit(tx, host, generation);
    }
    if !documents.is_empty() {
        give_up(tx, compute, server.id, now)?;
        return Ok(());
    }
    let Some(operation) = flow::open_of(tx, server.id)? else { return Ok(()) };
    boot::release(tx, compute, server.id)?;
    gone(tx, "", &operation, None, now)
}

/// Ends a deletion as far as it waits for hosts which are lost. Says whether the server is gone.
///
/// # Errors
/// The database's.
pub fn give_up(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: i64,
) -> Result<bool, Error> {
    let Some(operation) =
        flow::open_of(tx, server)?.filter(|open| open.kind == "delete" && !stay::is_one(open))
    else {
        return Ok(false);
    };
    let own = servers::host_of(tx, server)?;
    let mut last = None;
    for (host, _) in documents::of_server(tx, server)? {
        if !compute.host_is_lost(&host, now) {
            return Ok(false);
        }
        last = Some(host);
    }
    let Some(last) = last else { return Ok(false) };
    tracing::warn!(%server, host = last, "deleted without its host, which is down");
    for (host, _) in documents::of_server(tx, server)? {
        claims::abandon_held(tx, compute, server, &host)?;
        if own.as_deref() == Some(&host) {
            boot::abandon(tx, compute, server)?;
        }
    }
    let remark = Some("The host is down; it drops the guest when it is back.");
    gone(tx, own.as_deref().unwrap_or(&last), &operation, remark, now)?;
    Ok(true)
}

/// A host that nobody waits for has dropped a guest, or tried to: it was lost and is back, or the
/// server has moved away.
pub(super) fn dropped(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &str,
    observation: &Observation,
) -> Result<(), Error> {
    let server = observation.server;
    match &observation.outcome {
        Outcome::Absent => {
            documents::forget(tx, host, server)?;
            // Where a migration holds something, the server itself does not, but after a resize on
            // one host.
            let own = moves::held_on(tx, server, host)?.iter().all(Move::same_host);
            claims::drop_held(tx, compute, server, host)?;
            if own {
                boot::reclaim(tx, compute, boot::consumer_of(server))?;
            }
            Ok(())
        }
        Outcome::Failed { step, message } => {
            tracing::warn!(%server, "cannot drop yet: {host}: {step}: {message}");
            Ok(())
        }
        _ => Ok(()),
    }
}

pub(super) fn destroyed(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &str,
    operation: &Operation,
    observation: &Observation,
    now: i64,
) -> Result<(), Error> {
    match &observation.outcome {
        Outcome::Absent => {
            let server = observation.server;
            // Two hosts that drop it at once meet on its row, so that one of them is the last.
            servers::set_task(tx, server, Some("deleting"), now)?;
            documents::forget(tx, host, server)?;
            claims::drop_held(tx, compute, server, host)?;
            if documents::of_server(tx, server)?.is_empty() {
                boot::release(tx, compute, server)?;
                return gone(tx, host, operation, None, now);
            }
            if servers::host_of(tx, server)?.as_deref() == Some(host) {
                boot::release(tx, compute, server)?;
                nics::set_host(tx, server, None, now)?;
            }
            give_up(tx, compute, server, now)?;
            Ok(())
        }
        Outcome::Failed { step, message } => {
            let why = format!("{host}: {step}: {message}");
            tracing::warn!(server = %observation.server, "cannot destroy yet: {why}");
            if operation.data["reason"] != why.as_str() {
                let (name, since) = ("compute_terminate_instance", operation.updated_at);
                flow::event(tx, operation.id, &start::event(name, host, Some(&why), since, now))?;
            }
            Ok(flow::advance(tx, operation, "destroy", &json!({"reason": why}), now)?)
        }
        _ => Ok(()),
    }
}

/// The server's row goes; what it held has been given up.
fn gone(
    tx: &mut Tx<'_>,
    host: &str,
    operation: &Operation,
    remark: Option<&str>,
    now: i64,
) -> Result<(), Error> {
    nics::delete(tx, operation.subject, now)?;
    let done = start::event("compute_terminate_instance", host, None, operation.created_at, now);
    flow::event(tx, operation.id, &flow::Event { details: remark.map(str::to_owned), ..done })?;
    Ok(flow::finish(tx, operation, End::Done, None, now)?)
}

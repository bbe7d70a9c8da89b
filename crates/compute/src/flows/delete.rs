//! The end of a server. What it holds is given back in the transaction that removes its row, and
//! that one runs when its host says that nothing of it is left.
//!
//! A host that is lost is not waited for: the server goes, and what it had there is dirty. The
//! document stays, so that the host drops the guest when it is back, and says so.

use kilonova_flow::{self as flow, Operation, Outcome as End};
use kilonova_ids::ServerId;
use kilonova_node_api::{Desired, Observation, Outcome};
use kilonova_store::Tx;
use kilonova_wire::Context;
use serde_json::json;

use super::start;
use crate::app::boot;
use crate::db::documents;
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
    let lost = server.host.as_deref().is_some_and(|host| compute.host_is_lost(host, now));
    match flow::open_of(tx, server.id)? {
        Some(open) if open.kind == "delete" => {
            if lost {
                give_up(tx, compute, server.id, now)?;
            }
            return Ok(());
        }
        Some(open) => {
            flow::finish(tx, &open, End::Cancelled, Some("The server was deleted."), now)?;
        }
        None => {}
    }
    start::begin(tx, context, server, "delete", "destroy", "deleting", now)?;
    let Some(host) = &server.host else {
        let Some(operation) = flow::open_of(tx, server.id)? else { return Ok(()) };
        boot::release(tx, compute, server.id)?;
        return gone(tx, "", &operation, None, now);
    };
    let generation = documents::put(tx, host, server.id, &Desired::Absent)?;
    compute.wake_on_commit(tx, host, generation);
    if lost {
        give_up(tx, compute, server.id, now)?;
    }
    Ok(())
}

/// Ends a deletion that waits for a host which is lost. Says whether it was one.
///
/// # Errors
/// The database's.
pub fn give_up(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: i64,
) -> Result<bool, Error> {
    let Some(operation) = flow::open_of(tx, server)?.filter(|open| open.kind == "delete") else {
        return Ok(false);
    };
    let host = servers::find(tx, server)?.and_then(|server| server.host);
    let Some(host) = host.filter(|host| compute.host_is_lost(host, now)) else { return Ok(false) };
    tracing::warn!(%server, host, "deleted without its host, which is down");
    boot::abandon(tx, compute, server)?;
    gone(
        tx,
        &host,
        &operation,
        Some("The host is down; it drops the guest when it is back."),
        now,
    )?;
    Ok(true)
}

/// A host that was lost is back and has dropped a guest, or tried to.
pub(super) fn dropped(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &str,
    observation: &Observation,
) -> Result<(), Error> {
    match &observation.outcome {
        Outcome::Absent => {
            documents::forget(tx, host, observation.server)?;
            boot::reclaim(tx, compute, observation.server)
        }
        Outcome::Failed { step, message } => {
            tracing::warn!(server = %observation.server, "cannot drop yet: {host}: {step}: {message}");
            Ok(())
        }
        Outcome::Running | Outcome::Stopped => Ok(()),
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
            documents::forget(tx, host, observation.server)?;
            boot::release(tx, compute, observation.server)?;
            gone(tx, host, operation, None, now)
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
        Outcome::Running | Outcome::Stopped => Ok(()),
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
    servers::delete(tx, operation.subject)?;
    let done = start::event("compute_terminate_instance", host, None, operation.created_at, now);
    flow::event(tx, operation.id, &flow::Event { details: remark.map(str::to_owned), ..done })?;
    Ok(flow::finish(tx, operation, End::Done, None, now)?)
}

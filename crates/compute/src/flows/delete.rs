//! The end of a server. What it holds is given back in the transaction that removes its row, and
//! that one runs when its host says that nothing of it is left.

use kilonova_flow::{self as flow, Operation, Outcome as End};
use kilonova_node_api::{Desired, Observation, Outcome};
use kilonova_store::Tx;
use kilonova_wire::Context;

use super::start;
use crate::app::boot;
use crate::db::documents;
use crate::db::servers::{self, Server};
use crate::{Compute, Error};

/// Begins the deletion, or carries it out at once for a server that is on no host. Whatever else
/// was being done to it is cancelled. Deleting twice is deleting once.
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
    if let Some(open) = flow::open_of(tx, server.id)? {
        if open.kind == "delete" {
            return Ok(());
        }
        flow::finish(tx, &open, End::Cancelled, Some("The server was deleted."), now)?;
    }
    start::begin(tx, context, server, "delete", "destroy", "deleting", now)?;
    let Some(host) = &server.host else {
        let Some(operation) = flow::open_of(tx, server.id)? else { return Ok(()) };
        return gone(tx, compute, "", &operation, now);
    };
    let generation = documents::put(tx, host, server.id, &Desired::Absent)?;
    compute.wake_on_commit(tx, host, generation);
    Ok(())
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
            gone(tx, compute, host, operation, now)
        }
        Outcome::Failed { step, message } => {
            let why = format!("{host}: {step}: {message}");
            tracing::warn!(server = %observation.server, "cannot destroy yet: {why}");
            let failed = start::event(
                "compute_terminate_instance",
                host,
                Some(&why),
                operation.updated_at,
                now,
            );
            flow::event(tx, operation.id, &failed)?;
            Ok(flow::advance(tx, operation, "destroy", &operation.data, now)?)
        }
        Outcome::Running | Outcome::Stopped => Ok(()),
    }
}

fn gone(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &str,
    operation: &Operation,
    now: i64,
) -> Result<(), Error> {
    boot::release(tx, compute, operation.subject)?;
    servers::delete(tx, operation.subject)?;
    let done = start::event("compute_terminate_instance", host, None, operation.created_at, now);
    flow::event(tx, operation.id, &done)?;
    Ok(flow::finish(tx, operation, End::Done, None, now)?)
}

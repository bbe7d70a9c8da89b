//! Everything that moves a server: one mechanism for all. Claim the new place, switch, release the
//! old; until the switch, or the confirmation, the migration holds the other side.
//!
//! ```text
//!   resize, migrate:  stop_source ─► make_dest ─► VERIFY_RESIZE ─► confirmed │ revert: drop_dest ─► restore
//!   evacuate:                        make_dest ─► on the new host
//!   live:             queued ─► receive ─► transfer ─► arrive; in doubt abort, find
//!   any of them:      … fails ─► drop_dest ─► the next host │ restore ─► as it was before
//! ```
//!
//! The server's own consumer holds the new place while that is being made, and the old one from the
//! moment on that the move is given up. A document `Absent` on the other host releases what the
//! migration holds there, whenever that host says so; no operation waits for it.
//!
//! Who reports counts: each step hears one of the two hosts only.

mod along;
mod begin;
mod cold;
mod confirm;
mod course;
mod evacuate;
mod live;
mod meddle;
mod undo;
mod whereabouts;

use kilonova_flow::{self as flow, Operation, Outcome as End};
use kilonova_ids::ServerId;
use kilonova_node_api::{Desired, Observation};
use kilonova_store::Tx;

use crate::db::documents;
use crate::db::moves::{self, Move};
use crate::db::servers::{self, Server};
use crate::{Compute, Error};

pub use along::{address_of, stays};
pub use cold::{Cold, move_cold};
pub use confirm::{confirm, confirm_unasked, revert, stay_there};
pub use evacuate::{Evacuation, evacuate};
pub use live::{Live, let_next_go, migrate_live};
pub use meddle::{abort, force_complete, no_progress};
pub use undo::{call_off, give_up_dest};
pub use whereabouts::find_guest;

/// What a step of a move looks at.
struct Scene<'a> {
    compute: &'a Compute,
    operation: &'a Operation,
    server: Server,
    migration: Move,
    now: i64,
}

impl Scene<'_> {
    /// Writes what should be on a host, and wakes it.
    fn put(&self, tx: &mut Tx<'_>, host: &str, desired: &Desired) -> Result<(), Error> {
        put(tx, self.compute, host, self.server.id, desired)
    }
}

/// What a server's open operation does to it, where that is a move of this sort.
fn open_move(
    tx: &mut Tx<'_>,
    server: ServerId,
    is_one: impl FnOnce(&Operation) -> bool,
) -> Result<Option<(Operation, Server, Move)>, Error> {
    let Some(operation) = flow::open_of(tx, server)?.filter(is_one) else { return Ok(None) };
    let (server, migration) = (servers::find(tx, server)?, moves::open_of(tx, server)?);
    Ok(server.zip(migration).map(|(server, migration)| (operation, server, migration)))
}

fn put(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &str,
    server: ServerId,
    desired: &Desired,
) -> Result<(), Error> {
    let generation = documents::put(tx, host, server, desired)?;
    compute.wake_on_commit(tx, host, generation);
    Ok(())
}

/// Whether an operation of this kind is a move.
pub(super) fn is_move(kind: &str) -> bool {
    matches!(kind, "resize" | "migrate" | "revertResize" | "evacuate" | "live-migration")
}

/// Whether the operation waits for that host to drop the server.
pub(super) fn waits_for(tx: &mut Tx<'_>, operation: &Operation, host: &str) -> Result<bool, Error> {
    if operation.step != "drop_dest" {
        return Ok(false);
    }
    let open = moves::open_of(tx, operation.subject)?;
    Ok(open.is_some_and(|open| open.dest.as_deref() == Some(host)))
}

pub(super) fn observed(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &str,
    operation: &Operation,
    observation: &Observation,
    now: i64,
) -> Result<(), Error> {
    let Some(server) = servers::find(tx, operation.subject)? else {
        return Ok(flow::finish(tx, operation, End::Cancelled, None, now)?);
    };
    let Some(migration) = moves::open_of(tx, server.id)? else { return Ok(()) };
    let (source, dest) = (migration.source == host, migration.dest.as_deref() == Some(host));
    let scene = Scene { compute, operation, server, migration, now };
    match operation.step.as_str() {
        "stop_source" if source => cold::source_stopped(tx, scene, &observation.outcome),
        "make_dest" if dest => cold::dest_made(tx, scene, &observation.outcome),
        "receive" if dest => live::received(tx, scene, &observation.outcome),
        "transfer" | "abort" | "find" if source => {
            whereabouts::source_said(tx, scene, &observation.outcome)
        }
        "find" if dest => whereabouts::dest_said(tx, scene, &observation.outcome),
        "arrive" if dest => live::arrived(tx, scene, &observation.outcome),
        "drop_dest" if dest => undo::dest_dropped(tx, scene, host, &observation.outcome),
        "restore" if source => undo::restored(tx, scene, &observation.outcome),
        _ => Ok(()),
    }
}

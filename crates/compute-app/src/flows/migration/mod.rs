//! Moves of a server, which all use one mechanism: claim the new place, switch to it, release the old one. Until the
//! switch, or until the confirmation, the migration's consumer holds the claims on the other side.
//!
//! ```text
//!   resize, migrate:  stop_source ─► make_dest ─► VERIFY_RESIZE ─► confirm │ revert: ask_source ─► drop_dest ─► restore
//!   evacuate:                        make_dest ─► on the new host
//!   live:             queued ─► receive ─► transfer ─► arrive; in doubt abort, find (`locate_guest`)
//!   on failure:       drop_dest ─► the next host │ restore ─► as before (`roll_back`)
//! ```
//!
//! While the destination is being prepared, the server's own consumer holds the claims there; once the move is rolled
//! back, the server's consumer holds the claims on the source again. An `Absent` document on the other host releases
//! the migration's claims there when that host reports the removal; no operation waits for that.
//!
//! Each step except `LiveMigration::Locate` handles reports from only one of the two hosts.

mod begin;
mod cold;
mod confirm;
mod control;
mod device_pairing;
mod evacuate;
pub(super) mod live;
mod locate_guest;
mod roll_back;

use jiff::Timestamp;
use kilonova_compute_db::documents::{self, Delivery};
use kilonova_compute_db::moves::{self, Move};
use kilonova_compute_db::servers::{self, Server};
use kilonova_flow::Outcome as End;
use kilonova_ids::{HostName, ServerId};
use kilonova_node_api::{Desired, Observation};
use kilonova_store::Tx;
use roll_back::FailedMove;

use super::journal::{self, OpenOperation};
use super::operation::{ColdMigration, Evacuation, LiveMigration, Operation, Revert};
use crate::{Compute, Error};

pub use cold::{ColdRequest, migrate_cold};
pub(super) use confirm::check_none_waits;
pub use confirm::{allow_end, ask_source_again, confirm, confirm_expired, revert};
pub use control::{abort, force_complete, initial_progress};
pub use device_pairing::{address_of, required_for_running, unmigratable_device};
pub(super) use evacuate::source_removed;
pub use evacuate::{EvacuateRequest, evacuate};
pub use live::{LiveRequest, migrate_live, start_queued};
pub use locate_guest::locate_guest;
pub use roll_back::abandon_dest;
pub(super) use roll_back::cancel;

/// The open operation of a move, with its server and its migration.
struct FlowContext<'a> {
    compute: &'a Compute,
    open: &'a OpenOperation,
    server: Server,
    migration: Move,
    now: Timestamp,
}

impl FlowContext<'_> {
    fn put(&self, tx: &mut Tx<'_>, host: &HostName, desired: &Desired) -> Result<(), Error> {
        Ok(documents::put(tx, self.compute, host, self.server.id, desired)?)
    }

    fn put_as(
        &self,
        tx: &mut Tx<'_>,
        host: &HostName,
        (desired, delivery): (Desired, Delivery),
    ) -> Result<(), Error> {
        Ok(documents::put_as(tx, self.compute, host, self.server.id, &desired, delivery)?)
    }

    fn advance(&self, tx: &mut Tx<'_>, state: &Operation) -> Result<(), Error> {
        journal::advance(tx, self.open, state, self.now)
    }
}

/// The server and the migration of an open operation; `None` when either is gone.
fn load(tx: &mut Tx<'_>, open: &OpenOperation) -> Result<Option<(Server, Move)>, Error> {
    let server: ServerId = open.row.subject;
    Ok(servers::find(tx, server)?.zip(moves::open_of(tx, server)?))
}

/// True if the operation waits for that host to remove the guest.
pub(super) fn waits_for(
    tx: &mut Tx<'_>,
    open: &OpenOperation,
    host: &HostName,
) -> Result<bool, Error> {
    if !drops_dest(&open.state) {
        return Ok(false);
    }
    let migration = moves::open_of(tx, open.row.subject)?;
    Ok(migration.is_some_and(|migration| migration.dest.as_ref() == Some(host)))
}

fn drops_dest(state: &Operation) -> bool {
    matches!(
        state,
        Operation::Resize(ColdMigration::DropDest(_))
            | Operation::Migrate(ColdMigration::DropDest(_))
            | Operation::Revert(Revert::DropDest(_))
            | Operation::Evacuate(Evacuation::DropDest(_))
            | Operation::LiveMigration(LiveMigration::DropDest(_))
    )
}

/// The reporting host's roles in the move; it has both in a resize on one host.
#[derive(Clone, Copy)]
struct Reporter {
    is_source: bool,
    is_dest: bool,
}

/// Handles a host's report on a server that is being moved.
pub(super) fn observed(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    open: &OpenOperation,
    observation: &Observation,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(server) = servers::find(tx, open.row.subject)? else {
        return journal::finish(tx, open, End::Cancelled, None, now);
    };
    let Some(migration) = moves::open_of(tx, server.id)? else { return Ok(()) };
    let by = Reporter {
        is_source: migration.source == *host,
        is_dest: migration.dest.as_ref() == Some(host),
    };
    let ctx = FlowContext { compute, open, server, migration, now };
    let outcome = &observation.outcome;
    match &open.state {
        Operation::Resize(cold) => cold::observed(tx, ctx, Operation::Resize, cold, by, outcome),
        Operation::Migrate(cold) => cold::observed(tx, ctx, Operation::Migrate, cold, by, outcome),
        Operation::Revert(revert) => match revert {
            Revert::AskSource(asked) if by.is_source => {
                confirm::source_reported(tx, &ctx, asked, outcome)
            }
            Revert::DropDest(state) if by.is_dest => {
                roll_back::dest_dropped(tx, ctx, FailedMove::Revert(state.clone()), outcome)
            }
            Revert::Restore(state) if by.is_source => {
                roll_back::restored(tx, ctx, FailedMove::Revert(state.clone()), outcome)
            }
            Revert::Begin | Revert::AskSource(_) | Revert::DropDest(_) | Revert::Restore(_) => {
                Ok(())
            }
        },
        Operation::Evacuate(evacuation) => evacuate::observed(tx, ctx, evacuation, by, outcome),
        Operation::LiveMigration(live) => live::observed(tx, ctx, live, by, observation),
        Operation::Create(_)
        | Operation::Delete(_)
        | Operation::Power(_)
        | Operation::InPlace(_)
        | Operation::Offload(_)
        | Operation::Unshelve(_)
        | Operation::Recorded(_) => Ok(()),
    }
}

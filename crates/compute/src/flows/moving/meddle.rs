//! What operators do to a live migration that is under way: they call it off, or hurry it.

use kilonova_flow as flow;
use kilonova_node_api::Progress;
use kilonova_store::Tx;
use kilonova_wire::{Context, Fault};

use super::super::start;
use super::course::Course;
use super::{Scene, live, undo, whereabouts};
use crate::app::states;
use crate::db::moves::{self, Kind};
use crate::db::servers::Server;
use crate::{Compute, Error};

/// The live migration with that number which is under way.
fn under_way(
    tx: &mut Tx<'_>,
    server: &Server,
    number: i64,
    method: &str,
) -> Result<(flow::Operation, moves::Move), Error> {
    let known = moves::of_server(tx, server.id)?.into_iter().find(|known| known.number == number);
    let Some(migration) = known else {
        return Err(Fault::not_found(format!(
            "Migration {number} for instance {} is not found",
            server.id
        ))
        .into());
    };
    let operation = flow::open_of(tx, server.id)?.filter(|open| open.kind == "live-migration");
    match operation {
        Some(operation) if migration.open && migration.kind == Kind::Live => {
            Ok((operation, migration))
        }
        _ => Err(not_in(server, &migration, method)),
    }
}

fn not_in(server: &Server, migration: &moves::Move, method: &str) -> Error {
    Fault::bad_request(format!(
        "Migration {} state of instance {} is {}. Cannot {method} while the migration is in this state.",
        migration.number, server.id, migration.status
    ))
    .into()
}

/// Calls it off; one that is still being prepared too where `early` (2.65).
///
/// # Errors
/// 404, 400 or 409 in Nova's words when it is not under way.
pub fn abort(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    number: i64,
    early: bool,
    now: i64,
) -> Result<(), Error> {
    states::check(context, server, "abort live migration")?;
    let (operation, migration) = under_way(tx, server, number, "abort")?;
    let step = operation.step.as_str();
    if step != "transfer" && (!matches!(step, "queued" | "receive") || !early) {
        return Err(not_in(server, &migration, "abort"));
    }
    start::note(tx, context, server, "live_migration_cancel", now)?;
    let source = migration.source.clone();
    let aborted = start::event("compute_live_migration_abort", &source, None, now, now);
    flow::event(tx, operation.id, &aborted)?;
    let mut course = Course::of(&operation)?;
    course.cancelled = true;
    let scene = Scene { compute, operation: &operation, server: server.clone(), migration, now };
    if step != "transfer" {
        course.reason = Some("The live migration was aborted.".to_owned());
        if step == "queued" {
            return undo::leave_dest_untouched(tx, &scene, course);
        }
        return undo::drop_dest(tx, &scene, course);
    }
    course.sent = true;
    whereabouts::ask_source(tx, &scene, course)
}

/// Has it end soon, even if the guest has to stand still for a while.
///
/// # Errors
/// 404, 400 or 409 in Nova's words when it is not under way.
pub fn force_complete(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    number: i64,
    now: i64,
) -> Result<(), Error> {
    states::check(context, server, "force_complete")?;
    let (operation, migration) = under_way(tx, server, number, "force_complete")?;
    if operation.step != "transfer" {
        return Err(not_in(server, &migration, "force_complete"));
    }
    start::note(tx, context, server, "live_migration_force_complete", now)?;
    let course = Course::of(&operation)?;
    let scene = Scene { compute, operation: &operation, server: server.clone(), migration, now };
    live::send(tx, &scene, &course, true)?;
    // The row says that somebody has had a hand in it, for whoever does so at the same time.
    Ok(flow::advance(tx, &operation, "transfer", &course.data()?, now)?)
}

/// What clients see of a migration that has said nothing yet.
pub fn no_progress(ram_mb: i64) -> Progress {
    let memory = ram_mb.saturating_mul(1024 * 1024);
    Progress { memory_total: memory, memory_remaining: memory, ..Progress::default() }
}

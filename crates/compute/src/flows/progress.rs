//! The phase that a host reports becomes the server's task state. It advances no operation: the flows
//! do not depend on these reports.

use kilonova_node_api::Phase;
use kilonova_store::Tx;

use super::journal::OpenOperation;
use super::operation::{InPlaceChange, Operation};
use crate::Error;
use crate::db::servers;

/// The task states in which the phase counts, and the task state that follows.
fn next_task(state: &Operation, phase: Phase) -> Option<(&'static [&'static str], &'static str)> {
    match (state, phase) {
        (Operation::InPlace(in_place), _) => match (&in_place.change, phase) {
            (InPlaceChange::CreateImage(_), Phase::Copying) => {
                Some((&["image_snapshot_pending"], "image_snapshot"))
            }
            (InPlaceChange::CreateImage(_), Phase::Sending) => {
                Some((&["image_snapshot_pending", "image_snapshot"], "image_uploading"))
            }
            (InPlaceChange::CreateBackup(..), Phase::Copying) => {
                Some((&["image_backup"], "image_snapshot"))
            }
            (InPlaceChange::CreateBackup(..), Phase::Sending) => {
                Some((&["image_backup", "image_snapshot"], "image_uploading"))
            }
            (InPlaceChange::Shelve(_), Phase::Copying) => {
                Some((&["shelving"], "shelving_image_pending_upload"))
            }
            (InPlaceChange::Shelve(_), Phase::Sending) => {
                Some((&["shelving", "shelving_image_pending_upload"], "shelving_image_uploading"))
            }
            (InPlaceChange::Rebuild, Phase::Spawning) => {
                Some((&["rebuilding"], "rebuild_spawning"))
            }
            (
                InPlaceChange::CreateImage(_)
                | InPlaceChange::CreateBackup(..)
                | InPlaceChange::Shelve(_),
                Phase::Spawning,
            )
            | (InPlaceChange::Rebuild, Phase::Copying | Phase::Sending)
            | (
                InPlaceChange::Pause
                | InPlaceChange::Unpause
                | InPlaceChange::Suspend
                | InPlaceChange::Resume
                | InPlaceChange::Rescue
                | InPlaceChange::Unrescue
                | InPlaceChange::CrashDump
                | InPlaceChange::Unshelve
                | InPlaceChange::SoftDelete
                | InPlaceChange::Restore,
                Phase::Copying | Phase::Sending | Phase::Spawning,
            ) => None,
        },
        (Operation::Resize(_) | Operation::Migrate(_), Phase::Spawning) => {
            Some((&["resize_migrated"], "resize_finish"))
        }
        (Operation::Resize(_) | Operation::Migrate(_), Phase::Copying | Phase::Sending)
        | (
            Operation::Create(_)
            | Operation::Delete(_)
            | Operation::Power(_)
            | Operation::Offload(_)
            | Operation::Unshelve(_)
            | Operation::Revert(_)
            | Operation::Evacuate(_)
            | Operation::LiveMigration(_)
            | Operation::Recorded(_),
            Phase::Copying | Phase::Sending | Phase::Spawning,
        ) => None,
    }
}

pub(super) fn working(
    tx: &mut Tx<'_>,
    open: &OpenOperation,
    phase: Phase,
    now: i64,
) -> Result<(), Error> {
    let Some((before, task)) = next_task(&open.state, phase) else { return Ok(()) };
    let Some(server) = servers::find(tx, open.row.subject)? else { return Ok(()) };
    let counts = server.task_state.as_deref().is_some_and(|task| before.contains(&task));
    if counts { servers::set_task(tx, server.id, Some(task), now) } else { Ok(()) }
}

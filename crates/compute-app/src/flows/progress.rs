//! Translates the phase that a host reports into the server's task state. A phase never advances an operation: the
//! flows do not depend on these reports.

use jiff::Timestamp;
use kilonova_compute_db::servers::{self, TaskState};
use kilonova_node_api::Phase;
use kilonova_store::Tx;

use super::journal::OpenOperation;
use super::operation::{InPlaceChange, Operation};
use crate::Error;

/// The task states in which the phase applies, and the resulting task state.
fn next_task(state: &Operation, phase: Phase) -> Option<(&'static [TaskState], TaskState)> {
    match (state, phase) {
        (Operation::InPlace(in_place), _) => match (&in_place.change, phase) {
            (InPlaceChange::CreateImage(_), Phase::Copying) => {
                Some((&[TaskState::ImageSnapshotPending], TaskState::ImageSnapshot))
            }
            (InPlaceChange::CreateImage(_), Phase::Sending) => Some((
                &[TaskState::ImageSnapshotPending, TaskState::ImageSnapshot],
                TaskState::ImageUploading,
            )),
            (InPlaceChange::CreateBackup(..), Phase::Copying) => {
                Some((&[TaskState::ImageBackup], TaskState::ImageSnapshot))
            }
            (InPlaceChange::CreateBackup(..), Phase::Sending) => Some((
                &[TaskState::ImageBackup, TaskState::ImageSnapshot],
                TaskState::ImageUploading,
            )),
            (InPlaceChange::Shelve(_), Phase::Copying) => {
                Some((&[TaskState::Shelving], TaskState::ShelvingImagePendingUpload))
            }
            (InPlaceChange::Shelve(_), Phase::Sending) => Some((
                &[TaskState::Shelving, TaskState::ShelvingImagePendingUpload],
                TaskState::ShelvingImageUploading,
            )),
            (InPlaceChange::Rebuild, Phase::Spawning) => {
                Some((&[TaskState::Rebuilding], TaskState::RebuildSpawning))
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
                | InPlaceChange::Guest(_)
                | InPlaceChange::Unshelve
                | InPlaceChange::SoftDelete
                | InPlaceChange::Restore,
                Phase::Copying | Phase::Sending | Phase::Spawning,
            ) => None,
        },
        (Operation::Resize(_) | Operation::Migrate(_), Phase::Spawning) => {
            Some((&[TaskState::ResizeMigrated], TaskState::ResizeFinish))
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
    now: Timestamp,
) -> Result<(), Error> {
    let Some((before, task)) = next_task(&open.state, phase) else { return Ok(()) };
    let Some(server) = servers::find(tx, open.row.subject)? else { return Ok(()) };
    let counts = server.task_state.is_some_and(|task| before.contains(&task));
    if counts { Ok(servers::set_task(tx, server.id, Some(task), now)?) } else { Ok(()) }
}

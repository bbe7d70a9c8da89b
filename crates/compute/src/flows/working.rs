//! What a host is at becomes the server's task, as clients see it. It moves no operation: a host that
//! says nothing of it does no harm.

use kilonova_flow::Operation;
use kilonova_node_api::Phase;
use kilonova_store::Tx;

use crate::Error;
use crate::db::servers;

/// Kind of the operation, what the host is at, the tasks before, and the task then.
const TASKS: &[(&str, Phase, &[&str], &str)] = &[
    ("createImage", Phase::Copying, &["image_snapshot_pending"], "image_snapshot"),
    (
        "createImage",
        Phase::Sending,
        &["image_snapshot_pending", "image_snapshot"],
        "image_uploading",
    ),
    ("createBackup", Phase::Copying, &["image_backup"], "image_snapshot"),
    ("createBackup", Phase::Sending, &["image_backup", "image_snapshot"], "image_uploading"),
    ("shelve", Phase::Copying, &["shelving"], "shelving_image_pending_upload"),
    (
        "shelve",
        Phase::Sending,
        &["shelving", "shelving_image_pending_upload"],
        "shelving_image_uploading",
    ),
    ("rebuild", Phase::Spawning, &["rebuilding"], "rebuild_spawning"),
    ("resize", Phase::Spawning, &["resize_migrated"], "resize_finish"),
    ("migrate", Phase::Spawning, &["resize_migrated"], "resize_finish"),
];

pub(super) fn working(
    tx: &mut Tx<'_>,
    operation: &Operation,
    phase: Phase,
    now: i64,
) -> Result<(), Error> {
    let fits = |row: &&(&str, Phase, &[&str], &str)| row.0 == operation.kind && row.1 == phase;
    let Some((_, _, before, task)) = TASKS.iter().find(fits) else { return Ok(()) };
    let Some(server) = servers::find(tx, operation.subject)? else { return Ok(()) };
    match server.task_state.as_deref() {
        Some(now_at) if before.contains(&now_at) => {
            servers::set_task(tx, server.id, Some(task), now)
        }
        _ => Ok(()),
    }
}

//! Deletes snapshots without an image: those of a request that failed, or whose controller died.
//! Rows outlive every crash, and each call may be made twice.

use jiff::SignedDuration;
use kilonova_cinder::{Call, Error as CallError};
use kilonova_compute_db::volume_snapshots::{self as rows, SnapshotState, VolumeSnapshot};
use kilonova_store::Tx;
use kilonova_wire::time;

use super::{LATE, MADE_FOR};
use crate::volumes::Volumes;
use crate::{Compute, Error};

/// Maximum pause between two attempts.
const LONGEST: SignedDuration = SignedDuration::from_mins(5);

/// Processes everything that is due, once.
///
/// # Errors
/// Store errors only.
pub async fn run(compute: Compute) -> Result<(), Error> {
    let Some(volumes) = compute.volumes.clone() else { return Ok(()) };
    let due = |tx: &mut Tx<'_>| Ok::<_, Error>(rows::due(tx, time::now())?);
    for row in compute.store.read(due).await? {
        let id = row.id;
        match row.state {
            SnapshotState::Making => {
                tracing::warn!(server = %row.server, image = %row.image, "the image of a volume-backed server was not completed; its snapshots are deleted");
                let discard = move |tx: &mut Tx<'_>| {
                    // Its last call may still arrive.
                    Ok::<_, Error>(rows::discard(tx, row.image, time::after(time::now(), LATE))?)
                };
                compute.store.write(discard).await?;
            }
            SnapshotState::Unwanted => {
                let Err(error) = delete(&volumes, &row).await else {
                    compute.store.write(move |tx| rows::forget(tx, id)).await?;
                    continue;
                };
                tracing::warn!(server = %row.server, volume = %row.volume, %error, "cannot delete an unwanted snapshot of a volume; retrying");
                let due = time::after(time::now(), pause(row.attempts));
                compute.store.write(move |tx| rows::postpone(tx, id, due)).await?;
                // The other rows wait until Cinder answers.
                if error.refused().is_none() {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// Deletes a snapshot. A snapshot without a known id is looked up by its metadata.
async fn delete(volumes: &Volumes, row: &VolumeSnapshot) -> Result<(), CallError> {
    if let Some(snapshot) = row.snapshot {
        return volumes
            .bounded(volumes.client.delete_snapshot(Call::OWN, snapshot))
            .await
            .map(drop);
    }
    let value = row.id.to_string();
    let found = volumes.client.snapshots_with(Call::OWN, MADE_FOR, &value);
    for one in volumes.bounded(found).await? {
        // A Cinder that does not support the filter lists all snapshots.
        if one.metadata.get(MADE_FOR) == Some(&value) {
            volumes.bounded(volumes.client.delete_snapshot(Call::OWN, one.id)).await?;
        }
    }
    Ok(())
}

/// The pause before the next attempt: one second at first, doubled after each attempt.
fn pause(attempts: i64) -> SignedDuration {
    let seconds = 1_i64 << attempts.clamp(0, 10);
    SignedDuration::from_secs(seconds).min(LONGEST)
}

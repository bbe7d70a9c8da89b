//! Receives the data of a snapshot from the host that took it.

use std::path::PathBuf;

use kilonova_compute_app::images::SnapshotState;
use kilonova_compute_app::{Compute, Error, batch};
use kilonova_compute_db::documents;
use kilonova_ids::{HostName, ImageId};
use kilonova_image::ImageData;
use kilonova_node_api::{Desired, DiskFormat, Refusal, Verb};
use kilonova_wire::time;

use super::{not_transferred, unavailable};

/// Stores the data of a snapshot from a file on this machine.
pub(super) async fn store_file(
    compute: &Compute,
    host: &HostName,
    epoch: i64,
    image: ImageId,
    format: DiskFormat,
    file: PathBuf,
) -> Result<(), Refusal> {
    let bytes = compute.images.file(file).await.map_err(not_transferred)?;
    store_stream(compute, host, epoch, image, format, || bytes).await
}

/// Stores the streamed data of a snapshot. Accepts only an image that a document of the host names as a snapshot.
pub(crate) async fn store_stream<D: Into<ImageData>>(
    compute: &Compute,
    host: &HostName,
    epoch: i64,
    image: ImageId,
    format: DiskFormat,
    bytes: impl FnOnce() -> D,
) -> Result<(), Refusal> {
    if let Some(entry) = compute.fleet.by_name(host) {
        entry.record_seen(time::now());
    }
    let images = compute.images.clone();
    let name = host.to_owned();
    let state = compute
        .store
        .read(move |tx| {
            let (newest, documents) = documents::containing(tx, &name, image)?;
            batch::check_session(&name, newest, epoch)?;
            let is_requested = documents.into_iter().any(|one| {
                matches!(one.desired, Desired::Present(domain)
                    if matches!(domain.verb, Some((_, Verb::Snapshot { image: id })) if id == image))
            });
            let found = images.snapshot(tx, image)?;
            Ok::<_, Error>(found.filter(|_| is_requested))
        })
        .await
        .map_err(unavailable)?;
    match state {
        None => return Err(Refusal::Rejected(format!("image {image} is gone"))),
        Some(SnapshotState::Complete) => return Ok(()),
        Some(SnapshotState::Expected) => {}
    }
    let store = &compute.store;
    compute
        .images
        .receive(store, image, format.as_str(), host, bytes)
        .await
        .map_err(not_transferred)
}

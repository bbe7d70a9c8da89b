//! Receives the data of a snapshot from the host that took it.

use std::path::PathBuf;

use kilonova_compute_app::{Compute, Error, batch};
use kilonova_compute_db::documents;
use kilonova_ids::{HostName, ImageId};
use kilonova_image::{Error as Failure, ImageData};
use kilonova_node_api::{Desired, DiskFormat, Refusal, Verb};
use kilonova_wire::time;

use super::unavailable;

/// Stores a file of this machine.
pub(super) async fn store_file(
    compute: &Compute,
    host: &HostName,
    epoch: i64,
    image: ImageId,
    format: DiskFormat,
    file: PathBuf,
) -> Result<(), Refusal> {
    let Some(images) = &compute.images else { return Err(no_images()) };
    let opened = images.file(file.clone()).await;
    let bytes = opened.map_err(|e| Refusal::Rejected(format!("{}: {e}", file.display())))?;
    store_stream(compute, host, epoch, image, format, || bytes).await
}

fn no_images() -> Refusal {
    Refusal::Rejected("this control plane has no image service".into())
}

/// Stores streamed data. Accepts only images that a document of the host requests.
pub(crate) async fn store_stream<D: Into<ImageData>>(
    compute: &Compute,
    host: &HostName,
    epoch: i64,
    image: ImageId,
    format: DiskFormat,
    bytes: impl FnOnce() -> D,
) -> Result<(), Refusal> {
    if let Some(entry) = compute.fleet.by_name(host) {
        entry.seen(time::now());
    }
    let Some(images) = &compute.images else { return Err(no_images()) };
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
            let found = kilonova_image::find(tx, image)?.filter(|_| is_requested);
            Ok::<_, Error>(found.map(|image| image.status))
        })
        .await
        .map_err(unavailable)?;
    match state {
        None => return Err(Refusal::Rejected(format!("image {image} is gone"))),
        Some(kilonova_image::Status::Active) => return Ok(()),
        Some(_) => {}
    }
    match images.receive_snapshot(image, format.as_str(), host, bytes).await {
        Ok(()) => Ok(()),
        Err(
            error @ (Failure::Conflict(_)
            | Failure::Interrupted(_)
            | Failure::TooSlow(_)
            | Failure::Busy(_)
            | Failure::Data(_)
            | Failure::Gone(_)
            | Failure::Threads(_)
            | Failure::Store(_)),
        ) => Err(Refusal::Unavailable(error.to_string())),
        Err(error) => Err(Refusal::Rejected(error.to_string())),
    }
}

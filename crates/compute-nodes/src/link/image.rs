//! Serves image data to a host in chunks, only for images that the host's documents and orders name.
//! A host must not read other images.

use kilonova_compute_app::{Compute, Error as Failure, batch};
use kilonova_ids::{HostName, ImageId};
use kilonova_node_api::{Chunk, Desired, Domain, Order, Refusal, Task, Verb};

use super::unavailable;

/// Maximum size of a chunk in bytes.
const MAX_CHUNK: usize = 4 * 1024 * 1024;

pub(super) async fn image(
    compute: &Compute,
    host: &HostName,
    epoch: i64,
    image: ImageId,
    offset: u64,
) -> Result<Chunk, Refusal> {
    let Some(images) = &compute.images else {
        return Err(Refusal::Rejected("this control plane has no image service".into()));
    };
    let name = host.to_owned();
    let is_named = compute
        .store
        .read(move |tx| {
            let batch = batch::of_session(tx, &name, epoch, 0)?;
            let in_documents = batch.documents.iter().any(|document| match &document.desired {
                Desired::Present(domain) => uses(domain, image),
                Desired::Absent => false,
            });
            Ok::<_, Failure>(
                in_documents || batch.orders.iter().any(|order| programs(order, image)),
            )
        })
        .await
        .map_err(unavailable)?;
    if !is_named {
        tracing::warn!(%host, %image, "refused an image that no document or order of the host names");
        return Err(Refusal::Rejected(format!("nothing on host {host} needs image {image}")));
    }
    use kilonova_image::{DataRange, Error};
    match images.read(image, offset, MAX_CHUNK).await {
        Ok(DataRange { size, format, hash, bytes }) => {
            Ok(Chunk { size, format, sha512: hash, bytes })
        }
        Err(error @ (Error::NotFound(_) | Error::Conflict(_))) => {
            Err(Refusal::Rejected(error.to_string()))
        }
        Err(error) => Err(Refusal::Unavailable(error.to_string())),
    }
}

/// True if the guest boots from the image, uses it as kernel or RAM disk, or snapshots into it.
fn uses(domain: &Domain, image: ImageId) -> bool {
    let rescue = domain.config.rescue.as_ref();
    let machines = [Some(&domain.config.machine), rescue.map(|rescue| &rescue.machine)];
    let parts = machines.into_iter().flatten().flat_map(|m| [m.kernel, m.ramdisk]);
    let disks = [domain.config.boot.image, rescue.and_then(|rescue| rescue.image)];
    let snapshot = match domain.verb {
        Some((_, Verb::Snapshot { image })) => Some(image),
        Some((_, Verb::RebootSoft | Verb::RebootHard | Verb::Guest(_))) | None => None,
    };
    parts.chain(disks).chain([snapshot]).any(|named| named == Some(image))
}

/// True if the order programs a device with the image.
fn programs(order: &Order, image: ImageId) -> bool {
    match &order.task {
        Task::Program { image: named, .. } => *named == image,
        Task::Clean { .. } => false,
    }
}

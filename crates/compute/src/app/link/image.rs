//! Image data for a node, in pieces: only for images that its documents and orders name. A host
//! must not read other tenants' images.

use kilonova_ids::ImageId;
use kilonova_node_api::{Chunk, Desired, Domain, Order, Refusal, Task, Verb};

use super::unavailable;
use crate::db::documents;
use crate::{Compute, Error as Failure};

/// Maximum size of one response.
const PIECE: usize = 4 * 1024 * 1024;

pub(super) async fn image(
    compute: &Compute,
    host: &str,
    epoch: i64,
    image: ImageId,
    offset: u64,
) -> Result<Chunk, Refusal> {
    let entry = compute
        .fleet
        .by_name(host)
        .ok_or_else(|| Refusal::Rejected(format!("host {host} has not registered")))?;
    if entry.epoch() != epoch {
        return Err(Refusal::Fenced);
    }
    let Some(images) = &compute.images else {
        return Err(Refusal::Rejected("this control plane has no image service".into()));
    };
    let name = host.to_owned();
    let wanted = compute
        .store
        .read(move |tx| {
            let told = documents::since(tx, &name, 0)?;
            let named = told.documents.iter().any(|document| match &document.desired {
                Desired::Present(domain) => needs(domain, image),
                Desired::Absent => false,
            });
            Ok::<_, Failure>(named || told.orders.iter().any(|order| loads(order, image)))
        })
        .await
        .map_err(unavailable)?;
    if !wanted {
        tracing::warn!(host, %image, "refused a host an image that no document or order of it names");
        return Err(Refusal::Rejected(format!("nothing on host {host} needs image {image}")));
    }
    use kilonova_image::{Error, Piece};
    match images.read(image, offset, PIECE).await {
        Ok(Piece { size, format, hash, bytes }) => Ok(Chunk { size, format, sha512: hash, bytes }),
        Err(error @ (Error::NotFound(_) | Error::Conflict(_))) => {
            Err(Refusal::Rejected(error.to_string()))
        }
        Err(error) => Err(Refusal::Unavailable(error.to_string())),
    }
}

/// True if the guest uses the image in any way.
fn needs(domain: &Domain, image: ImageId) -> bool {
    let rescue = domain.rescue.as_ref();
    let machines = [Some(&domain.machine), rescue.map(|rescue| &rescue.machine)];
    let parts = machines.into_iter().flatten().flat_map(|m| [m.kernel, m.ramdisk]);
    let disks = [domain.boot.image, rescue.and_then(|rescue| rescue.image)];
    let sent = match domain.verb {
        Some((_, Verb::Snapshot { image })) => Some(image),
        Some((_, Verb::RebootSoft | Verb::RebootHard | Verb::CrashDump)) | None => None,
    };
    parts.chain(disks).chain([sent]).any(|named| named == Some(image))
}

fn loads(order: &Order, image: ImageId) -> bool {
    match &order.task {
        Task::Program { image: named, .. } => *named == image,
        Task::Clean { .. } => false,
    }
}

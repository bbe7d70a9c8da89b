//! Serves image data to a host in chunks. A host may read only images that its documents and orders name.

use kilonova_accelerator::ledger::orders;
use kilonova_compute_app::{Compute, Error as Failure, batch};
use kilonova_compute_db::documents;
use kilonova_ids::{HostName, ImageId};
use kilonova_image::DataRange;
use kilonova_node_api::{Chunk, Desired, Domain, Refusal, Verb};

use super::{not_transferred, unavailable};

/// Maximum size of a chunk in bytes.
const MAX_CHUNK: usize = 4 * 1024 * 1024;

pub(super) async fn image(
    compute: &Compute,
    host: &HostName,
    epoch: i64,
    image: ImageId,
    offset: u64,
) -> Result<Chunk, Refusal> {
    let name = host.to_owned();
    let is_named = compute
        .store
        .read(move |tx| {
            let (newest, documents) = documents::containing(tx, &name, image)?;
            batch::check_session(&name, newest, epoch)?;
            let in_documents = documents.iter().any(|document| match &document.desired {
                Desired::Present(domain) => uses(domain, image),
                Desired::Absent => false,
            });
            Ok::<_, Failure>(in_documents || orders::program_with(tx, &name, image)?)
        })
        .await
        .map_err(unavailable)?;
    if !is_named {
        tracing::warn!(%host, %image, "refused an image that no document or order of the host names");
        return Err(Refusal::Rejected(format!("nothing on host {host} needs image {image}")));
    }
    let DataRange { size, format, hash, bytes } =
        compute.images.read(host, image, offset, MAX_CHUNK).await.map_err(not_transferred)?;
    Ok(Chunk { size, format, sha512: hash, bytes })
}

/// True if the guest boots or is rescued from the image, uses it as kernel or RAM disk, or snapshots into it.
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

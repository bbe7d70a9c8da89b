//! The bytes of an image for a node, piece by piece.

use kilonova_ids::ImageId;
use kilonova_node_api::{Chunk, Refusal};

use crate::Compute;

/// Bytes of one answer.
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
    use kilonova_image::{Error, Piece};
    match images.read(image, offset, PIECE).await {
        Ok(Piece { size, format, hash, bytes }) => Ok(Chunk { size, format, sha512: hash, bytes }),
        Err(error @ (Error::NotFound(_) | Error::Conflict(_))) => {
            Err(Refusal::Rejected(error.to_string()))
        }
        Err(error) => Err(Refusal::Unavailable(error.to_string())),
    }
}

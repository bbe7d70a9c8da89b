//! `createImage` and `createBackup`: the host uploads the server's disk to an image. The image exists
//! before the upload begins.

use jiff::Timestamp;
use kilonova_compute_db::servers::Server;
use kilonova_ids::ImageId;
use kilonova_store::Tx;
use kilonova_wire::Context;

use super::{FlowContext, ServerCommand};
use crate::actions::ServerAction;
use crate::flows::operation::InPlaceChange;
use crate::images::{self, PreparedImage, Snapshot, SnapshotState};
use crate::{Compute, Error, states};

/// Begins `createImage` or `createBackup` and returns the image's id.
///
/// # Errors
/// 409 with Nova's message when the server's state does not allow it; 503 without an image service.
pub fn snapshot(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    request: &Snapshot,
    prepared: PreparedImage,
    now: Timestamp,
) -> Result<ImageId, Error> {
    let action = match request.backup {
        Some(_) => ServerAction::CreateBackup,
        None => ServerAction::CreateImage,
    };
    states::allow(context, server, action)?;
    let words = match request.backup {
        Some(_) => "Backup is not supported for volume-backed instances.",
        // The caller creates images of volumes itself.
        None => "Images of volumes are not supported: this cloud has no volumes.",
    };
    states::refuse_volume_root(server, words)?;
    let image = images::reserve(tx, compute, context, server, request, prepared, now)?;
    let command = match &request.backup {
        Some(backup) => ServerCommand::CreateBackup(image, backup.clone()),
        None => ServerCommand::CreateImage(image),
    };
    super::begin(tx, compute, context, server, &command, now)?;
    Ok(image)
}

/// True if the change has no image, or its image has been uploaded. The upload is attempted once and never retried
/// after a crash of either side, so an incomplete image is the only evidence of failure. If the user has deleted the
/// image in the meantime, only a shelve fails, because it needs the image later.
pub(super) fn is_uploaded(
    tx: &mut Tx<'_>,
    compute: &Compute,
    change: &InPlaceChange,
) -> Result<bool, Error> {
    let Some(image) = change.image() else { return Ok(true) };
    Ok(match compute.images.snapshot(tx, image)? {
        Some(state) => state == SnapshotState::Complete,
        None => !matches!(change, InPlaceChange::Shelve(_)),
    })
}

/// Completes a change that has created its image.
pub(super) fn completed(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    change: &InPlaceChange,
) -> Result<(), Error> {
    let backup = match change {
        InPlaceChange::CreateBackup(_, backup) => Some(backup),
        _ => None,
    };
    match change.image() {
        Some(image) => images::completed(tx, ctx.compute, ctx.server.id, image, backup),
        None => Ok(()),
    }
}

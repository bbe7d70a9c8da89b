//! Images of a server's disk. The image's row is written in the transaction of the request, before any
//! bytes.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kilonova_compute_db::servers::Server;
use kilonova_ids::ImageId;
use kilonova_image::{ImageRecord, Visibility};
use kilonova_store::Tx;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{Context, Refusal};

use super::{FlowContext, ServerCommand};
use crate::actions::ServerAction;
use crate::flows::operation::{Backup, InPlaceChange};
use crate::{Compute, Error, states};

/// Images of a project that a rotation looks at.
const MOST: i64 = 10_000;

/// The image that a request asks for.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Its name.
    pub name: String,
    /// The user's metadata.
    pub metadata: BTreeMap<String, String>,
    /// The rotation of a backup; `None` for an image.
    pub backup: Option<Backup>,
}

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
    now: Timestamp,
) -> Result<ImageId, Error> {
    let action = match request.backup {
        Some(_) => ServerAction::CreateBackup,
        None => ServerAction::CreateImage,
    };
    states::allow(context, server, action)?;
    let image = reserve(tx, compute, context, server, request, now)?;
    let command = match &request.backup {
        Some(backup) => ServerCommand::CreateBackup(image, backup.clone()),
        None => ServerCommand::CreateImage(image),
    };
    super::begin(tx, compute, context, server, &command, now)?;
    Ok(image)
}

/// Reserves an image for the server's disk. It belongs to the caller's project and inherits the
/// properties of the server's own image. The host sets its disk format with the bytes.
pub(super) fn reserve(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    request: &Snapshot,
    now: Timestamp,
) -> Result<ImageId, Error> {
    let Some(images) = &compute.images else {
        let why = "This control plane has no image service, so no image can be made.";
        return Err(Refusal::new(Kind::Unavailable, why).into());
    };
    let base = match server.spec.image {
        Some(base) => kilonova_image::find(tx, base)?,
        None => None,
    };
    let owner =
        if context.project_id.is_empty() { &server.project_id } else { &context.project_id };
    match images.room_for_one(tx, owner) {
        Err(kilonova_image::Error::TooLarge(why)) => return Err(Refusal::forbidden(why).into()),
        room => room?,
    }
    let mut image = ImageRecord::new(ImageId::new_v4(), owner.clone(), now);
    image.name = Some(request.name.clone());
    image.visibility = Visibility::Private;
    image.container_format = Some("bare".to_owned());
    image.min_disk = server.spec.flavor.disk;
    if let Some(base) = base {
        image.min_ram = base.min_ram;
        image.min_disk = image.min_disk.max(base.min_disk);
        image.properties = base.properties;
    }
    let kind = if request.backup.is_some() { "backup" } else { "snapshot" };
    let mut set = |key: &str, value: String| image.properties.insert(key.to_owned(), value);
    set("image_type", kind.to_owned());
    set("instance_uuid", server.id.to_string());
    set("user_id", context.user_id.clone());
    if let Some(base) = server.spec.image {
        set("base_image_ref", base.to_string());
    }
    // Nova lets the caller's metadata replace these properties, but not a backup's type.
    image.properties.extend(request.metadata.clone());
    if let Some(backup) = &request.backup {
        image.properties.insert("backup_type".to_owned(), backup.backup_type.clone());
    }
    kilonova_image::reserve(tx, &image)?;
    Ok(image.id)
}

/// Removes an image that will never be uploaded, or that nobody needs any more.
pub(super) fn discard(tx: &mut Tx<'_>, compute: &Compute, image: ImageId) -> Result<(), Error> {
    Ok(kilonova_image::discard(tx, compute.images.as_ref(), image)?)
}

/// True if the image of the change, if it makes one, has its bytes. The upload is attempted once and
/// never retried after a crash of either side, so a non-active image is the only evidence of failure.
/// An image that its user deleted meanwhile fails only a shelve, which boots from it later.
pub(super) fn is_uploaded(tx: &mut Tx<'_>, change: &InPlaceChange) -> Result<bool, Error> {
    let Some(image) = change.image() else { return Ok(true) };
    Ok(match kilonova_image::find(tx, image)? {
        Some(image) => image.status == kilonova_image::Status::Active,
        None => !matches!(change, InPlaceChange::Shelve(_)),
    })
}

/// Discards the oldest backups of a type beyond its rotation.
pub(super) fn rotate(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    change: &InPlaceChange,
) -> Result<(), Error> {
    let InPlaceChange::CreateBackup(Some(image), Backup { backup_type, rotation }) = change else {
        return Ok(());
    };
    let Some(newest) = kilonova_image::find(tx, *image)? else { return Ok(()) };
    let server = ctx.server.id.to_string();
    let mut backups = kilonova_image::of_owner(tx, &newest.owner, MOST)?;
    backups.retain(|image| {
        let has = |key: &str, value: &str| image.properties.get(key).is_some_and(|is| is == value);
        has("image_type", "backup")
            && has("instance_uuid", &server)
            && has("backup_type", backup_type)
            && !image.protected
    });
    backups.sort_by_key(|image| std::cmp::Reverse(image.created_at));
    let kept = usize::try_from(*rotation).unwrap_or_default();
    for old in backups.iter().skip(kept) {
        discard(tx, ctx.compute, old.id)?;
    }
    Ok(())
}

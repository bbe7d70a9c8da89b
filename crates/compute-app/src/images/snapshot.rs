//! Images of a server's disk, from the request to the upload of their bytes. In our own service the image's row is
//! written in the transaction of the request; an image in Glance has been created before that transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kilonova_compute_db::glance_images;
use kilonova_compute_db::servers::Server;
use kilonova_ids::{ImageId, ServerId};
use kilonova_image::{ImageRecord, Visibility};
use kilonova_store::Tx;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{Context, Refusal, time};

use super::PreparedImage;
use crate::flows::operation::Backup;
use crate::{Compute, Error};

/// Maximum number of images of a project that a rotation examines.
const MOST: i64 = 10_000;

/// The requested image.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Its name.
    pub name: String,
    /// The user's metadata.
    pub metadata: BTreeMap<String, String>,
    /// The rotation of a backup; `None` for an image.
    pub backup: Option<Backup>,
}

/// Reserves an image for the server's disk. It belongs to the caller's project and inherits the properties of the
/// server's own image. The host sends its disk format together with the bytes.
pub(crate) fn reserve(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    request: &Snapshot,
    prepared: PreparedImage,
    now: Timestamp,
) -> Result<ImageId, Error> {
    if let PreparedImage::Created(image) = prepared {
        if glance_images::adopt(tx, image)? {
            return Ok(image);
        }
        let why = "The image was not created in time. Try again.";
        return Err(Refusal::new(Kind::Unavailable, why).with_retry_after(1).into());
    }
    let Some(images) = compute.images.own() else {
        let why = "This controller has no image service, so no image can be created.";
        return Err(Refusal::new(Kind::Unavailable, why).into());
    };
    let base = match server.spec.image {
        Some(base) => kilonova_image::find(tx, base)?,
        None => None,
    };
    let owner = super::owner(context, server);
    match images.check_image_quota(tx, owner) {
        Err(kilonova_image::Error::TooLarge(why)) => return Err(Refusal::forbidden(why).into()),
        room => room?,
    }
    let mut image = ImageRecord::new(ImageId::new_v4(), owner.to_owned(), now);
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
    for (key, value) in server.spec.creator.snapshot_properties() {
        set(key, value);
    }
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

/// Removes an image that will never be uploaded or is no longer needed.
pub(crate) fn discard(tx: &mut Tx<'_>, compute: &Compute, image: ImageId) -> Result<(), Error> {
    if let Some(glance) = compute.images.glance() {
        glance_images::discard(tx, image, time::now())?;
        let work = Arc::clone(&glance.work);
        tx.on_commit(move || work.notify_one());
        return Ok(());
    }
    Ok(kilonova_image::discard(tx, compute.images.own(), image)?)
}

/// Releases a complete image from its operation. For a backup, discards the oldest backups beyond its rotation.
pub(crate) fn completed(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    image: ImageId,
    backup: Option<&Backup>,
) -> Result<(), Error> {
    if let Some(glance) = compute.images.glance() {
        return match backup {
            Some(Backup { backup_type, rotation }) => {
                glance_images::rotate(tx, image, backup_type, *rotation, time::now())?;
                let work = Arc::clone(&glance.work);
                tx.on_commit(move || work.notify_one());
                Ok(())
            }
            None => Ok(glance_images::forget(tx, image)?),
        };
    }
    match backup {
        Some(backup) => rotate(tx, compute, server, image, backup),
        None => Ok(()),
    }
}

/// Discards the oldest backups in our own service. `image` is the newest one.
fn rotate(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    image: ImageId,
    backup: &Backup,
) -> Result<(), Error> {
    let Some(newest) = kilonova_image::find(tx, image)? else { return Ok(()) };
    let server = server.to_string();
    let mut backups = kilonova_image::of_owner(tx, &newest.owner, MOST)?;
    backups.retain(|image| {
        let has = |key: &str, value: &str| image.properties.get(key).is_some_and(|is| is == value);
        has("image_type", "backup")
            && has("instance_uuid", &server)
            && has("backup_type", &backup.backup_type)
            && !image.protected
    });
    backups.sort_by_key(|image| std::cmp::Reverse(image.created_at));
    let kept = usize::try_from(backup.rotation).unwrap_or_default();
    for old in backups.iter().skip(kept) {
        discard(tx, compute, old.id)?;
    }
    Ok(())
}

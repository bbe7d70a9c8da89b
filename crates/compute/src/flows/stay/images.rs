//! Images of a server's disk: the row before the bytes, in the transaction that asks for them.

use std::collections::BTreeMap;

use kilonova_ids::ImageId;
use kilonova_image::{ImageRecord, Visibility};
use kilonova_store::Tx;
use kilonova_wire::{Context, Fault};

use super::course::Course;
use super::{Scene, Wish};
use crate::app::states;
use crate::db::servers::Server;
use crate::{Compute, Error};

/// Images of a project that are looked at when old backups go.
const MOST: i64 = 10_000;

/// An image that is asked for.
#[derive(Debug, Clone, Default)]
pub struct Picture {
    /// Its name.
    pub name: String,
    /// What the user says of it.
    pub metadata: BTreeMap<String, String>,
    /// Of a backup: its type, and how many of them are to be kept.
    pub backup: Option<(String, i64)>,
}

/// Begins `createImage` or `createBackup` and returns the image's id.
///
/// # Errors
/// 409 in Nova's words when the server is not in a state for it; 503 without an image service.
pub fn take(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    picture: &Picture,
    now: i64,
) -> Result<ImageId, Error> {
    let rule = if picture.backup.is_some() { "createBackup" } else { "createImage" };
    states::check(context, server, rule)?;
    let image = reserve(tx, compute, context, server, picture, now)?;
    let wish = match picture.backup {
        Some(_) => Wish::CreateBackup(image),
        None => Wish::CreateImage(image),
    };
    let course = Course { image: Some(image), backup: picture.backup.clone(), ..Course::default() };
    super::begin(tx, compute, context, server, &wish, course, now)?;
    Ok(image)
}

/// A new image for the server's disk. It belongs to whoever asks for it, and says of itself what the
/// server's own image does. Of which format it is, its host says with the bytes.
pub(super) fn reserve(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    picture: &Picture,
    now: i64,
) -> Result<ImageId, Error> {
    let Some(images) = &compute.images else {
        let why = "This control plane has no image service, so no image can be made.";
        return Err(Fault::new(http::StatusCode::SERVICE_UNAVAILABLE, why).into());
    };
    let base = match server.spec.image {
        Some(base) => kilonova_image::find(tx, base)?,
        None => None,
    };
    let owner =
        if context.project_id.is_empty() { &server.project_id } else { &context.project_id };
    match images.room_for_one(tx, owner) {
        Err(kilonova_image::Error::TooLarge(why)) => return Err(Fault::forbidden(why).into()),
        room => room?,
    }
    let mut image = ImageRecord::new(ImageId::new_v4(), owner.clone(), now);
    image.name = Some(picture.name.clone());
    image.visibility = Visibility::Private;
    image.container_format = Some("bare".to_owned());
    image.min_disk = server.spec.flavor.disk;
    if let Some(base) = base {
        image.min_ram = base.min_ram;
        image.min_disk = image.min_disk.max(base.min_disk);
        image.properties = base.properties;
    }
    image.properties.extend(picture.metadata.clone());
    let kind = if picture.backup.is_some() { "backup" } else { "snapshot" };
    let mut say = |key: &str, value: String| image.properties.insert(key.to_owned(), value);
    say("image_type", kind.to_owned());
    say("instance_uuid", server.id.to_string());
    say("user_id", server.user_id.clone());
    if let Some(base) = server.spec.image {
        say("base_image_ref", base.to_string());
    }
    if let Some((backup_type, _)) = &picture.backup {
        say("backup_type", backup_type.clone());
    }
    kilonova_image::reserve(tx, &image)?;
    Ok(image.id)
}

/// Removes an image that will not come, or that is of no use any more.
pub(super) fn discard(tx: &mut Tx<'_>, compute: &Compute, image: ImageId) -> Result<(), Error> {
    Ok(kilonova_image::discard(tx, compute.images.as_ref(), image)?)
}

/// Whether the image has its bytes, or none is awaited. A host that has tried does not try again when
/// it, or we, have died since: that it failed is then seen by the image alone. An image that the
/// user has deleted meanwhile is missed only by a server that is to be made from it again.
pub(super) fn has_come(tx: &mut Tx<'_>, scene: &Scene<'_>) -> Result<bool, Error> {
    let Some(image) = scene.course.image else { return Ok(true) };
    Ok(match kilonova_image::find(tx, image)? {
        Some(image) => image.status == "active",
        None => scene.operation.kind != "shelve",
    })
}

/// A backup is there: those of its type that are too many go, the oldest first.
pub(super) fn rotate(tx: &mut Tx<'_>, scene: &Scene<'_>) -> Result<(), Error> {
    let (Some((backup_type, kept)), Some(image)) = (&scene.course.backup, scene.course.image)
    else {
        return Ok(());
    };
    let Some(newest) = kilonova_image::find(tx, image)? else { return Ok(()) };
    let server = scene.server.id.to_string();
    let mut backups = kilonova_image::of_owner(tx, &newest.owner, MOST)?;
    backups.retain(|image| {
        let says =
            |key: &str, value: &str| image.properties.get(key).is_some_and(|said| said == value);
        says("image_type", "backup")
            && says("instance_uuid", &server)
            && says("backup_type", backup_type)
            && !image.protected
    });
    backups.sort_by_key(|image| std::cmp::Reverse(image.created_at));
    let kept = usize::try_from(*kept).unwrap_or_default();
    for old in backups.iter().skip(kept) {
        discard(tx, scene.compute, old.id)?;
    }
    Ok(())
}

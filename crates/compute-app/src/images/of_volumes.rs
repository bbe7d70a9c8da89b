//! Images that consist of snapshots of volumes: active images without data, whose properties name the snapshots. In our
//! own service the image is written in the transaction that hands the snapshots to the user; in Glance it is complete
//! before that transaction, which adopts it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kilonova_compute_db::glance_images;
use kilonova_compute_db::servers::Server;
use kilonova_ids::ImageId;
use kilonova_image::{Error as OwnError, ImageRecord, Images, Visibility};
use kilonova_store::{Store, Tx};
use kilonova_wire::refusal::Kind;
use kilonova_wire::{Context, Refusal};

use super::{ImageService, owner, proxy};
use crate::{Compute, Error};

/// An image that consists of snapshots of volumes.
#[derive(Debug, Clone)]
pub(crate) struct VolumesImage {
    /// Its id.
    pub id: ImageId,
    /// Its name.
    pub name: String,
    /// The minimum size of a server's root disk, in GiB.
    pub min_disk: i64,
    /// Its properties.
    pub properties: BTreeMap<String, String>,
}

impl ImageService {
    /// Creates the image in Glance, before the transaction that adopts it. [`ImageService::withdraw`] deletes it, as
    /// does the sweep if no transaction adopts it.
    ///
    /// # Errors
    /// The service's refusal; 503 if it does not answer.
    pub(crate) async fn make_of_volumes(
        &self,
        store: &Store,
        context: &Context,
        server: &Server,
        image: &VolumesImage,
    ) -> Result<(), Error> {
        match self {
            Self::Elsewhere | Self::Own(_) => Ok(()),
            Self::Glance(glance) => glance.create_empty(store, context, server, image).await,
        }
    }

    /// The properties that an image of a server inherits from the server's own image.
    pub(crate) fn inherited(&self, server: &Server) -> BTreeMap<String, String> {
        let more = self.glance().map(|glance| glance.non_inheritable()).unwrap_or_default();
        inherited(&server.spec.image_properties, more)
    }
}

/// The `properties` that a snapshot inherits, without those that the operator excludes.
pub(super) fn inherited(
    properties: &BTreeMap<String, String>,
    non_inheritable: &[String],
) -> BTreeMap<String, String> {
    let is_inherited = |key: &str| {
        !NEVER_INHERITED.contains(&key)
            && !key.starts_with("os_glance")
            && !non_inheritable.iter().any(|name| name == key)
    };
    let own = properties.iter().filter(|(key, _)| is_inherited(key));
    own.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Properties that no snapshot inherits (Nova's `NON_INHERITABLE_IMAGE_PROPERTIES`).
const NEVER_INHERITED: [&str; 6] = [
    "cinder_encryption_key_id",
    "cinder_encryption_key_deletion_policy",
    "img_signature",
    "img_signature_hash_method",
    "img_signature_key_type",
    "img_signature_certificate_uuid",
];

/// Hands the image to the user: adopts it from Glance, or creates it in our own service.
///
/// # Errors
/// 403 or 400 from our own service for an image that it does not accept; 503 without a service, or if the sweep has
/// deleted the image meanwhile.
pub(crate) fn adopt_of_volumes(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    image: &VolumesImage,
    now: Timestamp,
) -> Result<(), Error> {
    if let ImageService::Glance(_) = &compute.images {
        if !glance_images::adopt(tx, image.id)? {
            return Err(unavailable("The image was not created in time. Try again."));
        }
        return Ok(glance_images::forget(tx, image.id)?);
    }
    let images = own_with_room(tx, compute, context, server)?;
    let owner = owner(context, server);
    let mut record = ImageRecord::new(image.id, owner.to_owned(), now);
    record.name = Some(image.name.clone());
    record.visibility = Visibility::Private;
    // Nova's formats for an image without data.
    record.disk_format = Some("qcow2".to_owned());
    record.container_format = Some("bare".to_owned());
    record.min_disk = image.min_disk;
    record.properties.clone_from(&image.properties);
    kilonova_image::add_empty(tx, images, &record).map_err(refused)
}

/// Refuses an image that our own service would not accept, before any part of it is created.
///
/// # Errors
/// 403 if the project's quota is exhausted; 503 without a service.
pub(crate) fn expect_of_volumes(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
) -> Result<(), Error> {
    match &compute.images {
        ImageService::Glance(_) => Ok(()),
        ImageService::Own(_) | ImageService::Elsewhere => {
            own_with_room(tx, compute, context, server).map(drop)
        }
    }
}

/// Our own service, if the image's owner may have one more image.
fn own_with_room<'a>(
    tx: &mut Tx<'_>,
    compute: &'a Compute,
    context: &Context,
    server: &Server,
) -> Result<&'a Images, Error> {
    let Some(images) = compute.images.own() else {
        let why = "This controller has no image service, so no image can be made.";
        return Err(unavailable(why));
    };
    images.check_image_quota(tx, owner(context, server)).map_err(refused)?;
    Ok(images)
}

fn refused(error: OwnError) -> Error {
    proxy::own_refusal(error).into()
}

fn unavailable(why: &str) -> Error {
    Refusal::new(Kind::Unavailable, why).with_retry_after(1).into()
}

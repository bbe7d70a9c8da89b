//! Images that a request names, read with the token of its user.

use std::collections::BTreeMap;

use kilonova_glance::{Error as CallError, Image};
use kilonova_ids::ImageId;
use kilonova_image::{ImageRecord, Status, Visibility};
use kilonova_keystone::Caller;
use kilonova_wire::{Context, Refusal, time};

use super::{CloudGlance, refusal};
use crate::Error;
use crate::boot::machine;

impl CloudGlance {
    /// The images, and the kernels and RAM disks that they name, as far as the caller may see them.
    pub(in crate::images) async fn look_up(
        &self,
        context: &Context,
        images: impl IntoIterator<Item = ImageId>,
    ) -> Result<BTreeMap<ImageId, ImageRecord>, Error> {
        let mut seen = BTreeMap::new();
        for id in images {
            let Some(image) = self.one(context, id).await? else { continue };
            let parts = ["kernel_id", "ramdisk_id"];
            for part in parts.iter().filter_map(|part| machine::kernel(&image.properties, part)) {
                if let Some(found) = self.one(context, part).await? {
                    seen.insert(part, found);
                }
            }
            seen.insert(id, image);
        }
        Ok(seen)
    }

    async fn one(&self, context: &Context, id: ImageId) -> Result<Option<ImageRecord>, Error> {
        let Some(token) = &context.token else {
            let why = "The request has no token that the image service could check.";
            return Err(Refusal::unauthorized(why).into());
        };
        let request_id = context.request_id.map(|_| context.request_id_text());
        match self.client.show((Caller::User(token), request_id.as_deref()), id).await {
            Ok(image) => {
                self.tokens.keep(id, Some(token));
                Ok(Some(record(image)))
            }
            Err(CallError::NotFound(_)) => Ok(None),
            Err(error) => Err(refusal(error)),
        }
    }
}

/// Converts a Glance image into the form of our own image service.
pub(in crate::images) fn record(image: Image) -> ImageRecord {
    let now = time::now();
    let status = match image.status.as_str() {
        "active" => Status::Active,
        "deactivated" => Status::Deactivated,
        "saving" | "uploading" | "importing" => Status::Saving,
        _ => Status::Queued,
    };
    let mut record = ImageRecord::new(image.id, image.owner.clone().unwrap_or_default(), now);
    record.status = status;
    record.visibility = Visibility::parse(&image.visibility).unwrap_or(Visibility::Private);
    record.hash = image
        .hash
        .as_ref()
        .filter(|hash| hash.algorithm == "sha512")
        .map(|hash| hash.value.clone());
    record.name = image.name;
    record.disk_format = image.disk_format;
    record.container_format = image.container_format;
    record.min_ram = image.min_ram;
    record.min_disk = image.min_disk;
    record.protected = image.protected;
    record.size = image.size;
    record.virtual_size = image.virtual_size;
    record.checksum = image.checksum;
    record.tags = image.tags;
    record.properties = image.properties;
    record.created_at = image.created_at.unwrap_or(now);
    record.updated_at = image.updated_at.unwrap_or(now);
    record
}

//! Resolves the names in a request, as far as the caller may see the objects.

use std::collections::BTreeMap;

use kilonova_compute_db::flavors::Flavor;
use kilonova_compute_db::servers::FlavorOf;
use kilonova_compute_db::{self};
use kilonova_ids::ImageId;
use kilonova_image::{ImageRecord, Status};
use kilonova_node_api::Key;
use kilonova_store::Tx;
use kilonova_wire::{Context, Refusal};

use crate::boot::machine;
use crate::images::SeenImages;
use crate::volumes::request::names_volumes;
use crate::{Compute, Error};

/// A flavor with empty fields, as a base for tests.
#[cfg(test)]
pub(crate) fn empty_flavor() -> FlavorOf {
    FlavorOf {
        id: String::new(),
        number: None,
        name: String::new(),
        vcpus: 0,
        ram: 0,
        disk: 0,
        ephemeral: 0,
        swap: 0,
        extra_specs: BTreeMap::new(),
    }
}

/// Announces the reads of [`flavor`] and [`image`], so that they take one round trip.
///
/// # Errors
/// Store errors only.
pub fn expect(
    tx: &mut Tx<'_>,
    compute: &Compute,
    flavor: &str,
    image: Option<ImageId>,
) -> Result<(), Error> {
    kilonova_compute_db::flavors::expect(tx, flavor)?;
    match image {
        Some(image) => compute.images.expect(tx, image),
        None => Ok(()),
    }
}

/// Finds the flavor by its id.
///
/// # Errors
/// 400, as Nova returns for a `flavorRef`, if there is none that the caller may use.
pub fn flavor(tx: &mut Tx<'_>, context: &Context, id: &str) -> Result<FlavorOf, Error> {
    let missing =
        || Refusal::bad_request(format!("Flavor {} could not be found.", id.escape_debug()));
    let flavor = kilonova_compute_db::flavors::by_id(tx, id)?.ok_or_else(missing)?;
    if !flavor.is_public
        && !context.is_admin()
        && !kilonova_compute_db::flavors::is_granted(tx, id, &context.project_id)?
    {
        return Err(missing().into());
    }
    Ok(flavor_of(flavor))
}

/// The flavor in the form that a server's row keeps.
pub(crate) fn flavor_of(flavor: Flavor) -> FlavorOf {
    FlavorOf {
        id: flavor.id,
        number: Some(flavor.number),
        name: flavor.name,
        vcpus: flavor.vcpus,
        ram: flavor.memory_mb,
        disk: flavor.root_gb,
        ephemeral: flavor.ephemeral_gb,
        swap: flavor.swap,
        extra_specs: flavor.extra_specs,
    }
}

/// The image of a new server.
#[derive(Debug, Clone)]
pub enum BootImage {
    /// Its root disk is a copy of the image, which has these properties.
    Copied(BTreeMap<String, String>),
    /// The image names volumes in these properties.
    OfVolumes(BTreeMap<String, String>),
}

/// Like [`image`], but also accepts an image that names volumes, without checking anything else
/// about it.
///
/// # Errors
/// Those of [`image`].
pub fn boot_image(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    seen: &SeenImages,
    id: ImageId,
    flavor: &FlavorOf,
) -> Result<BootImage, Error> {
    let image = visible(tx, compute, context, seen, id)?;
    if names_volumes(&image.properties) {
        return Ok(BootImage::OfVolumes(image.properties));
    }
    bootable(tx, compute, context, seen, image, flavor).map(BootImage::Copied)
}

/// Checks that the image can be booted with the flavor, and returns its properties.
///
/// # Errors
/// 400 if the image is not visible, has no data, or needs a larger flavor; 403 for a flavor without
/// a disk, whose servers could use any amount of a host's disk.
pub fn image(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    seen: &SeenImages,
    id: ImageId,
    flavor: &FlavorOf,
) -> Result<BTreeMap<String, String>, Error> {
    let image = visible(tx, compute, context, seen, id)?;
    bootable(tx, compute, context, seen, image, flavor)
}

fn visible(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    seen: &SeenImages,
    id: ImageId,
) -> Result<ImageRecord, Error> {
    let image = seen.visible(tx, compute, context, id)?;
    Ok(image.ok_or_else(|| Refusal::bad_request(format!("Image {id} could not be found.")))?)
}

fn bootable(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    seen: &SeenImages,
    image: ImageRecord,
    flavor: &FlavorOf,
) -> Result<BTreeMap<String, String>, Error> {
    let id = image.id;
    if image.status != Status::Active {
        return Err(Refusal::bad_request(format!("Image {id} is not active.")).into());
    }
    fits_memory(image.min_ram, flavor.ram)?;
    if flavor.disk == 0 && !compute.policy.allows_own(context, ZERO_DISK) {
        let why = "Only volume-backed servers are allowed for flavors with zero disk.";
        return Err(Refusal::forbidden(why).into());
    }
    fits_disk(&image, flavor.disk)?;
    machine::check(&image.properties, flavor)?;
    for part in ["kernel_id", "ramdisk_id"] {
        let Some(named) = image.properties.get(part).filter(|named| is_named(named)) else {
            continue;
        };
        let missing =
            || Refusal::bad_request(format!("Image {} could not be found.", named.escape_debug()));
        let id = machine::kernel(&image.properties, part).ok_or_else(missing)?;
        let found = seen.visible(tx, compute, context, id)?;
        if found.ok_or_else(missing)?.status != Status::Active {
            return Err(Refusal::bad_request(format!("Image {id} is not active.")).into());
        }
    }
    Ok(image.properties)
}

/// The rule for booting a flavor without a disk from an image.
const ZERO_DISK: &str = "os_compute_api:servers:create:zero_disk_flavor";

/// Refuses an image that needs more memory than the flavor has, both in MiB.
///
/// # Errors
/// 400 with Nova's message.
pub fn fits_memory(min_ram: i64, ram: i64) -> Result<(), Refusal> {
    if ram < min_ram {
        return Err(Refusal::bad_request(format!(
            "Flavor's memory is too small for requested image: it has {ram} MiB, the image needs \
             {min_ram}."
        )));
    }
    Ok(())
}

/// Refuses an image that is larger than the flavor's root disk: as a file, as a virtual disk, or by
/// its own minimum. A flavor without a disk has no size to compare with.
///
/// # Errors
/// 400 with Nova's message.
pub fn fits_disk(image: &ImageRecord, root_gb: i64) -> Result<(), Error> {
    const GIB: i64 = 1 << 30;
    if root_gb == 0 {
        return Ok(());
    }
    let disk = root_gb.saturating_mul(GIB);
    let size = image.size.unwrap_or_default().max(image.virtual_size.unwrap_or_default());
    if size > disk {
        return Err(Refusal::bad_request(format!(
            "Flavor's disk is too small for requested image. Flavor disk is {disk} bytes, image is \
             {size} bytes."
        ))
        .into());
    }
    let least = image.min_disk.saturating_mul(GIB);
    if least > disk {
        return Err(Refusal::bad_request(format!(
            "Flavor's disk is smaller than the minimum size specified in image metadata. Flavor disk \
             is {disk} bytes, minimum size is {least} bytes."
        ))
        .into());
    }
    Ok(())
}

/// True if a property names an image: an empty string, `nokernel` and `noramdisk` do not.
fn is_named(id: &str) -> bool {
    !["", "nokernel", "noramdisk"].contains(&id)
}

/// The user's key pair.
///
/// # Errors
/// 400 if there is no key pair of this name.
pub fn key_pair(tx: &mut Tx<'_>, user_id: &str, name: &str) -> Result<Key, Error> {
    let found = kilonova_compute_db::keypairs::by_name(tx, user_id, name)?.ok_or_else(|| {
        let name = name.escape_debug();
        Refusal::bad_request(format!("Invalid key_name provided: {name} could not be found."))
    })?;
    Ok(Key { name: found.name, kind: found.kind, public_key: found.public_key })
}

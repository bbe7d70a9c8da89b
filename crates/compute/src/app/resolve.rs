//! From the names in a request to what they mean, as far as the caller may see it.

use std::collections::BTreeMap;

use kilonova_ids::ImageId;
use kilonova_store::Tx;
use kilonova_wire::{Context, Fault};

use crate::Error;
use crate::db::{self, servers::FlavorOf};

/// What stands in a request until its flavor is looked up.
pub fn unresolved_flavor() -> FlavorOf {
    FlavorOf {
        id: String::new(),
        name: String::new(),
        vcpus: 0,
        ram: 0,
        disk: 0,
        ephemeral: 0,
        swap: 0,
        extra_specs: BTreeMap::new(),
    }
}

/// The flavor by its id.
///
/// # Errors
/// 400 when there is none that the caller may use, as Nova answers for a `flavorRef`.
pub fn flavor(tx: &mut Tx<'_>, context: &Context, id: &str) -> Result<FlavorOf, Error> {
    let missing =
        || Fault::bad_request(format!("Flavor {} could not be found.", id.escape_debug()));
    let flavor = db::flavors::by_id(tx, id)?.ok_or_else(missing)?;
    if !flavor.is_public
        && !context.is_admin()
        && !db::flavors::is_granted(tx, id, &context.project_id)?
    {
        return Err(missing().into());
    }
    Ok(FlavorOf {
        id: flavor.id,
        name: flavor.name,
        vcpus: flavor.vcpus,
        ram: flavor.memory_mb,
        disk: flavor.root_gb,
        ephemeral: flavor.ephemeral_gb,
        swap: flavor.swap,
        extra_specs: flavor.extra_specs,
    })
}

/// Checks that the image can be booted with the flavor and returns its properties.
///
/// # Errors
/// 400 when there is none that the caller may use, it has no data, or the flavor is too small.
pub fn image(
    tx: &mut Tx<'_>,
    context: &Context,
    id: ImageId,
    flavor: &FlavorOf,
) -> Result<BTreeMap<String, String>, Error> {
    let image = kilonova_image::find(tx, id)?.filter(|image| image.visible_to(context));
    let image =
        image.ok_or_else(|| Fault::bad_request(format!("Image {id} could not be found.")))?;
    if image.status != "active" {
        return Err(Fault::bad_request(format!("Image {id} is not active.")).into());
    }
    if flavor.ram < image.min_ram {
        return Err(Fault::bad_request(format!(
            "Flavor's memory is too small for requested image: it has {} MiB, the image needs {}.",
            flavor.ram, image.min_ram
        ))
        .into());
    }
    if flavor.disk > 0 && flavor.disk < image.min_disk {
        return Err(Fault::bad_request(format!(
            "Flavor's disk is too small for requested image. Flavor disk is {} GiB, minimum is {} GiB.",
            flavor.disk, image.min_disk
        ))
        .into());
    }
    Ok(image.properties.into_iter().collect())
}

/// Checks that the caller has the key pair.
///
/// # Errors
/// 400 when not.
pub fn key_pair(tx: &mut Tx<'_>, context: &Context, name: &str) -> Result<(), Error> {
    match db::keypairs::by_name(tx, &context.user_id, name)? {
        Some(_) => Ok(()),
        None => Err(Fault::bad_request(format!(
            "Invalid key_name provided: {} could not be found.",
            name.escape_debug()
        ))
        .into()),
    }
}

//! From the names in a request to what they mean, as far as the caller may see it.

use std::collections::BTreeMap;

use kilonova_ids::ImageId;
use kilonova_node_api::Key;
use kilonova_store::Tx;
use kilonova_wire::{Context, Fault};

use crate::Error;
use crate::app::boot::machine;
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
    machine::check(&image.properties, flavor)?;
    for part in ["kernel_id", "ramdisk_id"] {
        let Some(named) = image.properties.get(part).filter(|named| is_named(named)) else {
            continue;
        };
        let missing =
            || Fault::bad_request(format!("Image {} could not be found.", named.escape_debug()));
        let id = machine::kernel(&image.properties, part).ok_or_else(missing)?;
        let found = kilonova_image::find(tx, id)?.filter(|image| image.visible_to(context));
        if found.ok_or_else(missing)?.status != "active" {
            return Err(Fault::bad_request(format!("Image {id} is not active.")).into());
        }
    }
    Ok(image.properties)
}

/// Whether a property names an image: an empty one, and `nokernel`, do not.
fn is_named(id: &str) -> bool {
    !["", "nokernel", "noramdisk"].contains(&id)
}

/// The user's key pair.
///
/// # Errors
/// 400 when there is none of this name.
pub fn key_pair(tx: &mut Tx<'_>, user_id: &str, name: &str) -> Result<Key, Error> {
    let found = db::keypairs::by_name(tx, user_id, name)?.ok_or_else(|| {
        let name = name.escape_debug();
        Fault::bad_request(format!("Invalid key_name provided: {name} could not be found."))
    })?;
    Ok(Key { name: found.name, kind: found.kind, public_key: found.public_key })
}

//! Settings of flavors and images that Kilonova does not support: TPMs, encrypted memory, quotas and so on.
//!
//! A tenant must never pay for a feature that the guest does not have. Therefore each such extra
//! spec is refused when it is set and, because flavors may be older than this rule, when a server
//! is created. The same holds for image properties. A combination that upstream refuses gets
//! upstream's message. Settings that upstream's libvirt driver ignores too are accepted;
//! `docs/compatibility.md` lists all of them.

mod table;

use std::collections::BTreeMap;

use kilonova_compute_db::servers::FlavorOf;
use kilonova_ids::ImageId;
use kilonova_topology::{Asked, Request};
use kilonova_wire::Refusal;

use crate::numa;

/// Checks one extra spec before it is set.
///
/// # Errors
/// 400 naming the unsupported extra spec.
pub fn extra_spec(key: &str, value: &str) -> Result<(), Refusal> {
    match table::of_spec(key, value) {
        None => Ok(()),
        Some(why) => Err(Refusal::bad_request(format!(
            "Extra spec {} cannot be set: {why}.",
            pair(key, value)
        ))),
    }
}

/// Checks a flavor, and the properties of the server's image, before a server is created with it or
/// resized to it.
///
/// # Errors
/// 400 with upstream's message for an invalid combination, otherwise naming the flavor and the extra
/// spec.
pub fn flavor(flavor: &FlavorOf, properties: &BTreeMap<String, String>) -> Result<(), Refusal> {
    combination(flavor, properties)?;
    for (key, value) in &flavor.extra_specs {
        if let Some(why) = table::of_spec(key, value) {
            return Err(Refusal::bad_request(format!(
                "Flavor {} asks for {}, and {why}. Choose another flavor.",
                flavor.name.escape_debug(),
                pair(key, value)
            )));
        }
    }
    Ok(())
}

/// Checks a flavor together with the properties of an image, with upstream's messages.
fn combination(flavor: &FlavorOf, properties: &BTreeMap<String, String>) -> Result<(), Refusal> {
    let (vcpus, memory_mb, extra_specs) = (flavor.vcpus, flavor.ram, &flavor.extra_specs);
    match Request::parse(&Asked { vcpus, memory_mb, extra_specs, properties }) {
        Ok(_) => Ok(()),
        Err(refused) => Err(Refusal::bad_request(refused.to_string())),
    }
}

/// Checks the image of a rebuild with the server's flavor; `before` contains the properties of its current image. A
/// flavor that is invalid on its own predates the check, so its servers can still be rebuilt.
///
/// # Errors
/// 400 with upstream's message for an invalid combination and for a changed NUMA topology, otherwise naming the
/// image and the property.
pub fn rebuild(
    image: ImageId,
    flavor: &FlavorOf,
    before: &BTreeMap<String, String>,
    properties: &BTreeMap<String, String>,
) -> Result<(), Refusal> {
    if combination(flavor, &BTreeMap::new()).is_ok() {
        combination(flavor, properties)?;
    }
    self::image(image, properties)?;
    let topology = |properties| numa::requested(flavor, properties).topology;
    if topology(before) != topology(properties) {
        let why = "An instance's NUMA topology cannot be changed as part of a rebuild. The image provided is \
                   invalid for this instance.";
        return Err(Refusal::bad_request(why));
    }
    Ok(())
}

/// Checks the properties of an image before a guest starts from it.
///
/// # Errors
/// 400 naming the image and the property.
pub fn image(image: ImageId, properties: &BTreeMap<String, String>) -> Result<(), Refusal> {
    for (key, value) in properties {
        if let Some(why) = table::of_property(key, value) {
            return Err(Refusal::bad_request(format!(
                "Image {image} asks for {}, and {why}. Remove the property or choose another image.",
                pair(key, value)
            )));
        }
    }
    Ok(())
}

/// `key=value`, shortened, without control characters.
fn pair(key: &str, value: &str) -> String {
    let short = |text: &str| text.chars().take(80).collect::<String>().escape_debug().to_string();
    format!("{}={}", short(key), short(value))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

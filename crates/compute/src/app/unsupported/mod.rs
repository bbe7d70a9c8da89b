//! What a flavor or an image asks for that Kilonova does not give its guests: pinned processors,
//! NUMA nodes, page sizes and the like.
//!
//! A tenant must never pay for something that a guest does not have. So each such extra spec is
//! refused when it is set, and, as flavors may be older than this rule, when a server is made. The
//! same holds for image properties. A combination that upstream refuses is refused in upstream's
//! words. What upstream's libvirt driver ignores too is let through; `docs/compatibility.md` lists
//! all of it.

mod constraints;
mod table;

use std::collections::BTreeMap;

use kilonova_ids::ImageId;
use kilonova_wire::Fault;

use crate::db::servers::FlavorOf;

/// Checks one extra spec that is to be set.
///
/// # Errors
/// 400 saying which one cannot be had.
pub fn extra_spec(key: &str, value: &str) -> Result<(), Fault> {
    match table::of_spec(key, value) {
        None => Ok(()),
        Some(why) => Err(Fault::bad_request(format!(
            "Extra spec {} cannot be set: {why}.",
            pair(key, value)
        ))),
    }
}

/// Checks a flavor, and what the image of the server says beside it, for a server that is to be made
/// with it or resized to it.
///
/// # Errors
/// 400 in upstream's words for a combination that makes no sense, else a sentence that names the
/// flavor and the extra spec.
pub fn flavor(flavor: &FlavorOf, properties: &BTreeMap<String, String>) -> Result<(), Fault> {
    constraints::check(flavor, properties).map_err(Fault::bad_request)?;
    for (key, value) in &flavor.extra_specs {
        if let Some(why) = table::of_spec(key, value) {
            return Err(Fault::bad_request(format!(
                "Flavor {} asks for {}, and {why}. Choose another flavor.",
                flavor.name.escape_debug(),
                pair(key, value)
            )));
        }
    }
    Ok(())
}

/// Checks the properties of an image that a guest is to start from.
///
/// # Errors
/// 400 with a sentence that names the image and the property.
pub fn image(image: ImageId, properties: &BTreeMap<String, String>) -> Result<(), Fault> {
    for (key, value) in properties {
        if let Some(why) = table::of_property(key, value) {
            return Err(Fault::bad_request(format!(
                "Image {image} asks for {}, and {why}. Remove the property or choose another image.",
                pair(key, value)
            )));
        }
    }
    Ok(())
}

/// `key=value`, cut, without anything that moves a cursor.
fn pair(key: &str, value: &str) -> String {
    let short = |text: &str| text.chars().take(80).collect::<String>().escape_debug().to_string();
    format!("{}={}", short(key), short(value))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

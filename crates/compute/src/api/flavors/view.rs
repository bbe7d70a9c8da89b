//! Views of a flavor, by microversion.

use kilonova_compute_app::microversions;
use kilonova_compute_db::flavors::Flavor;
use kilonova_wire::Microversion;
use serde_json::{Value, json};

use crate::api::links::{self, Base};

/// The brief form.
pub(super) fn brief(flavor: &Flavor, version: Microversion, base: &Base) -> Value {
    let mut shown = json!({
        "id": flavor.id,
        "name": flavor.name,
        "links": links::of(base, "flavors", &flavor.id),
    });
    if version >= microversions::FLAVOR_DESCRIPTION {
        shown["description"] = json!(flavor.description);
    }
    shown
}

/// The full form.
pub(super) fn detail(flavor: &Flavor, version: Microversion, base: &Base) -> Value {
    let mut shown = brief(flavor, version, base);
    shown["ram"] = json!(flavor.memory_mb);
    shown["disk"] = json!(flavor.root_gb);
    shown["vcpus"] = json!(flavor.vcpus);
    shown["OS-FLV-EXT-DATA:ephemeral"] = json!(flavor.ephemeral_gb);
    shown["os-flavor-access:is_public"] = json!(flavor.is_public);
    shown["swap"] = match flavor.swap {
        0 if version < microversions::STRICT_REQUESTS => json!(""),
        swap => json!(swap),
    };
    if version < microversions::STRICT_QUERIES {
        shown["OS-FLV-DISABLED:disabled"] = json!(false);
        shown["rxtx_factor"] = json!(flavor.rxtx_factor);
    }
    if version >= microversions::FLAVOR_EXTRA_SPECS {
        shown["extra_specs"] = json!(flavor.extra_specs);
    }
    shown
}

/// The full form for callers that may not see extra specs.
pub(super) fn without_extra_specs(flavor: &Flavor, version: Microversion, base: &Base) -> Value {
    let mut shown = detail(flavor, version, base);
    if let Some(fields) = shown.as_object_mut() {
        fields.remove("extra_specs");
    }
    shown
}

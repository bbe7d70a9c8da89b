//! The availability zone of networks and routers: there is one.

use kilonova_wire::Refusal;
use kilonova_wire::refusal::Kind;
use serde_json::Value;

use crate::error::refused;
use crate::record::Body;

/// The zone, named as Neutron names that of an agent without a setting.
pub(crate) const ZONE: &str = "nova";

/// Refuses `availability_zone_hints` that name another zone (`validate_availability_zones` of
/// `neutron/db/agents_db.py`).
pub(crate) fn check_hints(body: &Body) -> Result<(), Refusal> {
    let hints = body.get("availability_zone_hints").and_then(Value::as_array);
    let mut hints = hints.into_iter().flatten().filter_map(Value::as_str);
    match hints.find(|hint| *hint != ZONE) {
        None => Ok(()),
        Some(other) => Err(refused(
            Kind::NotFound,
            "AvailabilityZoneNotFound",
            format!("AvailabilityZone {} could not be found.", other.escape_debug()),
        )),
    }
}

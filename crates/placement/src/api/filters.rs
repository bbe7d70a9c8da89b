//! The query of `GET /resource_providers`.

use kilonova_ids::parse_uuid_like;
use kilonova_wire::Refusal;

use super::call::{Call, bad_query};
use super::syntax;
use crate::app::filters::ProviderFilters;

/// Keys, and the version that introduced each.
const KEYS: [(u32, &str); 6] = [
    (0, "name"),
    (0, "uuid"),
    (3, "member_of"),
    (4, "resources"),
    (14, "in_tree"),
    (18, "required"),
];

/// Parses the filters.
pub fn read(call: &Call) -> Result<ProviderFilters, Refusal> {
    let known: Vec<&str> =
        KEYS.iter().filter(|(minor, _)| call.speaks(*minor)).map(|(_, key)| *key).collect();
    call.require_keys(&known)?;
    let name = call.query.get("name").filter(|name| !name.is_empty());
    let mut filters =
        ProviderFilters { name: name.map(str::to_owned), ..ProviderFilters::default() };
    if let Some(text) = call.query.get("uuid") {
        let id = parse_uuid_like(text);
        filters.id = Some(id.ok_or_else(|| bad_query(&format!("'{text}' is not a 'uuid'")))?);
    }
    if let Some(text) = call.query.get("in_tree") {
        let id = parse_uuid_like(text);
        filters.in_tree = Some(id.ok_or_else(|| bad_query(&format!("'{text}' is not a 'uuid'")))?);
    }
    let aggregates = syntax::aggregates(call, "member_of")?;
    filters.member_of = aggregates.member_of;
    filters.forbidden_aggregates = aggregates.forbidden;
    let traits = syntax::traits(call, "required")?;
    filters.required = traits.required;
    filters.forbidden = traits.forbidden;
    if let Some(text) = call.query.get("resources") {
        filters.resources = syntax::resources(text)?;
    }
    Ok(filters)
}

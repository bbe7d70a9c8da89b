//! `/limits`: the limits and the usage of a project, by default the caller's.

use axum::Json;
use axum::extract::State;
use kilonova_access::{Caller, Routes, get};
use kilonova_compute_app::microversions::{
    ALWAYS, FILES_GONE, IMAGE_METADATA_GONE, NETWORK_PROXIES_GONE, STRICT_REQUESTS, Span, before,
};
use kilonova_compute_app::{Compute, Error, quotas};
use kilonova_wire::query::Query;
use kilonova_wire::{Microversion, Refusal};
use serde_json::{Map, Value, json};

use super::input;

/// The keys of the answer, each with its resource and the microversions that show it.
const LIMITS: &[(&str, &str, Span)] = &[
    ("maxTotalCores", "cores", ALWAYS),
    ("maxPersonality", "injected_files", before(FILES_GONE)),
    ("maxPersonalitySize", "injected_file_content_bytes", before(FILES_GONE)),
    ("maxTotalInstances", "instances", ALWAYS),
    ("maxTotalKeypairs", "key_pairs", ALWAYS),
    ("maxServerMeta", "metadata_items", ALWAYS),
    ("maxImageMeta", "metadata_items", before(IMAGE_METADATA_GONE)),
    ("maxTotalRAMSize", "ram", ALWAYS),
    ("maxServerGroups", "server_groups", ALWAYS),
    ("maxServerGroupMembers", "server_group_members", ALWAYS),
    ("maxTotalFloatingIps", "floating_ips", before(NETWORK_PROXIES_GONE)),
    ("maxSecurityGroups", "security_groups", before(NETWORK_PROXIES_GONE)),
    ("maxSecurityGroupRules", "security_group_rules", before(NETWORK_PROXIES_GONE)),
];
const USED: &[(&str, &str, Span)] = &[
    ("totalRAMUsed", "ram", ALWAYS),
    ("totalCoresUsed", "cores", ALWAYS),
    ("totalInstancesUsed", "instances", ALWAYS),
    ("totalFloatingIpsUsed", "floating_ips", before(NETWORK_PROXIES_GONE)),
    ("totalSecurityGroupsUsed", "security_groups", before(NETWORK_PROXIES_GONE)),
    ("totalServerGroupsUsed", "server_groups", ALWAYS),
];

pub(super) fn routes() -> Routes<Compute> {
    Routes::new().route("/v2.1/limits", [get("os_compute_api:limits", show)])
}

async fn show(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    if version >= STRICT_REQUESTS {
        input::check_query_keys(&query, &["tenant_id"])?;
    }
    let project_id = match query.get("tenant_id") {
        Some(project) if project != caller.project_id => {
            caller.may_own("os_compute_api:limits:other_project")?;
            project.to_owned()
        }
        _ => caller.project_id.clone(),
    };
    let (limits, used) = compute
        .store
        .read(move |tx| {
            Ok::<_, Error>((
                quotas::limits(tx, &project_id, None)?,
                quotas::used(tx, &project_id, None)?,
            ))
        })
        .await?;
    let mut absolute = Map::new();
    for (source, names) in [(&limits, LIMITS), (&used, USED)] {
        for (name, resource, _) in names.iter().filter(|(.., span)| span.has(version)) {
            let value = source.get(*resource).copied().unwrap_or(0);
            absolute.insert((*name).to_owned(), json!(value));
        }
    }
    Ok(Json(json!({"limits": {"rate": [], "absolute": absolute}})))
}

//! `/limits`: what the caller's project may, and uses.

use axum::Json;
use axum::extract::State;
use kilonova_access::{Caller, Routes, get};
use kilonova_wire::query::Query;
use kilonova_wire::{Fault, Microversion};
use serde_json::{Map, Value, json};

use super::input;
use crate::app::quotas;
use crate::{Compute, Error};

/// Names in the answer, the resource each is about, and the last minor version that shows it.
const LIMITS: &[(&str, &str, u32)] = &[
    ("maxTotalCores", "cores", 104),
    ("maxPersonality", "injected_files", 56),
    ("maxPersonalitySize", "injected_file_content_bytes", 56),
    ("maxTotalInstances", "instances", 104),
    ("maxTotalKeypairs", "key_pairs", 104),
    ("maxServerMeta", "metadata_items", 104),
    ("maxImageMeta", "metadata_items", 38),
    ("maxTotalRAMSize", "ram", 104),
    ("maxServerGroups", "server_groups", 104),
    ("maxServerGroupMembers", "server_group_members", 104),
    ("maxTotalFloatingIps", "floating_ips", 35),
    ("maxSecurityGroups", "security_groups", 35),
    ("maxSecurityGroupRules", "security_group_rules", 35),
];
const USED: &[(&str, &str, u32)] = &[
    ("totalRAMUsed", "ram", 104),
    ("totalCoresUsed", "cores", 104),
    ("totalInstancesUsed", "instances", 104),
    ("totalFloatingIpsUsed", "floating_ips", 35),
    ("totalSecurityGroupsUsed", "security_groups", 35),
    ("totalServerGroupsUsed", "server_groups", 104),
];

pub(super) fn routes() -> Routes<Compute> {
    Routes::new().route("/v2.1/limits", [get("os_compute_api:limits", show)])
}

async fn show(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
) -> Result<Json<Value>, Fault> {
    if version >= Microversion(2, 75) {
        input::only(&query, &["tenant_id"])?;
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
        for (name, resource, _) in names.iter().filter(|(.., last)| version.1 <= *last) {
            let value = source.get(*resource).copied().unwrap_or(0);
            absolute.insert((*name).to_owned(), json!(value));
        }
    }
    Ok(Json(json!({"limits": {"rate": [], "absolute": absolute}})))
}

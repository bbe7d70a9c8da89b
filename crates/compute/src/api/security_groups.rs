//! `/os-security-groups`, Nova's proxy of Neutron's security groups, which `openstack server add security group` reads
//! before version 7.2 of the client. Only reads exist, below microversion 2.36 (upstream:
//! `nova/api/openstack/compute/security_groups.py` and `nova/network/security_group_api.py`).

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Path, State};
use kilonova_access::{Caller, Routes, get};
use kilonova_compute_app::ports::{ProjectGroup, project_groups, source_groups, visible_group};
use kilonova_compute_app::{Compute, microversions};
use kilonova_ids::{SecurityGroupId, parse_uuid_like};
use kilonova_wire::query::Query;
use kilonova_wire::{Context, Microversion, Refusal};
use serde_json::{Value, json};

use super::input;

pub(super) fn routes() -> Routes<Compute> {
    Routes::new()
        .route("/v2.1/os-security-groups", [get("os_compute_api:os-security-groups:get", list)])
        .route(
            "/v2.1/os-security-groups/{id}",
            [get("os_compute_api:os-security-groups:show", show)],
        )
}

async fn list(
    State(compute): State<Compute>,
    context: Context,
    caller: Caller,
    version: Microversion,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    input::check_microversion(version, microversions::before(microversions::NETWORK_PROXIES_GONE))?;
    let (offset, limit) = input::limited(&query)?;
    let everywhere = caller.is_admin() && query.get("all_tenants").is_some();
    let groups = project_groups(&compute, &context, everywhere).await?;
    // As upstream, a page is taken first and then sorted.
    let mut page: Vec<ProjectGroup> = groups.into_iter().skip(offset).take(limit).collect();
    page.sort_by(|one, other| (&one.project, &one.name).cmp(&(&other.project, &other.name)));
    let sources = source_groups(&compute, &context, &page).await?;
    let shown: Vec<Value> = page.iter().map(|group| view(group, &sources)).collect();
    Ok(Json(json!({"security_groups": shown})))
}

async fn show(
    State(compute): State<Compute>,
    context: Context,
    caller: Caller,
    version: Microversion,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    input::check_microversion(version, microversions::before(microversions::NETWORK_PROXIES_GONE))?;
    let wanted: SecurityGroupId = parse_uuid_like(&id)
        .ok_or_else(|| Refusal::bad_request("Security group id should be uuid"))?;
    let found = visible_group(&compute, &context, wanted, caller.is_admin()).await?;
    let group = found
        .ok_or_else(|| Refusal::not_found(format!("Security group {wanted} does not exist")))?;
    let sources = source_groups(&compute, &context, std::slice::from_ref(&group)).await?;
    Ok(Json(json!({"security_group": view(&group, &sources)})))
}

/// Names and projects by id.
type Sources = HashMap<String, (String, String)>;

/// A group with its ingress rules; `sources` has the groups that rules may refer to.
fn view(group: &ProjectGroup, sources: &Sources) -> Value {
    let ingress = group.rules.iter().filter(|rule| rule["direction"] == "ingress");
    let rules: Vec<Value> = ingress.filter_map(|rule| rule_view(rule, group, sources)).collect();
    json!({
        "id": group.id, "name": group.name, "description": group.description,
        "tenant_id": group.project, "rules": rules,
    })
}

/// A rule in Nova's form; `None` if it refers to a group that the caller cannot see, as upstream.
fn rule_view(rule: &Value, group: &ProjectGroup, sources: &Sources) -> Option<Value> {
    let (least, most) = (&rule["port_range_min"], &rule["port_range_max"]);
    let (from, to) = match rule["protocol"].as_str() {
        Some(protocol) if least.is_null() && most.is_null() => {
            let has_ports = ["tcp", "udp"].iter().any(|one| protocol.eq_ignore_ascii_case(one));
            if has_ports { (json!(1), json!(65535)) } else { (json!(-1), json!(-1)) }
        }
        _ => (least.clone(), most.clone()),
    };
    let mut view = json!({
        "id": rule["id"], "parent_group_id": group.id, "ip_protocol": rule["protocol"],
        "from_port": from, "to_port": to, "group": {}, "ip_range": {},
    });
    match rule["remote_group_id"].as_str() {
        Some(source) => {
            let (name, project) = sources.get(source)?;
            view["group"] = json!({"name": name, "tenant_id": project});
        }
        None => {
            // Upstream shows this for IPv6 too.
            let prefix = rule["remote_ip_prefix"].as_str().unwrap_or("0.0.0.0/0");
            view["ip_range"] = json!({"cidr": prefix});
        }
    }
    Some(view)
}

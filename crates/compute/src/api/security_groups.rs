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

/// The default of Nova's `[api] max_limit`.
const MAX_LIMIT: usize = 1000;

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
    let number = |key: &str| match query.get(key) {
        None => Ok(None),
        Some(text) => text.parse::<usize>().map(Some).map_err(|_| {
            Refusal::bad_request(format!("{key} param must be an integer that is not negative"))
        }),
    };
    let (offset, limit) = (number("offset")?.unwrap_or(0), number("limit")?.unwrap_or(0));
    let everywhere = caller.is_admin() && input::query_boolean(&query, "all_tenants")?;
    let mut groups = project_groups(&compute, &context, everywhere).await?;
    groups.sort_by(|one, other| (&one.project, &one.name).cmp(&(&other.project, &other.name)));
    // As in upstream's `limited`, a limit of 0 means the maximum.
    let limit = if limit == 0 { MAX_LIMIT } else { limit.min(MAX_LIMIT) };
    let page: Vec<ProjectGroup> = groups.into_iter().skip(offset).take(limit).collect();
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
    let wanted: SecurityGroupId = parse_uuid_like(&id).ok_or_else(|| {
        Refusal::bad_request(format!("Expected a uuid but received {}.", id.escape_debug()))
    })?;
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
    let protocol = rule["protocol"].as_str();
    let (from, to) = match (rule["port_range_min"].as_i64(), protocol) {
        (None, Some(name)) if name.to_uppercase().contains("ICMP") => (json!(-1), json!(-1)),
        (None, Some("tcp" | "udp")) => (json!(1), json!(65535)),
        _ => (rule["port_range_min"].clone(), rule["port_range_max"].clone()),
    };
    let mut view = json!({
        "id": rule["id"], "parent_group_id": group.id, "ip_protocol": protocol.map(str::to_uppercase),
        "from_port": from, "to_port": to, "group": {}, "ip_range": {},
    });
    match rule["remote_group_id"].as_str() {
        Some(source) => {
            let (name, project) = sources.get(source)?;
            view["group"] = json!({"name": name, "tenant_id": project});
        }
        None => {
            let every = if rule["ethertype"] == "IPv6" { "::/0" } else { "0.0.0.0/0" };
            view["ip_range"] = json!({"cidr": rule["remote_ip_prefix"].as_str().unwrap_or(every)});
        }
    }
    Some(view)
}

//! Quotas: nothing is limited, since nothing is managed.

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use axum::routing::get;
use kilonova_wire::{Context, Fault};
use serde_json::{Map, Value, json};

use super::{Answer, ok, unmanaged};

const RESOURCES: [&str; 9] = [
    "floatingip",
    "network",
    "port",
    "rbac_policy",
    "router",
    "security_group",
    "security_group_rule",
    "subnet",
    "subnetpool",
];

pub(super) fn routes() -> Router {
    Router::new()
        .route("/v2.0/quotas", get(list))
        .route("/v2.0/quotas/{project}", get(limits).put(set).delete(reset))
        .route("/v2.0/quotas/{project}/default", get(limits))
        .route("/v2.0/quotas/{project}/details", get(details))
}

fn each(value: &Value) -> Value {
    let quota: Map<String, Value> =
        RESOURCES.iter().map(|name| ((*name).to_owned(), value.clone())).collect();
    json!({"quota": quota})
}

fn visible(context: &Context, project: &str) -> Result<(), Fault> {
    if context.may_see(project) {
        return Ok(());
    }
    Err(Fault::forbidden("The quotas of another project are for administrators only."))
}

/// Projects whose quota differs from the default: none.
async fn list(context: Context) -> Answer {
    context.require_admin("get_quotas")?;
    ok(json!({"quotas": []}))
}

async fn limits(context: Context, Path(project): Path<String>) -> Answer {
    visible(&context, &project)?;
    ok(each(&json!(-1)))
}

async fn details(context: Context, Path(project): Path<String>) -> Answer {
    visible(&context, &project)?;
    ok(each(&json!({"limit": -1, "used": 0, "reserved": 0})))
}

async fn set(_: Context) -> Answer {
    Err(unmanaged())
}

/// They are at their defaults already.
async fn reset(context: Context) -> Answer {
    context.require_admin("delete_quota")?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

//! `/usages` of a project, and `/resource_providers/{uuid}/usages`.

use std::collections::BTreeMap;

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use kilonova_wire::Refusal;
use serde_json::{Map, Value, json};

use super::Placement;
use super::call::{Call, bad_query, only, provider_id};
use crate::app::inventories;
use crate::db::consumers;
use crate::{Error, names};

pub fn routes() -> Router<Placement> {
    Router::new()
        .route("/usages", only("GET", get(total)))
        .route("/resource_providers/{uuid}/usages", only("GET", get(of_provider)))
}

async fn of_provider(call: Call, Path(uuid): Path<String>) -> Result<Response, Refusal> {
    call.require_accepts_json()?;
    call.may("placement:resource_providers:usages")?;
    let id = provider_id(&uuid)?;
    let (provider, rows) = call.app.store.read(move |tx| inventories::list(tx, id)).await?;
    let used: Map<String, Value> =
        rows.into_iter().map(|row| (row.class.into(), row.inventory.used.into())).collect();
    let body = json!({"resource_provider_generation": provider.generation, "usages": used});
    Ok(call.json(StatusCode::OK, &body, None))
}

struct UsagesQuery {
    project: String,
    user: Option<String>,
    kind: Option<String>,
}

fn read(call: &Call) -> Result<UsagesQuery, Refusal> {
    let known: &[&str] = if call.speaks(38) {
        &["project_id", "user_id", "consumer_type"]
    } else {
        &["project_id", "user_id"]
    };
    call.require_keys(known)?;
    let text = |key: &str| match call.query.get(key) {
        Some("") => {
            Err(bad_query("'' should be non-empty\n\nFailed validating 'minLength' in schema"))
        }
        Some(value) if value.chars().count() > 255 => Err(bad_query(&format!(
            "'{value}' is too long\n\nFailed validating 'maxLength' in schema"
        ))),
        value => Ok(value.map(str::to_owned)),
    };
    let kind = text("consumer_type")?;
    if let Some(kind) = kind.as_deref()
        && !matches!(kind, "all" | "unknown")
        && !names::is_wellformed(kind)
    {
        return Err(bad_query(&format!("'{kind}' does not match '^[A-Z0-9_]+$|^all|^unknown$'")));
    }
    let project =
        text("project_id")?.ok_or_else(|| bad_query("'project_id' is a required property"))?;
    Ok(UsagesQuery { project, user: text("user_id")?, kind })
}

/// The name shown for a consumer type; `None` if the filter excludes it.
fn shown_as(kind: Option<&str>, filter: Option<&str>) -> Option<String> {
    let name = kind.unwrap_or("unknown");
    match filter {
        Some("all") => Some("all".into()),
        Some(only) if only != name => None,
        _ => Some(name.to_owned()),
    }
}

async fn total(call: Call) -> Result<Response, Refusal> {
    call.require_version(9)?;
    call.require_accepts_json()?;
    let project = call.query.get("project_id").unwrap_or_default();
    call.may_on("placement:usages", &[("project_id", project)])?;
    let UsagesQuery { project, user, kind } = read(&call)?;
    let (used, counts) = call
        .app
        .store
        .read(move |tx| -> Result<_, Error> {
            Ok((
                consumers::usage(tx, &project, user.as_deref())?,
                consumers::count(tx, &project, user.as_deref())?,
            ))
        })
        .await?;
    if !call.speaks(38) {
        let mut sums: BTreeMap<String, i64> = BTreeMap::new();
        for (_, class, amount) in used {
            *sums.entry(class.into()).or_default() += amount;
        }
        return Ok(call.json(StatusCode::OK, &json!({"usages": sums}), None));
    }
    let mut sums: BTreeMap<String, BTreeMap<String, i64>> = BTreeMap::new();
    let counts = counts.into_iter().map(|(of, n)| (of, "consumer_count".to_owned(), n));
    let used = used.into_iter().map(|(of, class, n)| (of, String::from(class), n));
    for (of, class, amount) in used.chain(counts) {
        if let Some(name) = shown_as(of.as_deref(), kind.as_deref()) {
            *sums.entry(name).or_default().entry(class).or_default() += amount;
        }
    }
    Ok(call.json(StatusCode::OK, &json!({"usages": sums}), None))
}

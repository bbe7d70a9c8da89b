//! `/os-migrations`: the migrations of all servers, for operators.

mod filter;
pub(super) mod view;

use axum::Json;
use axum::extract::State;
use filter::MigrationFilter;
use kilonova_access::{Caller, Routes, get};
use kilonova_compute_app::{Compute, Error, microversions};
use kilonova_compute_db::moves::{self, Move};
use kilonova_ids::{ConsumerId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::paging::Page;
use kilonova_wire::query::Query;
use kilonova_wire::{Microversion, Refusal};
use serde_json::{Value, json};
use view::MigrationViews;

use super::links;
use crate::api::links::Base;

/// Number of rows read per query.
const CHUNK: i64 = 500;

pub(super) fn routes() -> Routes<Compute> {
    Routes::new().route("/v2.1/os-migrations", [get("os_compute_api:os-migrations:index", list)])
}

async fn list(
    State(compute): State<Compute>,
    caller: Caller,
    base: Base,
    version: Microversion,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    // A request without `project_id` covers all projects.
    if query.get("project_id").is_none_or(|project| project != caller.project_id) {
        caller.may_own("os_compute_api:os-migrations:index:all_projects")?;
    }
    let filter = MigrationFilter::read(&query, version)?;
    let paged = version >= microversions::MIGRATION_PAGES;
    let page = if paged { Page::read(&query)? } else { Page::read(&Query::default())? };
    let (marker, limit) = (page.marker.clone(), page.limit);
    let read = move |tx: &mut Tx<'_>| {
        let before = match &marker {
            None => i64::MAX,
            Some(marker) => number_of(tx, marker)?,
        };
        let found = collect(tx, before, limit + 1, &filter)?;
        let views = MigrationViews::read(tx, &found)?;
        Ok::<_, Error>((found, views))
    };
    let (mut found, views) = compute.store.read(read).await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let last = found.last().map(|last| last.id.to_string());
    if !paged {
        found.reverse();
    }
    let hosts = caller.allows_own("os_compute_api:os-migrations:index:host");
    let brief = |one| view::with_hosts(views.brief(one, version, &base), hosts);
    let shown: Vec<Value> = found.iter().map(brief).collect();
    let mut answer = json!({"migrations": shown});
    if let Some(last) = last.filter(|_| more && paged) {
        answer["migrations_links"] = links::next(&base, "os-migrations", &query, &last);
    }
    Ok(Json(answer))
}

fn number_of(tx: &mut Tx<'_>, marker: &str) -> Result<i64, Error> {
    let known = parse_uuid_like::<ConsumerId>(marker).map(|id| moves::number_of(tx, id));
    let known = known.transpose()?.flatten();
    known.ok_or_else(|| {
        Refusal::bad_request(format!("Marker {} not found", marker.escape_debug())).into()
    })
}

/// The newest `limit` migrations with a number below `before` that match the filter.
fn collect(
    tx: &mut Tx<'_>,
    mut before: i64,
    limit: usize,
    filter: &MigrationFilter,
) -> Result<Vec<Move>, Error> {
    let mut found = Vec::new();
    loop {
        let rows = moves::page(tx, before, CHUNK)?;
        let Some(last) = rows.last().map(|row| row.number) else { return Ok(found) };
        before = last;
        for row in rows {
            if filter.matches(&row) {
                found.push(row);
                if found.len() == limit {
                    return Ok(found);
                }
            }
        }
    }
}

//! `/explain`: why a server is as it is, and why allocation candidates are few.

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use http::StatusCode;
use kilonova_ids::{ServerId, parse_uuid_like};
use kilonova_wire::query::{Query, escaped};
use serde_json::Value;

use super::PATH;
use super::answers::{Html, Refusal, forbidden, said};
use super::form::Fields;
use super::servers::{Filters, List};
use super::viewer::{OPERATES, Viewer};
use crate::app::Dashboard;
use crate::error::Error;
use crate::views::explain as page;

pub(super) fn routes() -> Router<Dashboard> {
    Router::new().route("/explain", get(show)).route("/servers/{id}/explain", get(server))
}

async fn show(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    query: Query,
) -> Result<Response, Refusal> {
    if !viewer.session.operates {
        return Err(forbidden(dashboard.0.compute.policy.refusal(OPERATES).message));
    }
    let fields = Fields(query);
    let wanted = fields.text("server").unwrap_or_default();
    // Also a server that was deleted has an explanation, which a list does not find.
    if let Some(id) = parse_uuid_like::<ServerId>(wanted) {
        return Ok(Redirect::to(&format!("{PATH}/servers/{id}/explain")).into_response());
    }
    let servers = match wanted {
        "" => None,
        name => {
            let filters =
                Filters { name: name.to_owned(), all_projects: true, ..Filters::default() };
            Some(List::read(&dashboard, &viewer, &filters).await?.servers)
        }
    };
    let mut status = StatusCode::OK;
    let candidates = match fields.text("query") {
        None => None,
        Some(typed) => match candidates(&dashboard, &viewer, typed).await {
            Ok(found) => Some(Ok(found)),
            Err(error) => {
                let (refused, why) = said(error)?;
                status = refused;
                Some(Err(why))
            }
        },
    };
    let page = page::page(&page::Shown {
        session: &viewer.session,
        server: wanted,
        servers: servers.as_deref(),
        query: fields.raw("query"),
        candidates: candidates.as_ref(),
    });
    Ok((status, Html(page)).into_response())
}

/// The explanation of a query, which has one condition in each line or `&` between them.
async fn candidates(dashboard: &Dashboard, viewer: &Viewer, typed: &str) -> Result<Value, Error> {
    let lines: Vec<&str> = typed.split(['\n', '&']).map(str::trim).collect();
    let pairs = lines.iter().filter_map(|line| {
        let (key, value) = line.trim_start_matches('?').split_once('=')?;
        Some(format!("{}={}", escaped(key.trim()), escaped(value.trim())))
    });
    let query = pairs.collect::<Vec<_>>().join("&");
    let path = format!("/placement/allocation_candidates/explain?{query}");
    dashboard.0.cloud.get(&viewer.caller, &path).await
}

async fn server(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Result<Html, Refusal> {
    let path = format!("/compute/v2.1/kilonova/servers/{}", escaped(&id));
    let mut found = dashboard.0.cloud.get(&viewer.caller, &path).await?;
    Ok(Html(page::server(&viewer.session, &found["server"].take())))
}

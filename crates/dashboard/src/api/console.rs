//! `/servers/{id}/console`: a page with the display of the guest.

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::get;
use kilonova_wire::query::escaped;
use serde_json::json;

use super::answers::{Html, Refusal};
use super::server::find;
use super::viewer::Viewer;
use crate::app::Dashboard;
use crate::views;

pub(super) fn routes() -> Router<Dashboard> {
    Router::new().route("/servers/{id}/console", get(show))
}

async fn show(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Result<Html, Refusal> {
    let server = find(&dashboard, &viewer, &id).await?;
    let path = format!("/compute/v2.1/servers/{}/remote-consoles", escaped(&id));
    let body = json!({"remote_console": {"protocol": "vnc", "type": "novnc"}});
    let opened = dashboard.0.cloud.post(&viewer.caller, &path, body).await?;
    let url = opened["remote_console"]["url"].as_str().unwrap_or_default();
    let embedded = viewer.caller.is_own(url);
    Ok(Html(views::console::page(&viewer.session, &server, url, embedded)))
}

//! `/doctor`: the findings of the doctor, each with its remedy.

use axum::Router;
use axum::extract::State;
use axum::routing::get;

use super::answers::{Html, Refusal};
use super::viewer::Viewer;
use crate::app::Dashboard;
use crate::views;

pub(super) fn routes() -> Router<Dashboard> {
    Router::new().route("/doctor", get(show))
}

async fn show(State(dashboard): State<Dashboard>, viewer: Viewer) -> Result<Html, Refusal> {
    let mut found = dashboard.0.cloud.get(&viewer.caller, "/compute/v2.1/kilonova/doctor").await?;
    Ok(Html(views::doctor::page(&viewer.session, &found["doctor"].take())))
}

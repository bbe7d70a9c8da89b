//! `/quotas`: the limits of the project, and its usage.

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use kilonova_wire::query::escaped;

use super::answers::{Html, Refusal};
use super::server::part;
use super::viewer::Viewer;
use crate::app::Dashboard;
use crate::views;

pub(super) fn routes() -> Router<Dashboard> {
    Router::new().route("/quotas", get(show))
}

async fn show(State(dashboard): State<Dashboard>, viewer: Viewer) -> Result<Html, Refusal> {
    let project = escaped(&viewer.session.project);
    let compute = format!("/compute/v2.1/os-quota-sets/{project}/detail");
    let compute = part(&dashboard, &viewer, &compute).await?;
    // Neutron's default policy shows it to managers and administrators.
    let network = format!("/network/v2.0/quotas/{project}/details");
    let network = part(&dashboard, &viewer, &network).await?;
    Ok(Html(views::quotas::page(&viewer.session, &compute["quota_set"], &network["quota"])))
}

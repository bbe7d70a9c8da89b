//! `/servers/{id}/actions/{action}`: what an action does and what it costs, and its request.

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use kilonova_compute_app::actions::ServerAction;
use kilonova_wire::query::escaped;
use serde_json::{Value, json};

use super::PATH;
use super::answers::{Html, Refusal};
use super::form::Form;
use super::launch::flavors;
use super::server::find;
use super::viewer::Viewer;
use crate::app::Dashboard;
use crate::app::actions::{Ask, Offer, body, by_slug, offered};
use crate::error::Error;
use crate::texts;
use crate::views::action as page;

pub(super) fn routes() -> Router<Dashboard> {
    Router::new().route("/servers/{id}/actions/{action}", get(ask).post(perform))
}

async fn ask(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    Path((id, slug)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    let offer = by_slug(&slug).ok_or(Error::NoPage)?;
    let server = find(&dashboard, &viewer, &id).await?;
    let offers = offered(&dashboard.0.compute, &viewer.context, &server);
    if !offers.iter().any(|one| one.action == offer.action) {
        // The state has changed since the button was shown.
        return Ok(Redirect::to(&format!("{PATH}/servers/{}", escaped(&id))).into_response());
    }
    form(&dashboard, &viewer, &server, offer, None).await
}

async fn form(
    dashboard: &Dashboard,
    viewer: &Viewer,
    server: &Value,
    offer: &Offer,
    refused: Option<&str>,
) -> Result<Response, Refusal> {
    let flavors = match offer.ask {
        Ask::Flavor => flavors(dashboard, viewer).await?,
        Ask::Nothing | Ask::Confirm(_) | Ask::ImageName => Vec::new(),
    };
    let shown = page::Shown { session: &viewer.session, server, offer, flavors: &flavors, refused };
    Ok(Html(page::page(&shown)).into_response())
}

/// Requests an action.
///
/// # Errors
/// [`Error::Unreadable`] if the form lacks what the action needs; the service's refusals.
pub(super) async fn request(
    dashboard: &Dashboard,
    viewer: &Viewer,
    offer: &Offer,
    server: &Value,
    given: impl Fn(&str) -> Option<String>,
) -> Result<(), Error> {
    let id = server["id"].as_str().unwrap_or_default();
    let path = format!("/compute/v2.1/servers/{}", escaped(id));
    let cloud = &dashboard.0.cloud;
    match offer.action {
        ServerAction::Delete => return cloud.delete(&viewer.caller, &path).await,
        ServerAction::AbortLiveMigration => {
            let migration = live_migration(dashboard, viewer, &path).await?;
            return cloud.delete(&viewer.caller, &migration).await;
        }
        ServerAction::ForceComplete => {
            let migration = live_migration(dashboard, viewer, &path).await?;
            let body = json!({"force_complete": null});
            return cloud
                .post(&viewer.caller, &format!("{migration}/action"), body)
                .await
                .map(drop);
        }
        _ => {}
    }
    let body = body(offer, server, given).ok_or(Error::Unreadable(texts::FIELD_MISSING))?;
    cloud.post(&viewer.caller, &format!("{path}/action"), body).await.map(drop)
}

/// The address of a server's live migration in progress.
async fn live_migration(
    dashboard: &Dashboard,
    viewer: &Viewer,
    server: &str,
) -> Result<String, Error> {
    let found = dashboard.0.cloud.get(&viewer.caller, &format!("{server}/migrations")).await?;
    let number = found["migrations"][0]["id"].as_i64();
    number.map(|number| format!("{server}/migrations/{number}")).ok_or_else(|| Error::Refused {
        status: 409,
        message: texts::NO_MIGRATION.to_owned(),
        request: None,
        retry_after: None,
    })
}

async fn perform(
    State(dashboard): State<Dashboard>,
    Path((id, slug)): Path<(String, String)>,
    form_: Form,
) -> Result<Response, Refusal> {
    let Form { viewer, fields } = form_;
    let offer = by_slug(&slug).ok_or(Error::NoPage)?;
    let server = find(&dashboard, &viewer, &id).await?;
    let given = |name: &str| fields.text(name).map(str::to_owned);
    match request(&dashboard, &viewer, offer, &server, given).await {
        Err(Error::Unreadable(_)) => form(&dashboard, &viewer, &server, offer, None).await,
        Ok(()) if matches!(offer.action, ServerAction::Delete | ServerAction::ForceDelete) => {
            Ok(Redirect::to(&format!("{PATH}/servers")).into_response())
        }
        Ok(()) => Ok(Redirect::to(&format!("{PATH}/servers/{}", escaped(&id))).into_response()),
        Err(Error::Refused { status: 400 | 409, message, .. }) => {
            let mut response = form(&dashboard, &viewer, &server, offer, Some(&message)).await?;
            *response.status_mut() = http::StatusCode::CONFLICT;
            Ok(response)
        }
        Err(error) => Err(error.into()),
    }
}

//! `/servers/{id}/actions/{action}`: the page that explains an action, and the request for the action.
//!
//! The metadata and the tags of a server are replaced as a whole. A form therefore includes a key derived from the
//! values that it shows, and a form with outdated values is refused, so that another user's change is not lost.

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use http::{Method, StatusCode};
use kilonova_compute_app::actions::ServerAction;
use kilonova_wire::query::escaped;
use serde_json::{Value, json};

use super::PATH;
use super::answers::{Html, Refusal};
use super::form::{Fields, Form};
use super::launch::{flavors, listed, networks};
use super::server::find;
use super::viewer::Viewer;
use crate::app::Dashboard;
use crate::app::actions::{Ask, Offer, body, by_slug, offered};
use crate::app::edit;
use crate::app::floor::key_of;
use crate::error::Error;
use crate::texts;
use crate::views::action as page;

/// Maximum number of free ports that a form offers.
const PORTS: usize = 200;

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
    form(&dashboard, &viewer, &server, offer, None, None).await
}

/// The form of an action, with the user's input if the request was refused.
async fn form(
    dashboard: &Dashboard,
    viewer: &Viewer,
    server: &Value,
    offer: &Offer,
    refused: Option<&str>,
    typed: Option<&Fields>,
) -> Result<Response, Refusal> {
    let choices = choices(dashboard, viewer, server, offer.ask).await?;
    let typed = |name: &str| typed.map(|fields| fields.raw(name).to_owned());
    let session = &viewer.session;
    let shown =
        page::Shown { session, server, offer, choices: choices.as_deref(), refused, typed: &typed };
    Ok(Html(page::page(&shown)).into_response())
}

/// The choices of an action's form; `None` for a form without choices.
async fn choices(
    dashboard: &Dashboard,
    viewer: &Viewer,
    server: &Value,
    ask: Ask,
) -> Result<Option<Vec<page::Choice>>, Error> {
    let below = |part: &str| {
        let id = escaped(server["id"].as_str().unwrap_or_default());
        format!("/compute/v2.1/servers/{id}/{part}")
    };
    let choices = match ask {
        Ask::Flavor => {
            let now = &server["flavor"]["original_name"];
            let all = flavors(dashboard, viewer).await?;
            all.iter().filter(|flavor| flavor["name"] != *now).map(page::flavor).collect()
        }
        Ask::Network => {
            let mut all: Vec<_> =
                networks(dashboard, viewer).await?.iter().map(page::network).collect();
            all.extend(free_ports(dashboard, viewer).await?.iter().map(page::free_port));
            all
        }
        Ask::Port => {
            let path = below("os-interface");
            let all = listed(dashboard, viewer, &path, "interfaceAttachments").await?;
            all.iter().map(page::port).collect()
        }
        Ask::Attached => {
            let path = below("os-volume_attachments");
            let all = listed(dashboard, viewer, &path, "volumeAttachments").await?;
            all.iter().map(page::volume).collect()
        }
        Ask::Nothing
        | Ask::Confirm(_)
        | Ask::ImageName
        | Ask::Name
        | Ask::Backup
        | Ask::Volume
        | Ask::Metadata
        | Ask::Tags => return Ok(None),
    };
    Ok(Some(choices))
}

/// The project's ports that belong to no server, at most as many as the form shows.
async fn free_ports(dashboard: &Dashboard, viewer: &Viewer) -> Result<Vec<Value>, Error> {
    let project = &viewer.session.project;
    let path = format!("/network/v2.0/ports?device_id=&project_id={}", escaped(project));
    let mut ports = listed(dashboard, viewer, &path, "ports").await?;
    ports.retain(|port| port["device_id"] == "" && port["project_id"] == project.as_str());
    ports.truncate(PORTS);
    Ok(ports)
}

/// Requests an action.
///
/// # Errors
/// [`Error::Unreadable`] if the form lacks a field that the action needs; the service's refusals.
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
    let needed = |name: &str| given(name).ok_or(Error::Unreadable(texts::FIELD_MISSING));
    match offer.action {
        ServerAction::Update => {
            let wanted = json!({"name": needed("name")?, "description": given("description")});
            let body = json!({"server": wanted});
            return cloud.send(&viewer.caller, Method::PUT, &path, Some(body)).await.map(drop);
        }
        ServerAction::ChangeMetadata => {
            check_shown(&given, &edit::metadata_text(server))?;
            let wanted = edit::metadata(&given("metadata").unwrap_or_default()).map_err(refused)?;
            let (path, body) = (format!("{path}/metadata"), json!({"metadata": wanted}));
            return cloud.send(&viewer.caller, Method::PUT, &path, Some(body)).await.map(drop);
        }
        ServerAction::ChangeTags => {
            check_shown(&given, &edit::tags_text(server))?;
            let text = given("tags").unwrap_or_default();
            let wanted = edit::tags(&text);
            let (path, body) = (format!("{path}/tags"), json!({"tags": wanted}));
            return cloud.send(&viewer.caller, Method::PUT, &path, Some(body)).await.map(drop);
        }
        ServerAction::AttachInterface => {
            let chosen = needed("target")?;
            let wanted = match chosen.split_once(' ') {
                Some(("network", id)) => json!({"net_id": id}),
                Some(("port", id)) => json!({"port_id": id}),
                _ => return Err(Error::Unreadable(texts::FIELD_MISSING)),
            };
            let body = json!({"interfaceAttachment": wanted});
            let path = format!("{path}/os-interface");
            return cloud.post(&viewer.caller, &path, body).await.map(drop);
        }
        ServerAction::DetachInterface => {
            let port = format!("{path}/os-interface/{}", escaped(&needed("port")?));
            return cloud.delete(&viewer.caller, &port).await;
        }
        ServerAction::AttachVolume => {
            let body = json!({"volumeAttachment": {"volumeId": needed("volume")?}});
            let path = format!("{path}/os-volume_attachments");
            return cloud.post(&viewer.caller, &path, body).await.map(drop);
        }
        ServerAction::DetachVolume => {
            let volume = escaped(&needed("volume")?).to_string();
            let volume = format!("{path}/os-volume_attachments/{volume}");
            return cloud.delete(&viewer.caller, &volume).await;
        }
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

/// A refusal by the dashboard itself.
fn refused(why: &str) -> Error {
    Error::Refused { status: 400, message: why.to_owned(), request: None, retry_after: None }
}

/// Refuses a form that shows an outdated value.
fn check_shown(given: impl Fn(&str) -> Option<String>, now: &str) -> Result<(), Error> {
    if given("shown").unwrap_or_default() == key_of(now) {
        return Ok(());
    }
    let message = texts::CHANGED_MEANWHILE.to_owned();
    Err(Error::Refused { status: 409, message, request: None, retry_after: None })
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
    let given = |name: &str| match name {
        // Blanks around a value are part of it.
        "metadata" => Some(fields.raw(name).to_owned()),
        _ => fields.text(name).map(str::to_owned),
    };
    match request(&dashboard, &viewer, offer, &server, given).await {
        Err(Error::Unreadable(why)) => {
            form(&dashboard, &viewer, &server, offer, Some(why), Some(&fields)).await
        }
        Ok(()) if matches!(offer.action, ServerAction::Delete | ServerAction::ForceDelete) => {
            Ok(Redirect::to(&format!("{PATH}/servers")).into_response())
        }
        Ok(()) => Ok(Redirect::to(&format!("{PATH}/servers/{}", escaped(&id))).into_response()),
        // The server was found, so a 404 means that the object chosen for the action does not exist.
        Err(Error::Refused { status: status @ (400 | 404 | 409 | 413), message, .. }) => {
            let (why, typed) = (Some(&*message), Some(&fields));
            let mut response = form(&dashboard, &viewer, &server, offer, why, typed).await?;
            *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::CONFLICT);
            Ok(response)
        }
        Err(error) => Err(error.into()),
    }
}

//! `/servers/{id}`: one server, with details that only its own page shows.

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::get;
use http::HeaderMap;
use kilonova_wire::query::{Query, escaped};
use serde_json::{Value, json};

use super::answers::{Html, Refusal};
use super::viewer::Viewer;
use crate::app::Dashboard;
use crate::app::actions::offered;
use crate::error::Error;
use crate::views::server as page;

/// Number of lines of the console log on a page.
const LOG_LINES: u64 = 200;

pub(super) fn routes() -> Router<Dashboard> {
    Router::new().route("/servers/{id}", get(show)).route("/servers/{id}/log", get(log))
}

/// The server with this id.
pub(super) async fn find(dashboard: &Dashboard, viewer: &Viewer, id: &str) -> Result<Value, Error> {
    let path = format!("/compute/v2.1/servers/{}", escaped(id));
    let mut found = dashboard.0.cloud.get(&viewer.caller, &path).await?;
    Ok(found["server"].take())
}

/// A part of the page; null if the user may not see it, or if it is gone.
pub(super) async fn part(
    dashboard: &Dashboard,
    viewer: &Viewer,
    path: &str,
) -> Result<Value, Error> {
    match dashboard.0.cloud.get(&viewer.caller, path).await {
        Ok(body) => Ok(body),
        Err(error) if error.is(403) || error.is(404) => Ok(Value::Null),
        Err(error) => Err(error),
    }
}

/// The name of a server's image. An open page that updates itself sends the name that it shows, so that a change of
/// the server needs no request to the image service. The `hx-request` header proves that our page sent the name: no
/// other site can make a browser send this header.
async fn image_of(
    dashboard: &Dashboard,
    viewer: &Viewer,
    server: &Value,
    query: &Query,
    headers: &HeaderMap,
) -> Result<String, Error> {
    let Some(image) = server["image"]["id"].as_str() else { return Ok(String::new()) };
    if headers.contains_key("hx-request")
        && query.get("image") == Some(image)
        && let Some(name) = query.get("named")
    {
        return Ok(name.to_owned());
    }
    let found = part(dashboard, viewer, &format!("/image/v2/images/{}", escaped(image))).await?;
    Ok(found["name"].as_str().unwrap_or_default().to_owned())
}

async fn show(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    Path(id): Path<String>,
    query: Query,
    headers: HeaderMap,
) -> Result<Html, Refusal> {
    let server = find(&dashboard, &viewer, &id).await?;
    let id = escaped(&id);
    let below = format!("/compute/v2.1/servers/{id}");
    let records = format!("/compute/v2.1/kilonova/servers/{id}");
    let records = part(&dashboard, &viewer, &records).await?;
    let ports = part(&dashboard, &viewer, &format!("{below}/os-interface")).await?;
    let volumes = match &dashboard.0.compute.volumes {
        Some(_) => part(&dashboard, &viewer, &format!("{below}/os-volume_attachments")).await?,
        None => Value::Null,
    };
    let history = format!("{below}/os-instance-actions?limit=20");
    let history = part(&dashboard, &viewer, &history).await?;
    let image = image_of(&dashboard, &viewer, &server, &query, &headers).await?;
    let offers = offered(&dashboard.0.compute, &viewer.context, &server);
    let target = [
        ("project_id", server["tenant_id"].as_str().unwrap_or_default()),
        ("user_id", server["user_id"].as_str().unwrap_or_default()),
    ];
    let allows = |rule: &str| dashboard.0.compute.policy.allows(&viewer.context, rule, &target);
    let consoles = &dashboard.0.compute.options.consoles;
    let running = server["status"] == "ACTIVE";
    Ok(Html(page::page(&page::Shown {
        session: &viewer.session,
        server: &server,
        records: &records["server"],
        image: &image,
        ports: &ports["interfaceAttachments"],
        volumes: &volumes["volumeAttachments"],
        history: &history["instanceActions"],
        offers: &offers,
        reads_log: allows("os_compute_api:os-console-output"),
        opens_console: running && consoles.vnc && allows("os_compute_api:os-remote-consoles"),
    })))
}

/// The page of the console log.
async fn log(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Result<Html, Refusal> {
    let server = find(&dashboard, &viewer, &id).await?;
    let path = format!("/compute/v2.1/servers/{}/action", escaped(&id));
    let body = json!({"os-getConsoleOutput": {"length": LOG_LINES}});
    // A server that is not on a host yet has no log; the refusal explains this.
    let text = match dashboard.0.cloud.post(&viewer.caller, &path, body).await {
        Ok(answer) => Ok(answer["output"].as_str().unwrap_or_default().to_owned()),
        Err(Error::Refused { status: 404 | 409, message, .. }) => Err(message),
        Err(error) => return Err(error.into()),
    };
    Ok(Html(page::log(&viewer.session, &server, &text)))
}

//! `/hosts/{host}`: one host with its servers and devices, and its drain.
//!
//! The compute service carries out a drain. The page requests it, shows its progress and stops it.

use std::collections::BTreeSet;

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use http::Method;
use kilonova_compute_app::drain::DrainedHost;
use kilonova_ids::{ServerId, parse_uuid_like};
use kilonova_wire::query::escaped;
use serde_json::{Value, json};

use super::answers::{Html, Refusal};
use super::floor::{projects, some_hosts};
use super::form::Form;
use super::viewer::Viewer;
use crate::app::Dashboard;
use crate::app::floor::{Host, Projects, key_of};
use crate::error::Error;
use crate::texts;
use crate::views::host as page;

/// The policy rule for changes to a host.
const CHANGE_RULE: &str = "os_compute_api:os-services:update";
/// The policy rule for its drain.
const DRAIN_RULE: &str = "kilonova:hosts:drain";
/// Maximum number of ownership changes on a page.
const CHANGES: usize = 30;

pub(super) fn routes() -> Router<Dashboard> {
    Router::new()
        .route("/hosts/{host}", get(show))
        .route("/hosts/{host}/drain", post(drain))
        .route("/hosts/{host}/drain/stop", post(stop))
        .route("/hosts/{host}/enable", post(enable))
        .route("/hosts/{host}/disable", post(disable))
        .route("/hosts/{host}/devices/{uuid}/{change}", post(change_device))
}

/// A host as the services describe it.
pub(crate) struct Found {
    /// The compute service's answer.
    pub host: Value,
    /// The same answer, parsed for its drain.
    pub drained: DrainedHost,
    /// Its devices; `None` if the compute service no longer has the host in memory.
    pub floor: Option<Host>,
    /// Changes of the owners of its devices, the newest first.
    pub changes: Value,
    /// Its certificate.
    pub certificate: Value,
    /// The projects of the cloud.
    pub projects: Projects,
}

impl Found {
    /// A digest of the shown state: two pages that show different states have different digests.
    pub(crate) fn digest(&self) -> String {
        let floor = self.floor.as_ref().map_or(0, Host::fingerprint);
        let shown = ["guests", "state", "status", "disabled_reason", "forced_down", "drain"];
        let text: String = shown.iter().map(|key| self.host[*key].to_string()).collect();
        key_of(&format!("{floor} {text}"))
    }
}

/// The ids of the servers that are on a host, or that have a document or a claim there.
pub(super) async fn servers(
    dashboard: &Dashboard,
    viewer: &Viewer,
    name: &str,
) -> Result<BTreeSet<ServerId>, Error> {
    let (_, host) = explained(dashboard, viewer, name).await?;
    Ok(host.guests.iter().filter_map(|guest| parse_uuid_like(&guest.id)).collect())
}

/// A host by its name.
pub(super) async fn find(
    dashboard: &Dashboard,
    viewer: &Viewer,
    name: &str,
) -> Result<Found, Error> {
    let cloud = &dashboard.0.cloud;
    let (host, drained) = explained(dashboard, viewer, name).await?;
    let floor = some_hosts(dashboard, viewer, [name]).await?.into_iter().next();
    let changes = format!(
        "/accelerator/v2/kilonova/handle_changes?hostname={}&limit={CHANGES}",
        escaped(name)
    );
    let optional = async |path: &str| match cloud.get(&viewer.caller, path).await {
        Ok(found) => Ok(found),
        Err(error) if [403, 404, 409].iter().any(|status| error.is(*status)) => Ok(Value::Null),
        Err(error) => Err(error),
    };
    let mut changes = optional(&changes).await?;
    let enrolled = optional("/compute/v2.1/kilonova/enrollments").await?;
    let certificates = enrolled["certificates"].as_array().into_iter().flatten();
    let mut own = certificates.filter(|one| one["host"] == name && one["state"] == "valid");
    Ok(Found {
        drained,
        host,
        floor,
        changes: changes["handle_changes"].take(),
        certificate: own.next_back().cloned().unwrap_or_default(),
        projects: projects(dashboard, viewer).await?,
    })
}

async fn explained(
    dashboard: &Dashboard,
    viewer: &Viewer,
    name: &str,
) -> Result<(Value, DrainedHost), Error> {
    let path = format!("/compute/v2.1/kilonova/hosts/{}", escaped(name));
    let mut answer = dashboard.0.cloud.get(&viewer.caller, &path).await?;
    let host = answer["host"].take();
    let drained = serde_json::from_value(host.clone())
        .map_err(|error| Error::Defect(format!("the description of a host: {error}")))?;
    Ok((host, drained))
}

async fn show(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    Path(name): Path<String>,
) -> Result<Html, Refusal> {
    let found = find(&dashboard, &viewer, &name).await?;
    let may = |rule| dashboard.0.compute.policy.allows_own(&viewer.context, rule);
    let (changes, drains) = (may(CHANGE_RULE), may(DRAIN_RULE));
    let session = &viewer.session;
    Ok(Html(page::page(&page::Shown { session, found: &found, changes, drains })))
}

/// The address of a host's drain in the compute service.
fn drain_of(name: &str) -> String {
    format!("/compute/v2.1/kilonova/hosts/{}/drain", escaped(name))
}

/// Begins or restarts a drain.
async fn drain(
    State(dashboard): State<Dashboard>,
    Path(name): Path<String>,
    form: Form,
) -> Result<Response, Refusal> {
    let reason = form.fields.text("reason").unwrap_or(texts::DRAINED_BY);
    let cold = form.fields.text("cold").is_some();
    let wanted = json!({"drain": {"cold": cold, "reason": reason}});
    dashboard.0.cloud.post(&form.viewer.caller, &drain_of(&name), wanted).await?;
    Ok(back(&name))
}

async fn stop(
    State(dashboard): State<Dashboard>,
    Path(name): Path<String>,
    form: Form,
) -> Result<Response, Refusal> {
    match dashboard.0.cloud.delete(&form.viewer.caller, &drain_of(&name)).await {
        // The drain has ended meanwhile, as the page shows.
        Err(error) if error.is(409) => {}
        stopped => stopped?,
    }
    Ok(back(&name))
}

/// The status of a disabled host. The service refuses an empty reason.
fn disabled(reason: Option<&str>) -> Value {
    match reason {
        Some(reason) => json!({"status": "disabled", "disabled_reason": reason}),
        None => json!({"status": "disabled"}),
    }
}

/// Enables or disables a host.
async fn set_status(
    dashboard: &Dashboard,
    viewer: &Viewer,
    service: &str,
    status: Value,
) -> Result<(), Error> {
    let path = format!("/compute/v2.1/os-services/{}", escaped(service));
    let cloud = &dashboard.0.cloud;
    cloud.send(&viewer.caller, Method::PUT, &path, Some(status)).await.map(drop)
}

fn back(name: &str) -> Response {
    Redirect::to(&format!("{}/hosts/{}", super::PATH, escaped(name))).into_response()
}

async fn enable(
    State(dashboard): State<Dashboard>,
    Path(name): Path<String>,
    form: Form,
) -> Result<Response, Refusal> {
    let (_, host) = explained(&dashboard, &form.viewer, &name).await?;
    set_status(&dashboard, &form.viewer, &host.service_id, json!({"status": "enabled"})).await?;
    Ok(back(&name))
}

async fn disable(
    State(dashboard): State<Dashboard>,
    Path(name): Path<String>,
    form: Form,
) -> Result<Response, Refusal> {
    let (_, host) = explained(&dashboard, &form.viewer, &name).await?;
    let status = disabled(form.fields.text("reason"));
    set_status(&dashboard, &form.viewer, &host.service_id, status).await?;
    Ok(back(&name))
}

async fn change_device(
    State(dashboard): State<Dashboard>,
    Path((name, uuid, change)): Path<(String, String, String)>,
    form: Form,
) -> Result<Response, Refusal> {
    let change = match change.as_str() {
        "enable" => "enable",
        "disable" => "disable",
        _ => return Err(Error::NoPage.into()),
    };
    let path = format!("/accelerator/v2/devices/{}/{change}", escaped(&uuid));
    let cloud = &dashboard.0.cloud;
    cloud.send(&form.viewer.caller, Method::POST, &path, None).await?;
    Ok(back(&name))
}

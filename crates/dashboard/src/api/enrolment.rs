//! `/enrolment`: the hosts that have joined, and the command with which another one joins.

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use serde_json::{Value, json};

use super::answers::{Html, Refusal};
use super::form::Form;
use super::viewer::Viewer;
use crate::app::Dashboard;
use crate::error::Error;
use crate::views::enrolment as page;

/// The path at which operators create tokens.
const ENROLLMENTS: &str = "/compute/v2.1/kilonova/enrollments";
/// The hours for which a token may be valid.
pub(crate) const HOURS: [i64; 4] = [1, 8, 24, 72];

pub(super) fn routes() -> Router<Dashboard> {
    Router::new().route("/enrolment", get(show).post(make))
}

async fn show(State(dashboard): State<Dashboard>, viewer: Viewer) -> Result<Response, Refusal> {
    shown(&dashboard, &viewer, None, None).await
}

async fn shown(
    dashboard: &Dashboard,
    viewer: &Viewer,
    made: Option<&Value>,
    refused: Option<&str>,
) -> Result<Response, Refusal> {
    let enrolled = match dashboard.0.cloud.get(&viewer.caller, ENROLLMENTS).await {
        Ok(found) => Some(found),
        // There is no listener for hosts.
        Err(error) if error.is(409) => None,
        Err(error) => return Err(error.into()),
    };
    let session = &viewer.session;
    let enrolled = enrolled.as_ref();
    Ok(Html(page::page(&page::Shown { session, enrolled, made, refused })).into_response())
}

async fn make(State(dashboard): State<Dashboard>, form: Form) -> Result<Response, Refusal> {
    let Form { viewer, fields } = form;
    let hours = fields.text("hours").and_then(|text| text.parse().ok());
    let hours = hours.filter(|hours| HOURS.contains(hours)).unwrap_or(HOURS[0]);
    let body = json!({"enrollment": {
        "host": fields.text("host"),
        "valid": hours * 3600,
        "replace": fields.text("replace").is_some(),
    }});
    match dashboard.0.cloud.post(&viewer.caller, ENROLLMENTS, body).await {
        Ok(made) => shown(&dashboard, &viewer, Some(&made["enrollment"]), None).await,
        Err(Error::Refused { status: 400 | 409, message, .. }) => {
            let mut response = shown(&dashboard, &viewer, None, Some(&message)).await?;
            *response.status_mut() = StatusCode::CONFLICT;
            Ok(response)
        }
        Err(error) => Err(error.into()),
    }
}

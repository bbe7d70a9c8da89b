//! `/keys`: the user's key pairs. They belong to the user, not to the project.
//!
//! The name of a key pair may be `..`, which browsers remove from a path, so pages pass the name in their query.

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use kilonova_wire::query::{Query, escaped};
use serde_json::{Value, json};

use super::PATH;
use super::answers::{Html, Refusal, forbidden, refusal_for_form};
use super::form::{Fields, Form};
use super::listing::Rows;
use super::removal::Removal;
use super::viewer::Viewer;
use crate::app::Dashboard;
use crate::error::Error;
use crate::texts;
use crate::views::keys as page;

const KEYS: &str = "/compute/v2.1/os-keypairs";
/// The last microversion at which the service generates key pairs.
const GENERATES: &str = "compute 2.91";
const CREATE: &str = "os_compute_api:os-keypairs:create";
const DELETE: &str = "os_compute_api:os-keypairs:delete";

pub(super) fn routes() -> Router<Dashboard> {
    Router::new()
        .route("/keys", get(list))
        .route("/new/key", get(new).post(create))
        .route("/key", get(show))
        .route("/key/delete", get(ask).post(remove))
}

/// True if the policy rule allows the user to act on their own key pairs.
fn may(dashboard: &Dashboard, viewer: &Viewer, rule: &str) -> bool {
    let target = [("user_id", viewer.context.user_id.as_str())];
    dashboard.0.compute.policy.allows(&viewer.context, rule, &target)
}

fn required(dashboard: &Dashboard, viewer: &Viewer, rule: &str) -> Result<(), Refusal> {
    match may(dashboard, viewer, rule) {
        true => Ok(()),
        false => Err(forbidden(&dashboard.0.compute.policy, rule)),
    }
}

fn path_of(name: &str) -> String {
    format!("{KEYS}/{}", escaped(name))
}

async fn find(dashboard: &Dashboard, viewer: &Viewer, name: &str) -> Result<Value, Error> {
    let mut found = dashboard.0.cloud.get(&viewer.caller, &path_of(name)).await?;
    Ok(found["keypair"].take())
}

async fn list(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    query: Query,
) -> Result<Html, Refusal> {
    let rows = Rows::read(&dashboard, &viewer, KEYS, "keypairs", &query).await?;
    let creates = may(&dashboard, &viewer, CREATE);
    Ok(Html(page::list(&viewer.session, &rows, creates)))
}

async fn show(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    query: Query,
) -> Result<Html, Refusal> {
    let key = find(&dashboard, &viewer, query.get("name").unwrap_or_default()).await?;
    let deletes = may(&dashboard, &viewer, DELETE);
    Ok(Html(page::page(&viewer.session, &key, None, deletes)))
}

async fn new(State(dashboard): State<Dashboard>, viewer: Viewer) -> Result<Response, Refusal> {
    required(&dashboard, &viewer, CREATE)?;
    let typed = Fields(Query::default());
    Ok(form(&viewer, &typed, StatusCode::OK, None))
}

fn form(viewer: &Viewer, typed: &Fields, status: StatusCode, refused: Option<&str>) -> Response {
    let typed = |name: &str| typed.raw(name).to_owned();
    (status, Html(page::form(&viewer.session, &typed, refused))).into_response()
}

async fn create(State(dashboard): State<Dashboard>, form_: Form) -> Result<Response, Refusal> {
    let Form { viewer, fields } = form_;
    let Some(name) = fields.text("name") else {
        return Ok(form(&viewer, &fields, StatusCode::BAD_REQUEST, Some(texts::NAME_MISSING)));
    };
    let mut key = json!({"name": name, "type": fields.text("type").unwrap_or("ssh")});
    let (cloud, caller) = (&dashboard.0.cloud, &viewer.caller);
    let made = match fields.text("public_key") {
        Some(public) => {
            // Browsers send line breaks as CRLF.
            key["public_key"] = public.replace("\r\n", "\n").into();
            cloud.post(caller, KEYS, json!({"keypair": key})).await
        }
        None => cloud.post_at(caller, KEYS, json!({"keypair": key}), GENERATES).await,
    };
    match made {
        Ok(mut made) => {
            let key = made["keypair"].take();
            let private = key["private_key"].as_str();
            let deletes = may(&dashboard, &viewer, DELETE);
            Ok(Html(page::page(&viewer.session, &key, private, deletes)).into_response())
        }
        Err(error) => {
            let (status, why) = refusal_for_form(error)?;
            Ok(form(&viewer, &fields, status, Some(&why)))
        }
    }
}

fn removal(name: &str) -> Removal {
    let at = format!("name={}", escaped(name));
    Removal {
        name: name.to_owned(),
        loses: texts::KEY_LOSES,
        path: path_of(name),
        here: format!("{PATH}/key/delete?{at}"),
        back: format!("{PATH}/key?{at}"),
        list: format!("{PATH}/keys"),
    }
}

async fn ask(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    query: Query,
) -> Result<Response, Refusal> {
    let name = query.get("name").unwrap_or_default();
    find(&dashboard, &viewer, name).await?;
    required(&dashboard, &viewer, DELETE)?;
    Ok(removal(name).ask(&viewer))
}

async fn remove(
    State(dashboard): State<Dashboard>,
    query: Query,
    form: Form,
) -> Result<Response, Refusal> {
    removal(query.get("name").unwrap_or_default()).perform(&dashboard, &form.viewer).await
}

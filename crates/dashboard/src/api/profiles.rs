//! `/device-profiles`: the devices that servers may request. Administrators create and delete profiles.

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use http::StatusCode;
use kilonova_wire::query::{Query, escaped};
use serde_json::{Map, Value, json};

use super::PATH;
use super::answers::{Html, Refusal, forbidden, refusal_for_form};
use super::form::{Fields, Form};
use super::listing::{Rows, elements};
use super::removal::Removal;
use super::viewer::Viewer;
use crate::app::Dashboard;
use crate::error::Error;
use crate::texts;
use crate::views::profiles as page;

const PROFILES: &str = "/accelerator/v2/device_profiles";
const CREATE: &str = "cyborg:device_profile:create";
const DELETE: &str = "cyborg:device_profile:delete";

pub(super) fn routes() -> Router<Dashboard> {
    Router::new()
        .route("/device-profiles", get(list))
        .route("/new/device-profile", get(new).post(create))
        .route("/device-profiles/{id}", get(show))
        .route("/device-profiles/{id}/delete", get(ask).post(remove))
}

fn may(dashboard: &Dashboard, viewer: &Viewer, rule: &str) -> bool {
    dashboard.0.policies.accelerator.allows_own(&viewer.context, rule)
}

fn required(dashboard: &Dashboard, viewer: &Viewer, rule: &str) -> Result<(), Refusal> {
    match may(dashboard, viewer, rule) {
        true => Ok(()),
        false => Err(forbidden(&dashboard.0.policies.accelerator, rule)),
    }
}

async fn find(dashboard: &Dashboard, viewer: &Viewer, id: &str) -> Result<Value, Error> {
    let path = format!("{PROFILES}/{}", escaped(id));
    let mut found = dashboard.0.cloud.get(&viewer.caller, &path).await?;
    Ok(found["device_profile"].take())
}

async fn list(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    query: Query,
) -> Result<Html, Refusal> {
    // The service returns the list as a whole.
    let mut body = dashboard.0.cloud.get(&viewer.caller, PROFILES).await?;
    let mut all = elements(&mut body["device_profiles"])?;
    all.sort_by(|one, other| one["name"].as_str().cmp(&other["name"].as_str()));
    let rows = Rows::cut(all, &query, |row| row["uuid"].as_str().unwrap_or_default());
    let creates = may(&dashboard, &viewer, CREATE);
    Ok(Html(page::list(&viewer.session, &rows, creates)))
}

async fn show(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Result<Html, Refusal> {
    let profile = find(&dashboard, &viewer, &id).await?;
    let deletes = may(&dashboard, &viewer, DELETE);
    Ok(Html(page::page(&viewer.session, &profile, deletes)))
}

async fn new(State(dashboard): State<Dashboard>, viewer: Viewer) -> Result<Response, Refusal> {
    required(&dashboard, &viewer, CREATE)?;
    Ok(form(&viewer, &Fields(Query::default()), StatusCode::OK, None))
}

fn form(viewer: &Viewer, typed: &Fields, status: StatusCode, refused: Option<&str>) -> Response {
    let typed = |name: &str| typed.raw(name).to_owned();
    (status, Html(page::form(&viewer.session, &typed, refused))).into_response()
}

async fn create(State(dashboard): State<Dashboard>, form_: Form) -> Result<Response, Refusal> {
    let Form { viewer, fields } = form_;
    let body = match body(&fields) {
        Ok(body) => body,
        Err(why) => return Ok(form(&viewer, &fields, StatusCode::BAD_REQUEST, Some(why))),
    };
    match dashboard.0.cloud.post(&viewer.caller, PROFILES, body).await {
        Ok(made) => {
            let id = made["uuid"].as_str().unwrap_or_default();
            let to = format!("{PATH}/device-profiles/{}", escaped(id));
            Ok(Redirect::to(&to).into_response())
        }
        Err(error) => {
            let (status, why) = refusal_for_form(error)?;
            Ok(form(&viewer, &fields, status, Some(&why)))
        }
    }
}

/// The body of `POST /device_profiles`: each line of the groups is a pair, and an empty line begins the next group.
fn body(fields: &Fields) -> Result<Value, &'static str> {
    let name = fields.text("name").ok_or(texts::NAME_MISSING)?;
    let mut groups = vec![Map::new()];
    for line in fields.raw("groups").lines().map(str::trim) {
        if line.is_empty() {
            groups.push(Map::new());
            continue;
        }
        let (key, value) = line.split_once('=').ok_or(texts::GROUPS_WRONG)?;
        if let Some(group) = groups.last_mut() {
            group.insert(key.trim().to_owned(), value.trim().into());
        }
    }
    groups.retain(|group| !group.is_empty());
    let mut profile = json!({"name": name, "groups": groups});
    if let Some(text) = fields.text("description") {
        profile["description"] = text.replace("\r\n", "\n").into();
    }
    Ok(json!([profile]))
}

fn removal(id: &str, profile: &Value) -> Removal {
    let (name, id) = (profile["name"].as_str().unwrap_or_default().to_owned(), escaped(id));
    Removal {
        name,
        loses: texts::PROFILE_LOSES,
        path: format!("{PROFILES}/{id}"),
        here: format!("{PATH}/device-profiles/{id}/delete"),
        back: format!("{PATH}/device-profiles/{id}"),
        list: format!("{PATH}/device-profiles"),
    }
}

async fn ask(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    let profile = find(&dashboard, &viewer, &id).await?;
    required(&dashboard, &viewer, DELETE)?;
    Ok(removal(&id, &profile).ask(&viewer))
}

async fn remove(
    State(dashboard): State<Dashboard>,
    Path(id): Path<String>,
    Form { viewer, .. }: Form,
) -> Result<Response, Refusal> {
    let profile = find(&dashboard, &viewer, &id).await?;
    removal(&id, &profile).perform(&dashboard, &viewer).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_groups() {
        let of = |form: &str| body(&Fields(Query::parse(form)));
        let made = of(
            "name=p&groups=resources%3AVGPU+%3D+1%0D%0Atrait%3AX%3Drequired%0D%0A%0D%0A%0D%0Aa%3Db%3Dc",
        );
        let groups = json!([{"resources:VGPU": "1", "trait:X": "required"}, {"a": "b=c"}]);
        assert_eq!(made, Ok(json!([{"name": "p", "groups": groups}])));
        assert_eq!(of("name=p&groups=VGPU"), Err(texts::GROUPS_WRONG));
        assert_eq!(of("groups=a%3Db"), Err(texts::NAME_MISSING));
        assert_eq!(of("name=p"), Ok(json!([{"name": "p", "groups": []}])));
    }
}

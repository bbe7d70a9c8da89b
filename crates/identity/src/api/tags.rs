//! Tags of projects.

use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use kilonova_access::{Caller, Guard, Routes, delete, get, put};
use kilonova_wire::{Base, JsonBody};
use serde_json::{Value, json};

use super::projects::enforce;
use super::{Answer, id_of, no_content, ok};
use crate::db::projects::Project;
use crate::{Error, Identity};

pub(super) fn routes() -> Routes<Identity> {
    let rule = |rules| Guard::Object(rules);
    Routes::new()
        .route(
            "/v3/projects/{id}/tags",
            [
                get(rule(&["identity:list_project_tags"]), list),
                put(rule(&["identity:update_project_tags"]), replace),
                delete(rule(&["identity:delete_project_tags"]), clear),
            ],
        )
        .route(
            "/v3/projects/{id}/tags/{tag}",
            [
                get(rule(&["identity:get_project_tag"]), has),
                put(rule(&["identity:create_project_tag"]), add),
                delete(rule(&["identity:delete_project_tag"]), remove),
            ],
        )
}

fn view(tags: &[String], id: &str, base: &Base) -> Value {
    json!({"tags": tags, "links": {"self": format!("{}/v3/projects/{id}/tags", base.0)}})
}

/// A project, if the rule allows the caller to read or change its tags.
async fn tagged(
    identity: &Identity,
    caller: &Caller,
    rule: &str,
    id: &str,
) -> Result<Project, kilonova_wire::Refusal> {
    enforce(identity, caller, rule, id).await?;
    id_of("project", id)?;
    Ok(identity.project(id).await?)
}

async fn list(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    Path(id): Path<String>,
) -> Answer {
    let project = tagged(&identity, &caller, "identity:list_project_tags", &id).await?;
    ok(view(&project.tags, &id, &base))
}

async fn replace(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Answer {
    tagged(&identity, &caller, "identity:update_project_tags", &id).await?;
    let project =
        identity.change_tags(&id, "update", move |tags| *tags = body["tags"].clone()).await?;
    ok(view(&project.tags, &id, &base))
}

async fn clear(State(identity): State<Identity>, caller: Caller, Path(id): Path<String>) -> Answer {
    tagged(&identity, &caller, "identity:delete_project_tags", &id).await?;
    identity.change_tags(&id, "update", |tags| *tags = json!([])).await?;
    no_content()
}

fn missing(tag: &str) -> kilonova_wire::Refusal {
    Error::NotFound("project tag", tag.escape_debug().to_string()).into()
}

async fn has(
    State(identity): State<Identity>,
    caller: Caller,
    Path((id, tag)): Path<(String, String)>,
) -> Answer {
    let project = tagged(&identity, &caller, "identity:get_project_tag", &id).await?;
    match project.tags.contains(&tag) {
        true => no_content(),
        false => Err(missing(&tag).into()),
    }
}

async fn add(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    Path((id, tag)): Path<(String, String)>,
) -> Answer {
    tagged(&identity, &caller, "identity:create_project_tag", &id).await?;
    let new = tag.clone();
    identity
        .change_tags(&id, "create", move |tags| {
            if let Value::Array(tags) = tags
                && !tags.iter().any(|have| *have == new)
            {
                tags.push(json!(new));
            }
        })
        .await?;
    let mut answer = StatusCode::CREATED.into_response();
    let place = format!("{}/v3/projects/{id}/tags/{tag}", base.0);
    if let Ok(place) = HeaderValue::try_from(place) {
        answer.headers_mut().insert(header::LOCATION, place);
    }
    Ok(answer)
}

async fn remove(
    State(identity): State<Identity>,
    caller: Caller,
    Path((id, tag)): Path<(String, String)>,
) -> Answer {
    let before = tagged(&identity, &caller, "identity:delete_project_tag", &id).await?;
    // As in upstream, an immutable project is refused with 403 even if it does not have the tag.
    if !before.immutable && !before.tags.contains(&tag) {
        return Err(missing(&tag).into());
    }
    identity
        .change_tags(&id, "delete", move |tags| {
            if let Value::Array(tags) = tags {
                tags.retain(|have| *have != tag);
            }
        })
        .await?;
    no_content()
}

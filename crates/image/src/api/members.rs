//! The projects that an image is shared with.

use axum::extract::{Path, State};
use axum::response::IntoResponse as _;
use kilonova_access::{Guard, Routes, delete, get, post, put};
use kilonova_ids::ImageId;
use kilonova_wire::{Context, JsonBody, Refusal, time};
use serde_json::{Value, json};

use super::{Answer, id_of, no_content};
use crate::{Acceptance, Images, Member};

pub(super) fn routes() -> Routes<Images> {
    Routes::new()
        .route(
            "/v2/images/{id}/members",
            [get(Guard::Object(&["get_members"]), list), post(Guard::Object(&["add_member"]), add)],
        )
        .route(
            "/v2/images/{id}/members/{member}",
            [
                get(Guard::Object(&["get_member"]), show),
                put(Guard::Object(&["modify_member"]), set_member_status),
                delete(Guard::Object(&["delete_member"]), remove),
            ],
        )
}

fn view(image: ImageId, member: &Member) -> Value {
    json!({
        "member_id": member.project,
        "image_id": image,
        "status": member.status.as_str(),
        "created_at": time::zulu(member.created_at),
        "updated_at": time::zulu(member.updated_at),
        "schema": "/v2/schemas/member",
    })
}

async fn list(State(images): State<Images>, context: Context, Path(id): Path<String>) -> Answer {
    let id = id_of(&id)?;
    let members = images.members(&context, id).await?;
    let members: Vec<Value> = members.iter().map(|member| view(id, member)).collect();
    let body = json!({"members": members, "schema": "/v2/schemas/members"});
    Ok(axum::Json(body).into_response())
}

async fn add(
    State(images): State<Images>,
    context: Context,
    Path(id): Path<String>,
    body: JsonBody,
) -> Answer {
    let id = id_of(&id)?;
    let project = match body.0.get("member") {
        None if body.0.is_object() => {
            return Err(Refusal::bad_request("Member to be added not specified"));
        }
        None => {
            let form = "Expected a member in the form: {\"member\": \"image_id\"}";
            return Err(Refusal::bad_request(form));
        }
        Some(Value::String(project)) if !project.is_empty() => project,
        Some(_) => return Err(Refusal::bad_request("Member can't be empty")),
    };
    if project.len() > 255 || project.chars().any(char::is_control) {
        return Err(Refusal::bad_request("A member is a project id of at most 255 bytes."));
    }
    let member = images.add_member(&context, id, project.clone()).await?;
    Ok(axum::Json(view(id, &member)).into_response())
}

async fn show(
    State(images): State<Images>,
    context: Context,
    Path((id, project)): Path<(String, String)>,
) -> Answer {
    let id = id_of(&id)?;
    let member = images.member(&context, id, project).await?;
    Ok(axum::Json(view(id, &member)).into_response())
}

async fn set_member_status(
    State(images): State<Images>,
    context: Context,
    Path((id, project)): Path<(String, String)>,
    body: JsonBody,
) -> Answer {
    let id = id_of(&id)?;
    let status = match body.0.get("status") {
        None if body.0.is_object() => return Err(Refusal::bad_request("Status not specified")),
        None => {
            let form = "Expected a status in the form: {\"status\": \"status\"}";
            return Err(Refusal::bad_request(form));
        }
        Some(status) => status.as_str().and_then(Acceptance::parse).ok_or_else(|| {
            let message =
                "Incorrect request: Status must be \"pending\", \"accepted\" or \"rejected\".";
            Refusal::bad_request(message)
        })?,
    };
    let member = images.set_member_status(&context, id, project, status).await?;
    Ok(axum::Json(view(id, &member)).into_response())
}

async fn remove(
    State(images): State<Images>,
    context: Context,
    Path((id, project)): Path<(String, String)>,
) -> Answer {
    images.remove_member(&context, id_of(&id)?, project).await?;
    no_content()
}

//! `/servers/{id}/tags`: the tags of a server, from 2.26 on.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use kilonova_access::Caller;
use kilonova_compute_app::actions::ServerAction;
use kilonova_compute_app::{Compute, Error, microversions, states};
use kilonova_compute_db::servers;
use kilonova_wire::{JsonBody, Microversion, Refusal, time};
use serde_json::{Value, json};

use crate::api::input;
use crate::api::links::Base;

/// Maximum number of tags of a server.
const MAX_TAGS: usize = 50;

/// Reads and checks a list of tags. Duplicates are dropped.
///
/// # Errors
/// 400 if the value is not a list, or contains too many tags or an invalid one.
pub(super) fn parse(value: &Value) -> Result<Vec<String>, Refusal> {
    let list = value.as_array().ok_or_else(|| {
        Refusal::bad_request(format!(
            "Invalid input for field/attribute tags. Value: {value}. It is not a list."
        ))
    })?;
    check_count(list.len())?;
    let mut tags: Vec<String> = Vec::new();
    for tag in list {
        let text = tag.as_str().ok_or_else(|| {
            Refusal::bad_request(format!(
                "Invalid input for field/attribute tags. Value: {tag}. It is not a string."
            ))
        })?;
        check_tag(text)?;
        if !tags.iter().any(|have| have == text) {
            tags.push(text.to_owned());
        }
    }
    Ok(tags)
}

fn check_tag(tag: &str) -> Result<(), Refusal> {
    if tag.is_empty()
        || tag.chars().count() > 60
        || tag.contains(['/', ','])
        || tag.chars().any(char::is_control)
    {
        return Err(Refusal::bad_request(format!(
            "Tag '{}' is invalid. It must be a string of 1 to 60 characters without '/' and ','.",
            tag.escape_debug()
        )));
    }
    Ok(())
}

fn check_count(count: usize) -> Result<(), Refusal> {
    if count > MAX_TAGS {
        return Err(Refusal::bad_request(format!(
            "The number of tags exceeded the per-server limit {MAX_TAGS}"
        )));
    }
    Ok(())
}

fn check_microversion(version: Microversion) -> Result<(), Refusal> {
    if version < microversions::TAGS {
        return Err(Refusal::not_found("The resource could not be found."));
    }
    Ok(())
}

/// Applies `change` to the tags of a server, and stores them if it returns true. `action` is the name of the
/// change in a refusal.
async fn change(
    compute: &Compute,
    context: Caller,
    id: String,
    action: &'static str,
    mut change: impl FnMut(&mut Vec<String>) -> Result<bool, Refusal> + Send + 'static,
) -> Result<bool, Refusal> {
    Ok(compute
        .store
        .write(move |tx| {
            let mut server = super::find::find(tx, &context, &id)?;
            states::allow_as(&context, &server, ServerAction::ChangeTags, action)?;
            let changed = change(&mut server.tags)?;
            check_count(server.tags.len())?;
            if changed {
                servers::set_tags(tx, server.id, &server.tags, time::now())?;
            }
            Ok::<_, Error>(changed)
        })
        .await?)
}

pub(super) async fn list(
    State(compute): State<Compute>,
    context: Caller,
    version: Microversion,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    check_microversion(version)?;
    let server = compute.store.read(move |tx| super::find::find(tx, &context, &id)).await?;
    Ok(Json(json!({"tags": server.tags})))
}

pub(super) async fn replace(
    State(compute): State<Compute>,
    context: Caller,
    version: Microversion,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Refusal> {
    check_microversion(version)?;
    input::check_only_field(&body, "tags")?;
    let new = parse(&body["tags"])?;
    let answer = json!({"tags": new});
    change(&compute, context, id, "update tags", move |tags| {
        tags.clone_from(&new);
        Ok(true)
    })
    .await?;
    Ok(Json(answer))
}

pub(super) async fn clear(
    State(compute): State<Compute>,
    context: Caller,
    version: Microversion,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    check_microversion(version)?;
    change(&compute, context, id, "delete tags", |tags| {
        tags.clear();
        Ok(true)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn check(
    State(compute): State<Compute>,
    context: Caller,
    version: Microversion,
    Path((id, tag)): Path<(String, String)>,
) -> Result<StatusCode, Refusal> {
    check_microversion(version)?;
    let server = compute.store.read(move |tx| super::find::find(tx, &context, &id)).await?;
    if server.tags.contains(&tag) {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(no_tag(&server.id.to_string(), &tag))
    }
}

pub(super) async fn add(
    State(compute): State<Compute>,
    context: Caller,
    base: Base,
    version: Microversion,
    Path((id, tag)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    check_microversion(version)?;
    check_tag(&tag)?;
    let location = format!("{}/servers/{id}/tags/{tag}", base.versioned());
    let added = change(&compute, context, id, "update tag", move |tags| {
        let new = !tags.contains(&tag);
        if new {
            tags.push(tag.clone());
        }
        Ok(new)
    })
    .await?;
    if !added {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let mut response = StatusCode::CREATED.into_response();
    if let Ok(value) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    Ok(response)
}

pub(super) async fn delete(
    State(compute): State<Compute>,
    context: Caller,
    version: Microversion,
    Path((id, tag)): Path<(String, String)>,
) -> Result<StatusCode, Refusal> {
    check_microversion(version)?;
    let server = id.clone();
    change(&compute, context, id, "delete tag", move |tags| {
        let before = tags.len();
        tags.retain(|have| *have != tag);
        if tags.len() == before { Err(no_tag(&server, &tag)) } else { Ok(true) }
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

fn no_tag(server: &str, tag: &str) -> Refusal {
    Refusal::not_found(format!("Server {server} has no tag '{}'", tag.escape_debug()))
}

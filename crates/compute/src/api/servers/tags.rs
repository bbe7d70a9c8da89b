//! `/servers/{id}/tags`, from 2.26 on.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use kilonova_access::Caller;
use kilonova_wire::time::now_micros;
use kilonova_wire::{Base, Fault, JsonBody, Microversion};
use serde_json::{Value, json};

use crate::api::input;
use crate::app::actions::ServerAction;
use crate::app::states;
use crate::db::servers;
use crate::{Compute, Error, microversions};

/// Tags that a server may have.
const MOST: usize = 50;

/// Reads and checks a list of tags; repeats are dropped.
///
/// # Errors
/// 400 naming the tag.
pub(super) fn parse(value: &Value) -> Result<Vec<String>, Fault> {
    let list = value.as_array().ok_or_else(|| {
        Fault::bad_request(format!(
            "Invalid input for field/attribute tags. Value: {value}. It is not a list."
        ))
    })?;
    check_count(list.len())?;
    let mut tags: Vec<String> = Vec::new();
    for tag in list {
        let text = tag.as_str().ok_or_else(|| {
            Fault::bad_request(format!(
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

fn check_tag(tag: &str) -> Result<(), Fault> {
    if tag.is_empty()
        || tag.chars().count() > 60
        || tag.contains(['/', ','])
        || tag.chars().any(char::is_control)
    {
        return Err(Fault::bad_request(format!(
            "Tag '{}' is invalid. It must be a string of 1 to 60 characters without '/' and ','.",
            tag.escape_debug()
        )));
    }
    Ok(())
}

fn check_count(count: usize) -> Result<(), Fault> {
    if count > MOST {
        return Err(Fault::bad_request(format!(
            "The number of tags exceeded the per-server limit {MOST}"
        )));
    }
    Ok(())
}

fn since_2_26(version: Microversion) -> Result<(), Fault> {
    if version < microversions::TAGS {
        return Err(Fault::not_found("The resource could not be found."));
    }
    Ok(())
}

/// `named` is what refusals call it.
async fn change(
    compute: &Compute,
    context: Caller,
    id: String,
    named: &'static str,
    mut change: impl FnMut(&mut Vec<String>) -> Result<bool, Fault> + Send + 'static,
) -> Result<bool, Fault> {
    Ok(compute
        .store
        .write(move |tx| {
            let mut server = super::find::find(tx, &context, &id)?;
            states::allow_as(&context, &server, ServerAction::ChangeTags, named)?;
            let changed = change(&mut server.tags)?;
            check_count(server.tags.len())?;
            if changed {
                servers::set_tags(tx, server.id, &server.tags, now_micros())?;
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
) -> Result<Json<Value>, Fault> {
    since_2_26(version)?;
    let server = compute.store.read(move |tx| super::find::find(tx, &context, &id)).await?;
    Ok(Json(json!({"tags": server.tags})))
}

pub(super) async fn replace(
    State(compute): State<Compute>,
    context: Caller,
    version: Microversion,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Fault> {
    since_2_26(version)?;
    input::alone(&body, "tags")?;
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
) -> Result<StatusCode, Fault> {
    since_2_26(version)?;
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
) -> Result<StatusCode, Fault> {
    since_2_26(version)?;
    let server = compute.store.read(move |tx| super::find::find(tx, &context, &id)).await?;
    if server.tags.contains(&tag) {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(absent(&server.id.to_string(), &tag))
    }
}

pub(super) async fn add(
    State(compute): State<Compute>,
    context: Caller,
    base: Base,
    version: Microversion,
    Path((id, tag)): Path<(String, String)>,
) -> Result<Response, Fault> {
    since_2_26(version)?;
    check_tag(&tag)?;
    let location = format!("{}/v2.1/servers/{id}/tags/{tag}", base.0);
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
) -> Result<StatusCode, Fault> {
    since_2_26(version)?;
    let server = id.clone();
    change(&compute, context, id, "delete tag", move |tags| {
        let before = tags.len();
        tags.retain(|have| *have != tag);
        if tags.len() == before { Err(absent(&server, &tag)) } else { Ok(true) }
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

fn absent(server: &str, tag: &str) -> Fault {
    Fault::not_found(format!("Server {server} has no tag '{}'", tag.escape_debug()))
}

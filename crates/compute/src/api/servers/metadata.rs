//! `/servers/{id}/metadata`: the metadata of a server.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use kilonova_access::Caller;
use kilonova_compute_app::actions::ServerAction;
use kilonova_compute_app::{Compute, Error, ports, quotas, states};
use kilonova_compute_db::servers;
use kilonova_wire::schema::MASK;
use kilonova_wire::{JsonBody, Refusal, time};
use serde_json::{Value, json};

use crate::api::input;

type Metadata = BTreeMap<String, String>;

/// Reads and checks a metadata map.
///
/// # Errors
/// 400 naming the invalid key.
pub(in crate::api) fn parse(value: &Value) -> Result<Metadata, Refusal> {
    let wrong = |why: String| {
        Refusal::bad_request(format!("Invalid input for field/attribute metadata. {why}"))
    };
    let quoted = |what: &str, value: &Value, why: &str| {
        let logged = wrong(format!("{what}: {MASK}. {why}")).message;
        wrong(format!("{what}: {value}. {why}")).with_logged(logged)
    };
    let items = value.as_object().ok_or_else(|| quoted("Value", value, "It is not an object."))?;
    items
        .iter()
        .map(|(key, value)| {
            let text = value
                .as_str()
                .ok_or_else(|| quoted(&format!("Value of {key}"), value, "It is not a string."))?;
            let good = !key.is_empty()
                && key.len() <= 255
                && key.chars().all(|c| c.is_ascii_alphanumeric() || "-_:. ".contains(c));
            if !good {
                return Err(wrong(format!(
                    "Key {}: it must have 1 to 255 letters, digits, blanks or any of - _ : .",
                    key.escape_debug()
                )));
            }
            if text.chars().count() > 255 {
                return Err(wrong(format!("Value of {key}: it has more than 255 characters.")));
            }
            Ok((key.clone(), text.to_owned()))
        })
        .collect()
}

async fn read(compute: &Compute, context: Caller, id: String) -> Result<Metadata, Refusal> {
    Ok(compute.store.read(move |tx| super::find::find(tx, &context, &id)).await?.metadata)
}

/// The names of the actions in refusals.
const UPDATE: &str = "update metadata";
const DELETE: &str = "delete metadata";

async fn change(
    compute: &Compute,
    context: Caller,
    id: String,
    action: &'static str,
    mut change: impl FnMut(&mut Metadata) -> Result<(), Refusal> + Send + 'static,
) -> Result<Metadata, Refusal> {
    let own = compute.clone();
    Ok(compute
        .store
        .write(move |tx| {
            // Deleting an item is allowed even if a lowered limit is exceeded.
            let limit = (action == UPDATE).then(|| quotas::ask_request_limits(tx, &context));
            let limit = limit.transpose()?;
            let server = super::find::find(tx, &context, &id)?;
            let mut metadata = server.metadata.clone();
            change(&mut metadata)?;
            states::allow_as(&context, &server, ServerAction::ChangeMetadata, action)?;
            if let Some(limit) = limit {
                limit.check(tx, metadata.len(), &[])?;
            }
            servers::set_metadata(tx, server.id, &metadata, time::now())?;
            if metadata != server.metadata {
                ports::record_guest_change(tx, &own, &server)?;
            }
            Ok::<_, Error>(metadata)
        })
        .await?)
}

pub(super) async fn list(
    State(compute): State<Compute>,
    context: Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    Ok(Json(json!({"metadata": read(&compute, context, id).await?})))
}

pub(super) async fn update(
    State(compute): State<Compute>,
    context: Caller,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Refusal> {
    input::check_only_field(&body, "metadata")?;
    let new = parse(&body["metadata"])?;
    let all = change(&compute, context, id, UPDATE, move |metadata| {
        metadata.extend(new.clone());
        Ok(())
    });
    Ok(Json(json!({"metadata": all.await?})))
}

pub(super) async fn replace(
    State(compute): State<Compute>,
    context: Caller,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Refusal> {
    input::check_only_field(&body, "metadata")?;
    let new = parse(&body["metadata"])?;
    let all = change(&compute, context, id, UPDATE, move |metadata| {
        metadata.clone_from(&new);
        Ok(())
    });
    Ok(Json(json!({"metadata": all.await?})))
}

pub(super) async fn show(
    State(compute): State<Compute>,
    context: Caller,
    Path((id, key)): Path<(String, String)>,
) -> Result<Json<Value>, Refusal> {
    match read(&compute, context, id).await?.get(&key) {
        Some(value) => Ok(Json(json!({"meta": {key: value}}))),
        None => Err(Refusal::not_found("Metadata item was not found")),
    }
}

pub(super) async fn set(
    State(compute): State<Compute>,
    context: Caller,
    Path((id, key)): Path<(String, String)>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Refusal> {
    input::check_only_field(&body, "meta")?;
    let new = parse(&body["meta"])?;
    if new.len() != 1 || !new.contains_key(&key) {
        return Err(Refusal::bad_request("Request body and URI mismatch"));
    }
    let answer = json!({"meta": new});
    change(&compute, context, id, UPDATE, move |metadata| {
        metadata.extend(new.clone());
        Ok(())
    })
    .await?;
    Ok(Json(answer))
}

pub(super) async fn delete(
    State(compute): State<Compute>,
    context: Caller,
    Path((id, key)): Path<(String, String)>,
) -> Result<StatusCode, Refusal> {
    change(&compute, context, id, DELETE, move |metadata| match metadata.remove(&key) {
        Some(_) => Ok(()),
        None => Err(Refusal::not_found("Metadata item was not found")),
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

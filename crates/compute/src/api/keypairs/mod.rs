//! `/os-keypairs`: SSH keys and X.509 certificates of users.
//!
//! Before 2.92 a request without a public key generates a key pair. The private key is returned in
//! the answer and never stored.

mod request;
mod view;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use kilonova_access::{Caller, Routes, get, post};
use kilonova_compute_app::{Compute, keypairs as app, microversions};
use kilonova_compute_db::keypairs::Keypair;
use kilonova_wire::paging::Page;
use kilonova_wire::query::Query;
use kilonova_wire::{JsonBody, Microversion, Refusal, time};
use serde_json::{Value, json};

use super::{input, links};
use crate::api::links::Base;

pub(super) fn routes() -> Routes<Compute> {
    Routes::new()
        .route(
            "/v2.1/os-keypairs",
            [
                get("os_compute_api:os-keypairs:index", list),
                post("os_compute_api:os-keypairs:create", create),
            ],
        )
        .route(
            "/v2.1/os-keypairs/{name}",
            [
                get("os_compute_api:os-keypairs:show", show),
                kilonova_access::delete("os_compute_api:os-keypairs:delete", delete),
            ],
        )
}

/// The owner of the key pairs: from 2.10 on, `requested` if it is not empty; otherwise the caller.
/// Refuses an owner that the policy does not allow.
fn owner(
    caller: &Caller,
    requested: Option<&str>,
    version: Microversion,
) -> Result<String, Refusal> {
    let requested =
        requested.filter(|user| !user.is_empty() && version >= microversions::KEYPAIRS_OF_OTHERS);
    let user = requested.unwrap_or(&caller.user_id);
    caller.may_on(&[("user_id", user)])?;
    Ok(user.to_owned())
}

/// The first user that a query names, as in upstream (`_get_user_id` in
/// `nova/api/openstack/compute/keypairs.py`).
fn requested(query: &Query) -> Option<&str> {
    query.all("user_id").next()
}

async fn create(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    JsonBody(body): JsonBody,
) -> Result<(StatusCode, Json<Value>), Refusal> {
    let new = request::create(&body, version)?;
    let user_id = owner(&caller, body["keypair"]["user_id"].as_str(), version)?;
    let (public_key, fingerprint, private_key) = match new.public_key {
        Some(public_key) => {
            let fingerprint = app::fingerprint(new.kind, &public_key)?;
            (public_key, fingerprint, None)
        }
        None => {
            let generated = app::generate(new.kind, &user_id)?;
            (generated.public_key, generated.fingerprint, Some(generated.private_key))
        }
    };
    let keypair = Keypair {
        number: 0,
        user_id,
        name: new.name,
        kind: new.kind.word().to_owned(),
        public_key,
        fingerprint,
        created_at: time::now(),
    };
    let mut shown = json!({"keypair": view::created(&keypair, version)});
    if let Some(private_key) = private_key {
        shown["keypair"]["private_key"] = private_key.into();
    }
    compute.store.write(move |tx| app::import(tx, &caller.project_id, &keypair)).await?;
    let status =
        if version >= microversions::KEYPAIR_TYPES { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(shown)))
}

async fn list(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    base: Base,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    if version >= microversions::STRICT_REQUESTS {
        input::check_query_keys(&query, &["user_id", "limit", "marker"])?;
    }
    let paged = version >= microversions::KEYPAIR_PAGES;
    let page = if paged { Page::read(&query)? } else { Page::read(&Query::default())? };
    let user_id = owner(&caller, requested(&query), version)?;
    let keypairs =
        compute.store.read(move |tx| kilonova_compute_db::keypairs::of_user(tx, &user_id)).await?;
    let Some((keypairs, more)) = page.cut(keypairs, |keypair| keypair.name.clone()) else {
        let marker = page.marker.unwrap_or_default();
        return Err(Refusal::bad_request(format!("Marker {marker} could not be found.")));
    };
    let shown: Vec<Value> =
        keypairs.iter().map(|keypair| json!({"keypair": view::brief(keypair, version)})).collect();
    let mut answer = json!({"keypairs": shown});
    if let Some(last) = keypairs.last().filter(|_| paged && more) {
        answer["keypairs_links"] = links::next(&base, "os-keypairs", &query, &last.name);
    }
    Ok(Json(answer))
}

async fn show(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path(name): Path<String>,
) -> Result<Json<Value>, Refusal> {
    if version >= microversions::STRICT_REQUESTS {
        input::check_query_keys(&query, &["user_id"])?;
    }
    let user_id = owner(&caller, requested(&query), version)?;
    let keypair = compute
        .store
        .read(move |tx| {
            kilonova_compute_db::keypairs::by_name(tx, &user_id, &name)?
                .ok_or_else(|| app::not_found(&user_id, &name))
        })
        .await?;
    Ok(Json(json!({"keypair": view::detail(&keypair, version)})))
}

async fn delete(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    if version >= microversions::STRICT_REQUESTS {
        input::check_query_keys(&query, &["user_id"])?;
    }
    let user_id = owner(&caller, requested(&query), version)?;
    compute
        .store
        .write(move |tx| match kilonova_compute_db::keypairs::delete(tx, &user_id, &name)? {
            true => Ok(()),
            false => Err(app::not_found(&user_id, &name)),
        })
        .await?;
    let old = version < microversions::KEYPAIR_TYPES;
    Ok(if old { StatusCode::ACCEPTED } else { StatusCode::NO_CONTENT })
}

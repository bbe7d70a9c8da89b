//! `GET /servers/{id}`.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use kilonova_wire::{Base, Context, Fault, Microversion};
use serde::Serialize;

use super::view::{Detail, Scene};
use crate::Compute;
use crate::db::servers::Server;

#[derive(Serialize)]
struct Answer<'a> {
    server: Detail<'a>,
}

/// The server in full.
pub(super) fn answer(
    compute: &Compute,
    context: &Context,
    base: &Base,
    version: Microversion,
    server: &Server,
) -> Response {
    let host_up = |host: &str| compute.host_is_up(host);
    let scene = Scene { base, version, admin: context.is_admin(), host_up: &host_up };
    axum::Json(Answer { server: Detail::of(server, &scene) }).into_response()
}

pub(super) async fn show(
    State(compute): State<Compute>,
    context: Context,
    base: Base,
    version: Microversion,
    Path(id): Path<String>,
) -> Result<Response, Fault> {
    let caller = context.clone();
    let server = compute.store.read(move |tx| super::find::find(tx, &caller, &id)).await?;
    Ok(answer(&compute, &context, &base, version, &server))
}

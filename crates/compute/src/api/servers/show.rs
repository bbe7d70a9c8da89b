//! `GET /servers/{id}`.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use kilonova_ids::ServerGroupId;
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Context, Fault, Microversion};
use serde::Serialize;
use serde_json::json;

use super::view::{Detail, Scene};
use crate::api::input;
use crate::db::server_groups;
use crate::db::servers::Server;
use crate::{Compute, Error};

#[derive(Serialize)]
struct Answer<'a> {
    server: Detail<'a>,
}

/// The server in full, with the group it is in.
pub(super) fn answer(
    compute: &Compute,
    context: &Context,
    base: &Base,
    version: Microversion,
    server: &Server,
    group: Option<ServerGroupId>,
) -> Response {
    let host_up = |host: &str| compute.host_is_up(host);
    let (admin, group) = (context.is_admin(), Some(group));
    let scene = Scene { base, version, admin, host_up: &host_up, group };
    axum::Json(Answer { server: Detail::of(server, &scene) }).into_response()
}

/// [`answer`] to a change, which before 2.75 said less.
pub(super) fn answer_to_change(
    compute: &Compute,
    context: &Context,
    base: &Base,
    version: Microversion,
    server: &Server,
    group: Option<ServerGroupId>,
) -> Result<Response, Fault> {
    if version >= Microversion(2, 75) {
        return Ok(answer(compute, context, base, version, server, group));
    }
    let host_up = |host: &str| compute.host_is_up(host);
    let (admin, group) = (context.is_admin(), Some(group));
    let scene = Scene { base, version, admin, host_up: &host_up, group };
    let mut shown = serde_json::to_value(Detail::of(server, &scene)).map_err(Fault::internal)?;
    if let Some(fields) = shown.as_object_mut() {
        fields.retain(|name, _| {
            !ONLY_SHOWN.contains(&name.as_str())
                && !ONLY_SHOWN_BELOW.iter().any(|prefix| name.starts_with(prefix))
        });
    }
    Ok(axum::Json(json!({"server": shown})).into_response())
}

/// What `PUT` and `rebuild` did not say before 2.75, and how more of it begins.
const ONLY_SHOWN: [&str; 4] = ["config_drive", "key_name", "security_groups", "host_status"];
const ONLY_SHOWN_BELOW: [&str; 3] = ["OS-EXT-", "OS-SRV-USG:", "os-extended-volumes:"];

pub(super) async fn show(
    State(compute): State<Compute>,
    context: Context,
    base: Base,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> Result<Response, Fault> {
    if version >= Microversion(2, 102) {
        input::only(&query, &[])?;
    }
    let caller = context.clone();
    let (server, group) = compute
        .store
        .read(move |tx| {
            let server = super::find::find(tx, &caller, &id)?;
            let group = server_groups::of_server(tx, server.id)?;
            Ok::<_, Error>((server, group))
        })
        .await?;
    Ok(answer(&compute, &context, &base, version, &server, group))
}

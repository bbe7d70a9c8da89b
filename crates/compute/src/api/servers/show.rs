//! `GET /servers/{id}`: a server in full.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use kilonova_access::Caller;
use kilonova_compute_app::ports::{self, Connections};
use kilonova_compute_app::volumes::{self, ServerVolumes};
use kilonova_compute_app::{Compute, Error, microversions};
use kilonova_compute_db::server_groups;
use kilonova_compute_db::servers::Server;
use kilonova_ids::{ServerGroupId, ServerId};
use kilonova_store::Tx;
use kilonova_wire::query::Query;
use kilonova_wire::{Microversion, Refusal};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::view::{self, Detail, Progresses, ViewContext, Visibility};
use crate::api::input;
use crate::api::links::Base;

#[derive(Serialize)]
struct Answer<'a> {
    server: Detail<'a>,
}

/// The data of a server's view that is not in the server's row.
pub(super) struct RelatedData {
    group: Option<ServerGroupId>,
    ports: Connections,
    volumes: ServerVolumes,
    progress: Progresses,
}

impl RelatedData {
    /// Announces the read that [`RelatedData::of`] makes for every server.
    pub fn expect(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
        Ok(server_groups::expect_of_server(tx, server)?)
    }

    pub fn of(tx: &mut Tx<'_>, compute: &Compute, server: &Server) -> Result<Self, Error> {
        let group = server_groups::of_server(tx, server.id)?;
        let volumes = volumes::of_servers(tx, compute, &[server.id])?;
        let ports = ports::connections(tx, &*compute.networks, [server])?;
        Ok(Self { group, ports, volumes, progress: view::progress_of(tx, [server])? })
    }
}

/// The full view of a server, with its server group.
pub(super) fn answer(
    compute: &Compute,
    context: &Caller,
    base: &Base,
    version: Microversion,
    server: &Server,
    related: RelatedData,
) -> Response {
    let (visibility, group, ports) = (Visibility::of(context), Some(related.group), &related.ports);
    let (volumes, progress) = (&related.volumes, &related.progress);
    let view_context =
        ViewContext { base, version, visibility, compute, group, ports, volumes, progress };
    axum::Json(Answer { server: Detail::of(server, &view_context) }).into_response()
}

/// Like [`answer`], for a request that changed the server. Before 2.75 the view has fewer keys.
pub(super) fn answer_to_change(
    compute: &Compute,
    context: &Caller,
    base: &Base,
    version: Microversion,
    server: &Server,
    related: RelatedData,
) -> Result<Response, Refusal> {
    if version >= microversions::STRICT_REQUESTS {
        return Ok(answer(compute, context, base, version, server, related));
    }
    let (visibility, group, ports) = (Visibility::of(context), Some(related.group), &related.ports);
    let (volumes, progress) = (&related.volumes, &related.progress);
    let view_context =
        ViewContext { base, version, visibility, compute, group, ports, volumes, progress };
    let mut shown =
        serde_json::to_value(Detail::of(server, &view_context)).map_err(Refusal::internal)?;
    if let Some(fields) = shown.as_object_mut() {
        without_extensions(fields);
        fields.remove("key_name");
    }
    Ok(axum::Json(json!({"server": shown})).into_response())
}

/// Removes from a server and its addresses the keys that only `GET` showed before 2.75.
pub(super) fn without_extensions(fields: &mut Map<String, Value>) {
    const NAMES: [&str; 3] = ["config_drive", "security_groups", "host_status"];
    const PREFIXES: [&str; 3] = ["OS-EXT-", "OS-SRV-USG:", "os-extended-volumes:"];
    let is_kept = |name: &str| {
        !NAMES.contains(&name) && !PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    fields.retain(|name, _| is_kept(name));
    let networks = fields.get_mut("addresses").and_then(Value::as_object_mut);
    let addresses = networks.into_iter().flat_map(Map::values_mut).filter_map(Value::as_array_mut);
    for address in addresses.flatten().filter_map(Value::as_object_mut) {
        address.retain(|name, _| is_kept(name));
    }
}

pub(super) async fn show(
    State(compute): State<Compute>,
    context: Caller,
    base: Base,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    input::check_no_query(&query, version)?;
    let (own, caller) = (compute.clone(), context.clone());
    let (server, related) = compute
        .store
        .read(move |tx| {
            let server = super::find::find_with(tx, &caller, &id, RelatedData::expect)?;
            let related = RelatedData::of(tx, &own, &server)?;
            Ok::<_, Error>((server, related))
        })
        .await?;
    Ok(answer(&compute, &context, &base, version, &server, related))
}

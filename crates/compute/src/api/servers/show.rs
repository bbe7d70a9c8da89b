//! `GET /servers/{id}`.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use kilonova_access::Caller;
use kilonova_ids::ServerGroupId;
use kilonova_store::Tx;
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Fault, Microversion};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::view::{Detail, Scene, Sight};
use crate::api::input;
use crate::app::nics::{self, Connections};
use crate::db::server_groups;
use crate::db::servers::Server;
use crate::{Compute, Error, microversions};

#[derive(Serialize)]
struct Answer<'a> {
    server: Detail<'a>,
}

/// What is shown of a server and is not in its row.
pub(super) struct More {
    group: Option<ServerGroupId>,
    nics: Connections,
}

impl More {
    pub fn of(tx: &mut Tx<'_>, server: &Server) -> Result<Self, Error> {
        let group = server_groups::of_server(tx, server.id)?;
        Ok(Self { group, nics: nics::look(tx, [server])? })
    }
}

/// The server in full, with the group it is in.
pub(super) fn answer(
    compute: &Compute,
    context: &Caller,
    base: &Base,
    version: Microversion,
    server: &Server,
    more: More,
) -> Response {
    let (sight, group, nics) = (Sight::of(context), Some(more.group), &more.nics);
    let scene = Scene { base, version, sight, compute, group, nics };
    axum::Json(Answer { server: Detail::of(server, &scene) }).into_response()
}

/// [`answer`] to a change, which before 2.75 said less.
pub(super) fn answer_to_change(
    compute: &Compute,
    context: &Caller,
    base: &Base,
    version: Microversion,
    server: &Server,
    more: More,
) -> Result<Response, Fault> {
    if version >= microversions::STRICT_REQUESTS {
        return Ok(answer(compute, context, base, version, server, more));
    }
    let (sight, group, nics) = (Sight::of(context), Some(more.group), &more.nics);
    let scene = Scene { base, version, sight, compute, group, nics };
    let mut shown = serde_json::to_value(Detail::of(server, &scene)).map_err(Fault::internal)?;
    if let Some(fields) = shown.as_object_mut() {
        without_extensions(fields);
        fields.remove("key_name");
    }
    Ok(axum::Json(json!({"server": shown})).into_response())
}

/// Takes away what only `GET` said before 2.75; of the addresses, what they are besides addresses.
pub(super) fn without_extensions(fields: &mut Map<String, Value>) {
    const NAMES: [&str; 3] = ["config_drive", "security_groups", "host_status"];
    const PREFIXES: [&str; 3] = ["OS-EXT-", "OS-SRV-USG:", "os-extended-volumes:"];
    let kept = |name: &str| {
        !NAMES.contains(&name) && !PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    fields.retain(|name, _| kept(name));
    let networks = fields.get_mut("addresses").and_then(Value::as_object_mut);
    let addresses = networks.into_iter().flat_map(Map::values_mut).filter_map(Value::as_array_mut);
    for address in addresses.flatten().filter_map(Value::as_object_mut) {
        address.retain(|name, _| kept(name));
    }
}

pub(super) async fn show(
    State(compute): State<Compute>,
    context: Caller,
    base: Base,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> Result<Response, Fault> {
    if version >= microversions::STRICT_QUERIES {
        input::only(&query, &[])?;
    }
    let caller = context.clone();
    let (server, more) = compute
        .store
        .read(move |tx| {
            let server = super::find::find(tx, &caller, &id)?;
            let more = More::of(tx, &server)?;
            Ok::<_, Error>((server, more))
        })
        .await?;
    Ok(answer(&compute, &context, &base, version, &server, more))
}

//! A server by the id in the path: the caller's own, or any for an admin. Another project's server
//! does not exist for the caller, as upstream has it.

use kilonova_ids::{ServerId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::{Context, Fault};

use crate::Error;
use crate::db::servers::{self, Server};

/// Finds the server or answers 404.
///
/// # Errors
/// 404 `Instance <id> could not be found.`
pub(super) fn find(tx: &mut Tx<'_>, context: &Context, id: &str) -> Result<Server, Error> {
    let known = parse_uuid_like::<ServerId>(id)
        .map(|id| servers::find(tx, id))
        .transpose()?
        .flatten()
        .filter(|server| context.may_see(&server.project_id));
    known.ok_or_else(|| missing(id).into())
}

pub(super) fn missing(id: &str) -> Fault {
    Fault::not_found(format!("Instance {id} could not be found."))
}

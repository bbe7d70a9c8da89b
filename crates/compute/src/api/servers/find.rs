//! A server by the id in the path: the caller's own, or any for an admin. Another project's server
//! does not exist for the caller, as upstream has it.

use kilonova_access::Caller;
use kilonova_ids::{ServerId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::Fault;

use crate::Error;
use crate::db::servers::{self, Server};

/// Finds the server or answers 404; asks the rule of the route with the server's own project and user.
///
/// # Errors
/// 404 `Instance <id> could not be found.`; 403.
pub(super) fn find(tx: &mut Tx<'_>, caller: &Caller, id: &str) -> Result<Server, Error> {
    let known = parse_uuid_like::<ServerId>(id)
        .map(|id| servers::find(tx, id))
        .transpose()?
        .flatten()
        .filter(|server| caller.may_see(&server.project_id));
    let server = known.ok_or_else(|| missing(id))?;
    caller.may_on(&target(&server))?;
    Ok(server)
}

/// The server as rules see it.
pub(super) fn target(server: &Server) -> [(&'static str, &str); 2] {
    [("project_id", &server.project_id), ("user_id", &server.user_id)]
}

pub(super) fn missing(id: &str) -> Fault {
    Fault::not_found(format!("Instance {id} could not be found."))
}

//! Finds the server that a path names. As in upstream, a server of another project does not exist for
//! a caller who is not an administrator.

use kilonova_access::Caller;
use kilonova_compute_app::Error;
use kilonova_compute_db::servers::{self, Server};
use kilonova_ids::{ServerId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::Refusal;

/// Finds the server and checks the route's rule against the server's project and user.
///
/// # Errors
/// 404 `Instance <id> could not be found.`; 403 if the rule refuses.
pub(super) fn find(tx: &mut Tx<'_>, caller: &Caller, id: &str) -> Result<Server, Error> {
    find_with(tx, caller, id, |_, _| Ok(()))
}

/// Like [`find`], but first calls `announce`, which announces the reads that the caller makes next.
///
/// # Errors
/// Those of [`find`] and of `announce`.
pub(super) fn find_with(
    tx: &mut Tx<'_>,
    caller: &Caller,
    id: &str,
    announce: impl FnOnce(&mut Tx<'_>, ServerId) -> Result<(), Error>,
) -> Result<Server, Error> {
    let parsed = parse_uuid_like::<ServerId>(id);
    if let Some(id) = parsed {
        announce(tx, id)?;
    }
    let known = parsed
        .map(|id| servers::find(tx, id))
        .transpose()?
        .flatten()
        .filter(|server| caller.may_see(&server.project_id));
    let server = known.ok_or_else(|| missing(id))?;
    caller.may_on(&target(&server))?;
    Ok(server)
}

/// The attributes of a server that rules refer to.
pub(super) fn target(server: &Server) -> [(&'static str, &str); 2] {
    [("project_id", &server.project_id), ("user_id", &server.user_id)]
}

/// 404 for a server that does not exist.
pub(super) fn missing(id: &str) -> Refusal {
    Refusal::not_found(format!("Instance {id} could not be found."))
}

//! Scheduling within a transaction, for existing servers.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use kilonova_compute_db::Error;
use kilonova_compute_db::servers::{Server, Spec};
use kilonova_engine::{Query, Snapshot};
use kilonova_ids::HostName;
use kilonova_store::Tx;

use super::constraints::Scope;
use super::facts::{Subject, facts};
use super::place::{Plan, plan};
use super::unplaced::Unplaced;

/// The requirements of an existing server.
#[derive(Debug, Clone, Copy)]
pub struct Requirements<'a> {
    /// The server.
    pub server: &'a Server,
    /// The server's properties, with the requested host and zone.
    pub spec: &'a Spec,
    /// Hosts to exclude.
    pub excluded: &'a HashSet<HostName>,
    /// True if the requested host is used regardless of filters.
    pub forced: bool,
}

/// Candidates, best first; or the data needed to explain why there are none. The caller determines
/// the reason later, because this may be a write transaction.
///
/// # Errors
/// Store errors only. A lack of candidates is not an error.
pub fn choose(
    tx: &mut Tx<'_>,
    scope: Scope<'_>,
    world: Arc<Snapshot>,
    requirements: Requirements<'_>,
    query: &Query,
    now: Timestamp,
) -> Result<Result<Plan, Box<Unplaced>>, Error> {
    let facts =
        facts(tx, scope.rules, Subject::Server(requirements.server.id, &requirements.spec.hints))?;
    let unplaced = Unplaced {
        server: requirements.server.id,
        project_id: requirements.server.project_id.clone(),
        world,
        query: query.clone(),
        spec: requirements.spec.clone(),
        facts,
        excluded: requirements.excluded.clone(),
        forced: requirements.forced,
        now,
    };
    match plan(&unplaced.world, &unplaced.constraints(scope), query, 1) {
        Ok(plan) if !plan.is_empty() => Ok(Ok(plan)),
        Ok(_) | Err(_) => Ok(Err(Box::new(unplaced))),
    }
}

//! Scheduling within a transaction, for existing servers.

use std::collections::HashSet;

use kilonova_engine::Query;
use kilonova_store::Tx;

use super::facts::{For, facts};
use super::place::{Plan, plan};
use super::unplaced::Unplaced;
use crate::db::servers::{Server, Spec};
use crate::{Compute, Error};

/// The requirements of an existing server.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The server.
    pub server: &'a Server,
    /// Its properties, with the requested host and zone.
    pub spec: &'a Spec,
    /// Hosts to exclude.
    pub excluded: &'a HashSet<String>,
    /// True if the requested host is used regardless of filters.
    pub forced: bool,
}

/// Candidates, best first; or the data needed to explain why there are none. The reason is not
/// determined here, because this may be a write transaction.
///
/// # Errors
/// Store errors only. A lack of candidates is not an error.
pub fn choose(
    tx: &mut Tx<'_>,
    compute: &Compute,
    wanted: Wanted<'_>,
    query: &Query,
    now: i64,
) -> Result<Result<Plan, Box<Unplaced>>, Error> {
    let facts =
        facts(tx, &compute.options.scheduler, For::Server(wanted.server.id, &wanted.spec.hints))?;
    let unplaced = Unplaced {
        server: wanted.server.id,
        project_id: wanted.server.project_id.clone(),
        world: compute.world.snapshot(),
        query: query.clone(),
        spec: wanted.spec.clone(),
        facts,
        excluded: wanted.excluded.clone(),
        forced: wanted.forced,
        now,
    };
    match plan(&unplaced.world, &unplaced.scene(compute), query, 1) {
        Ok(plan) if !plan.is_empty() => Ok(Ok(plan)),
        Ok(_) | Err(_) => Ok(Err(Box::new(unplaced))),
    }
}

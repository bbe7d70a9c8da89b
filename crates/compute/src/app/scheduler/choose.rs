//! One choice, inside a transaction: for servers that exist already.

use std::collections::HashSet;

use kilonova_engine::Query;
use kilonova_store::Tx;

use super::facts::{For, facts};
use super::place::{Plan, plan};
use super::unplaced::Unplaced;
use crate::db::servers::{Server, Spec};
use crate::{Compute, Error};

/// What a server that exists is looking for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Which server.
    pub server: &'a Server,
    /// What it is to be, with the host and zone that are asked for.
    pub spec: &'a Spec,
    /// Hosts that it must not go to.
    pub excluded: &'a HashSet<String>,
    /// Whether the host that is asked for is taken whatever the filters say.
    pub forced: bool,
}

/// Candidates, best first; or what is needed to say why there are none. The reason itself is not
/// worked out here: this may be a write transaction.
///
/// # Errors
/// The database's. That there is no place is not an error.
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

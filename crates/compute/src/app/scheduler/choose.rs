//! One choice, inside a transaction: for servers that exist already.

use std::collections::HashSet;

use kilonova_engine::Query;
use kilonova_store::Tx;

use super::facts::{For, facts};
use super::place::{NoHost, Plan, places};
use super::scene::Scene;
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

/// Candidates, best first; or why there are none.
///
/// # Errors
/// The database's. That there is no place is not an error.
pub fn choose(
    tx: &mut Tx<'_>,
    compute: &Compute,
    wanted: Wanted<'_>,
    query: &Query,
    now: i64,
) -> Result<Result<Plan, NoHost>, Error> {
    let rules = &compute.options.scheduler;
    let facts = facts(tx, rules, For::Server(wanted.server.id, &wanted.spec.hints))?;
    let scene = Scene {
        fleet: &compute.fleet,
        rules,
        spec: wanted.spec,
        project_id: &wanted.server.project_id,
        group: facts.group.map(|(_, group)| group),
        excluded: wanted.excluded,
        loads: &facts.loads,
        same_host: facts.same_host.as_ref(),
        different_host: facts.different_host.as_ref(),
        forced: wanted.forced,
        now,
    };
    Ok(places(&compute.world.snapshot(), &scene, query, 1))
}

//! Where N servers of one request could go, joint, on a scratch copy of the world.
//!
//! Pure but for the clock that is handed in. A plan is a wish: the claim re-checks it.

use std::collections::HashSet;

use kilonova_engine::{Candidate, Query, Snapshot};

use super::limits::Limits;
use crate::app::fleet::Fleet;
use crate::db::servers::Spec;

/// Candidates kept for each server in case the first is taken when the claim comes.
const ALTERNATES: usize = 8;
/// Candidates looked at for one server before the request counts as impossible.
pub(super) const LOOKED_AT: usize = 200_000;

/// For each server that has a place, its candidates, best first.
pub type Plan = Vec<Vec<Candidate>>;

/// Why a server has no place.
#[derive(Debug, Clone)]
pub struct NoHost(pub String);

/// Plans `count` servers; the answer holds as many as fit.
///
/// # Errors
/// [`NoHost`] when not even one fits, with what stood in the way.
pub fn plan(
    world: &Snapshot,
    fleet: &Fleet,
    query: &Query,
    spec: &Spec,
    excluded: &HashSet<String>,
    count: usize,
    now: i64,
) -> Result<Plan, NoHost> {
    let limits = Limits { fleet, spec, excluded, now };
    let mut scratch = world.clone();
    let mut plan = Plan::new();
    for _ in 0..count {
        let found: Vec<Candidate> = match scratch.search(query) {
            Ok(search) => search
                .take(LOOKED_AT)
                .filter(|candidate| limits.obstacle(candidate).is_none())
                .take(ALTERNATES)
                .collect(),
            Err(error) => return Err(NoHost(error.to_string())),
        };
        let Some(first) = found.first() else { break };
        if count > 1 {
            scratch.take(first);
        }
        plan.push(found);
    }
    if plan.is_empty() {
        return Err(NoHost(limits.reason(world, query)));
    }
    Ok(plan)
}

//! Where N servers of one request could go, joint, on a scratch copy of the world.
//!
//! Pure but for the clock that is handed in. A plan is a wish: the claim re-checks it.

use std::collections::HashSet;

use kilonova_engine::{Candidate, Query, Snapshot};

use crate::app::fleet::Fleet;
use crate::db::servers::Spec;

/// Candidates kept for each server in case the first is taken when the claim comes.
const ALTERNATES: usize = 8;
/// Candidates looked at for one server before the request counts as impossible.
const LOOKED_AT: usize = 200_000;

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
    let usable = |candidate: &Candidate| {
        fleet.by_root(candidate.root).is_some_and(|host| {
            host.takes_servers(now)
                && !excluded.contains(&*host.name)
                && spec.wanted_host.as_deref().is_none_or(|wanted| wanted == &*host.name)
                && spec.availability_zone.as_deref().is_none_or(|zone| {
                    *host
                        .availability_zone
                        .read()
                        .unwrap_or_else(std::sync::PoisonError::into_inner)
                        == *zone
                })
        })
    };
    let mut scratch = world.clone();
    let mut plan = Plan::new();
    for _ in 0..count {
        let found: Vec<Candidate> = match scratch.search(query) {
            Ok(search) => search.take(LOOKED_AT).filter(|c| usable(c)).take(ALTERNATES).collect(),
            Err(error) => return Err(NoHost(error.to_string())),
        };
        let Some(first) = found.first() else { break };
        if count > 1 {
            scratch.take(first);
        }
        plan.push(found);
    }
    if plan.is_empty() {
        return Err(NoHost(reason(world, fleet, query, spec, excluded, now)));
    }
    Ok(plan)
}

fn reason(
    world: &Snapshot,
    fleet: &Fleet,
    query: &Query,
    spec: &Spec,
    excluded: &HashSet<String>,
    now: i64,
) -> String {
    let hosts = fleet.all();
    let up = hosts.iter().filter(|host| host.takes_servers(now)).count();
    if hosts.is_empty() {
        return "No compute host has registered.".into();
    }
    if up == 0 {
        return format!("None of the {} compute hosts is up and enabled.", hosts.len());
    }
    if let Some(host) = &spec.wanted_host
        && fleet.by_name(host).is_none()
    {
        return format!("Compute host {host} could not be found.");
    }
    let explanation = world.explain(query).to_string();
    let tried = if excluded.is_empty() {
        String::new()
    } else {
        let mut names: Vec<&str> = excluded.iter().map(String::as_str).collect();
        names.sort_unstable();
        format!(" Tried and failed: {}.", names.join(", "))
    };
    format!("{explanation}{tried}")
}

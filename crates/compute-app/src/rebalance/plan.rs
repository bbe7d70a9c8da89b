//! The plan: moves, and their gains.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use kilonova_compute_db::rebalance::{self, Count};
use kilonova_compute_db::servers::Spec;
use kilonova_compute_scheduler::capacity::{self as counting, EqualHosts, Searches};
use kilonova_compute_scheduler::packer::Packer;
use kilonova_compute_scheduler::rebalance::{self as search, Wanted};
use kilonova_compute_scheduler::{Constraints, Facts, Scope};
use kilonova_engine::{Query, Snapshot};
use kilonova_ids::{HostName, ProviderId, ServerId};
use kilonova_wire::time;

use super::begin::at_limit;
use super::guests::{self, Guests};
use crate::boot::BootRequest;
use crate::capacity::{self, Chosen};
use crate::{Compute, Error};

/// Maximum number of hosts whose guests are read for one plan.
const HOSTS: usize = 32;

/// Maximum number of hosts whose guests are read for a boot.
const HOSTS_FOR_BOOT: usize = 16;

/// Maximum number of searches for a boot, whose client waits for the answer.
const SEARCHES_FOR_BOOT: u64 = 20_000;

/// Maximum number of searches for one plan.
const SEARCHES: u64 = 100_000;

/// Maximum number of searches for a plan's gains for all flavors.
const SEARCHES_FOR_GAINS: u64 = 100_000;

/// A move of a plan.
#[derive(Debug, Clone)]
pub struct PlannedMove {
    /// The server.
    pub server: ServerId,
    /// Its name.
    pub name: String,
    /// Its host.
    pub from: HostName,
    /// Its destination.
    pub to: HostName,
    /// The memory to copy, in MiB.
    pub memory_mb: i64,
}

/// The gain of a plan for one flavor.
#[derive(Debug, Clone)]
pub struct Gain {
    /// The flavor's id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Servers that fit now; `None` if counting them takes too long.
    pub before: Option<u64>,
    /// How many more, or fewer, fit after the moves.
    pub gain: i64,
}

/// The gain of a drain.
#[derive(Debug, Clone)]
pub struct Drain {
    /// The host.
    pub host: HostName,
    /// Its servers, all of which can live-migrate.
    pub servers: usize,
    /// How many more servers of the flavor fit after the drain.
    pub gain: i64,
}

/// A plan, and the limits on its moves.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The moves, in order; none if nothing is gained.
    pub moves: Vec<PlannedMove>,
    /// Their gain: for the requested flavor, or for each flavor whose capacity they change.
    pub gains: Vec<Gain>,
    /// For a flavor: the host with the largest gain if it is drained and enabled again.
    pub drain: Option<Drain>,
    /// The cost that they save, in devices; only without a flavor.
    pub saved: Option<f64>,
    /// Why there are no moves.
    pub reason: Option<String>,
    /// The current numbers of moves on all controllers.
    pub count: Count,
    /// Why no move may begin now.
    pub at_limit: Option<String>,
}

/// Plans moves for a flavor, by id or name; or, without one, moves that lower the cost of the hosts.
///
/// # Errors
/// 404 for an unknown flavor, 503 if too many other plans or counts are running; store errors.
pub async fn plan(compute: &Compute, wanted: Option<String>) -> Result<Plan, Error> {
    let is_for_one = wanted.is_some();
    let chosen = capacity::choose(compute, wanted).await?;
    compute.catch_up().await;
    let now = time::now();
    let world = compute.world.snapshot();
    let requests: Vec<Request> =
        chosen.into_iter().map(|chosen| Request::of(compute, chosen)).collect();
    let own = compute.clone();
    let prepare = move || {
        let packer = own.packer.detached_copy(&world);
        let task = Task { packer, compute: own, world, requests, is_for_one, now };
        (task.hosts(), Arc::new(task))
    };
    let (hosts, task) = capacity::on_thread(prepare).await?;
    let own = Arc::clone(&task);
    let read = move |tx: &mut kilonova_store::Tx<'_>| {
        let guests = guests::of_hosts(tx, &own.compute, &hosts, own.now)?;
        Ok::<_, Error>((guests, rebalance::count(tx)?))
    };
    let (guests, count) = compute.store.read(read).await?;
    let mut plan = capacity::on_thread(move || task.plan(&guests)).await??;
    plan.count = count;
    plan.at_limit = at_limit(compute, count);
    Ok(plan)
}

/// A move for a boot that was refused.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// The server.
    pub(crate) server: ServerId,
    /// Its destination.
    pub(crate) to: HostName,
}

/// Moves that make room for a boot; empty if there are none, or if a limit allows none now.
///
/// # Errors
/// 503 if too many other plans or counts are running; store errors.
pub(crate) async fn for_boot(
    compute: &Compute,
    request: &BootRequest,
    query: &Query,
    facts: Facts,
) -> Result<Vec<Step>, Error> {
    let count = compute.store.read(rebalance::count).await?;
    if let Some(why) = at_limit(compute, count) {
        tracing::info!(request = %request.request_id, "no move makes room for a boot: {why}");
        return Ok(Vec::new());
    }
    let world = compute.world.snapshot();
    let (own, query, now) = (compute.clone(), query.clone(), time::now());
    let (spec, project_id) = (request.spec.clone(), request.project_id.clone());
    let prepare = move || {
        let packer = own.packer.detached_copy(&world);
        let task = BootTask { compute: own, packer, world, spec, project_id, facts, query, now };
        let promising =
            |wanted: &Wanted<'_>| search::promising(&task.world, wanted, HOSTS_FOR_BOOT);
        (task.wanting(promising), Arc::new(task))
    };
    let (hosts, task) = capacity::on_thread(prepare).await?;
    let own = Arc::clone(&task);
    let read =
        move |tx: &mut kilonova_store::Tx<'_>| guests::of_hosts(tx, &own.compute, &hosts, own.now);
    let guests = compute.store.read(read).await?;
    let steps = capacity::on_thread(move || task.steps(&guests)).await?;
    // A part of the plan would not make room.
    let left = compute.options.rebalance.moves_per_hour.saturating_sub(count.last_hour);
    if i64::try_from(steps.len()).unwrap_or(i64::MAX) > left {
        let why = format!("it takes {} moves, but moves_per_hour leaves {left}", steps.len());
        tracing::info!(request = %request.request_id, "no moves make room for a boot: {why}");
        return Ok(Vec::new());
    }
    Ok(steps)
}

/// The input of the search for a boot.
struct BootTask {
    compute: Compute,
    packer: Packer,
    world: Arc<Snapshot>,
    spec: Spec,
    project_id: String,
    facts: Facts,
    query: Query,
    now: Timestamp,
}

impl BootTask {
    fn scope(&self) -> Scope<'_> {
        Scope { packer: &self.packer, ..self.compute.scope() }
    }

    fn wanting<T>(&self, work: impl FnOnce(&Wanted<'_>) -> T) -> T {
        let (scope, nobody) = (self.scope(), HashSet::new());
        let server = (&*self.project_id, &self.spec);
        let constraints = Constraints::new(scope, server, &self.facts, &nobody, self.now);
        work(&Wanted { constraints: &constraints, query: &self.query })
    }

    fn steps(&self, guests: &Guests) -> Vec<Step> {
        let mut left = Searches(SEARCHES_FOR_BOOT);
        let found = self.wanting(|wanted| {
            // A member of the boot's own group would change the hosts that the boot may use.
            let own = self.facts.group.as_ref().map(|(id, _)| *id);
            let others = guests.guests.iter().filter(|guest| {
                let group = guest.facts.group.as_ref().map(|(id, _)| *id);
                own.is_none() || group != own
            });
            let others: Vec<_> = others.cloned().collect();
            let found = search::make_room(&self.world, self.scope(), wanted, &others, &mut left);
            found.ok().flatten().map(|found| (others, found))
        });
        let Some((guests, found)) = found else { return Vec::new() };
        let step = |one: &search::Move| {
            let host = self.compute.fleet.by_root(one.to.root)?;
            let server = guests.get(one.guest)?.server;
            Some(Step { server, to: host.name.clone() })
        };
        found.moves.iter().map(step).collect::<Option<_>>().unwrap_or_default()
    }
}

/// A flavor, as a request for a server.
struct Request {
    id: String,
    name: String,
    spec: Spec,
    query: Result<Query, String>,
}

impl Request {
    fn of(compute: &Compute, (profile, flavor): Chosen) -> Self {
        let (id, name) = (flavor.id.clone(), flavor.name.clone());
        let spec = capacity::spec_of(flavor);
        let query = profile.and_then(|profile| capacity::query_of(compute, &spec, profile));
        Self { id, name, spec, query }
    }
}

/// The input of a search.
struct Task {
    compute: Compute,
    packer: Packer,
    world: Arc<Snapshot>,
    requests: Vec<Request>,
    is_for_one: bool,
    now: Timestamp,
}

impl Task {
    fn scope(&self) -> Scope<'_> {
        Scope { packer: &self.packer, ..self.compute.scope() }
    }

    /// Runs `work` with the constraints of a request.
    fn wanting<T>(
        &self,
        request: &Request,
        work: impl FnOnce(&Wanted<'_>) -> T,
    ) -> Result<T, String> {
        let query = request.query.as_ref().map_err(Clone::clone)?;
        Ok(capacity::constrained(self.scope(), &request.spec, self.now, |constraints| {
            work(&Wanted { constraints, query })
        }))
    }

    /// The hosts whose guests may be worth moving.
    fn hosts(&self) -> Vec<ProviderId> {
        match self.requests.first().filter(|_| self.is_for_one) {
            Some(request) => self
                .wanting(request, |wanted| search::promising(&self.world, wanted, HOSTS))
                .unwrap_or_default(),
            None => search::costliest(&self.world, self.scope(), HOSTS),
        }
    }

    fn plan(&self, guests: &Guests) -> Result<Plan, Error> {
        let mut left = Searches(SEARCHES);
        let requested = self.requests.first().filter(|_| self.is_for_one);
        let found = match requested {
            Some(request) => self
                .wanting(request, |wanted| {
                    search::make_room(&self.world, self.scope(), wanted, &guests.guests, &mut left)
                })
                .and_then(|found| found.map_err(|why| why.owner_text()))
                .map(|found| found.map(|found| (found.moves, None))),
            None => {
                search::lower_cost(&self.world, self.scope(), &guests.guests, self.now, &mut left)
                    .map_err(|why| why.owner_text())
                    .map(|found| found.map(|found| (found.moves, Some(found.saved))))
            }
        };
        let mut plan = Plan {
            moves: Vec::new(),
            gains: Vec::new(),
            drain: requested.and_then(|request| self.drain(request, guests)),
            saved: None,
            reason: None,
            count: Count::default(),
            at_limit: None,
        };
        let moves = match found {
            Err(why) => {
                plan.reason = Some(why);
                Vec::new()
            }
            Ok(None) => {
                plan.reason = Some(self.nothing(guests, left));
                Vec::new()
            }
            Ok(Some((moves, saved))) => {
                plan.saved = saved;
                moves
            }
        };
        plan.gains = self.gains(guests, &moves);
        plan.moves = moves.iter().filter_map(|one| self.describe(guests, one)).collect();
        Ok(plan)
    }

    /// The host with the largest gain if it is drained.
    fn drain(&self, request: &Request, guests: &Guests) -> Option<Drain> {
        let mut left = Searches(SEARCHES);
        let found = self.wanting(request, |wanted| {
            let (scope, all) = (self.scope(), &guests.guests);
            search::empty_host(&self.world, scope, wanted, all, &guests.fully_movable, &mut left)
        });
        let found = found.ok()?.ok().flatten()?;
        let host = self.compute.fleet.by_root(found.source)?;
        Some(Drain { host: host.name.clone(), servers: found.moves.len(), gain: found.gain })
    }

    /// Why there are no moves.
    fn nothing(&self, guests: &Guests, left: Searches) -> String {
        if guests.guests.is_empty() {
            return "No server on the hosts that were examined can live-migrate.".to_owned();
        }
        let end = if left.0 == 0 { " The search ended before it was complete." } else { "" };
        let what = if self.is_for_one {
            "At most two live migrations cannot make room for more servers of the flavor."
        } else {
            "No live migration lowers the cost of the hosts noticeably."
        };
        format!("{what} {} servers on up to {HOSTS} hosts were examined.{end}", guests.guests.len())
    }

    fn describe(&self, guests: &Guests, one: &search::Move) -> Option<PlannedMove> {
        let guest = guests.guests.get(one.guest)?;
        let host = |root| self.compute.fleet.by_root(root).map(|host| host.name.clone());
        Some(PlannedMove {
            server: guest.server,
            name: guests.names.get(&guest.server).cloned().unwrap_or_default(),
            from: host(guest.source)?,
            to: host(one.to.root)?,
            memory_mb: guest.memory_mb,
        })
    }

    fn gains(&self, guests: &Guests, moves: &[search::Move]) -> Vec<Gain> {
        let equal = EqualHosts::of(&self.world);
        let mut left = Searches(SEARCHES_FOR_GAINS);
        let mut gains = Vec::new();
        for request in &self.requests {
            let gained = self.wanting(request, |wanted| {
                let gain = search::gain(&self.world, wanted, &guests.guests, moves, &mut left)?;
                if gain == 0 && !self.is_for_one {
                    return None;
                }
                let counted = counting::capacity(
                    &self.world,
                    &equal,
                    wanted.constraints,
                    wanted.query,
                    &mut left,
                );
                Some((gain, counted.ok().flatten().map(|counted| counted.servers)))
            });
            if let Ok(Some((gain, before))) = gained {
                let (id, name) = (request.id.clone(), request.name.clone());
                gains.push(Gain { id, name, before, gain });
            }
        }
        gains
    }
}

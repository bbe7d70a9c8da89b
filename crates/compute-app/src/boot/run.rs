//! The transaction of a boot, and the retries when its plan is outdated.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use kilonova_compute_db::documents;
use kilonova_compute_db::servers::{self, Fault, NewServer, Spec, TaskState, VmState};
use kilonova_compute_scheduler::{
    Constraints, Facts, NoHost, Plan, Subject, places_with_intentions,
};
use kilonova_engine::Query;
use kilonova_flow::{self as flow, Event, Outcome};
use kilonova_ids::{HostName, ResourceClass, ServerId, ascending};
use kilonova_store::Tx;
use kilonova_wire::refusal::Kind;
use kilonova_wire::time;

use super::{BootRequest, GuestSource, Initiator, Wanted, claim_along, desired, query_of, waiting};
use crate::aggregates::DEFAULT_ZONE;
use crate::flows::journal::{self, OpenOperation, Requester};
use crate::flows::operation::{Create, Operation};
use crate::numa::{self, Misfits};
use crate::volumes::resolve;
use crate::{Compute, Error, ports, server_groups, usage};

/// Number of plans that may lose their candidates to other requests before the request fails with "no valid host".
const ROUNDS: usize = 12;

/// How long a host counts as in use by another controller after that controller has changed it. A controller that boots
/// servers without pause fills a host within about this time.
const LATELY: Duration = Duration::from_secs(1);

/// Number of further plans, each without the hosts on which the NUMA topology did not fit.
const UNFIT_ROUNDS: usize = 64;

/// Boots `request.min_count` to `request.max_count` servers and returns their ids. If no host fits,
/// creates the servers in `ERROR` with the reason, as upstream does.
///
/// # Errors
/// 400 for a flavor that cannot be scheduled and for an unknown zone; store errors.
pub async fn boot(compute: &Compute, mut request: BootRequest) -> Result<Vec<ServerId>, Error> {
    if request.forced {
        let spec = &request.spec;
        let host = spec.wanted_host.as_ref().and_then(|host| compute.fleet.by_name(host));
        // Another controller may have registered the host, or put it into the zone, just now.
        if host.is_none() || zone_of_forced(compute, spec) != spec.availability_zone {
            compute.catch_up().await;
        }
        request.spec.availability_zone = zone_of_forced(compute, &request.spec);
    }
    let spec = &request.spec;
    if let (Some(zone), None) = (&spec.availability_zone, &spec.wanted_host)
        && !compute.fleet.has_zone(zone)
    {
        compute.catch_up().await;
        if !compute.fleet.has_zone(zone) {
            let why = "The requested availability zone is not available";
            return Err(kilonova_wire::Refusal::bad_request(why).into());
        }
    }
    let aliases = &compute.options.pci_aliases;
    let flavor = super::on_host(spec, &spec.flavor);
    let mut query =
        query_of(&flavor, &spec.image_properties, &request.profiles, aliases, rand::random())?;
    compute.packer.record(&query, request.max_count);
    // A recent commit may have freed capacity that memory does not show yet, so the controller
    // catches up before it refuses a request.
    let mut has_caught_up = false;
    let (mut misfits, mut rounds) = (Misfits::default(), 0..ROUNDS + UNFIT_ROUNDS);
    let mut outdated = 0;
    let mut max_count = request.max_count;
    while rounds.next().is_some() && outdated < ROUNDS {
        let facts = read_facts(compute, &request).await?;
        let nobody = HashSet::new();
        let unfit: HashSet<HostName> = misfits.hosts().cloned().collect();
        let server = (&*request.project_id, spec);
        let constraints = Constraints::new(compute.scope(), server, &facts, &nobody, time::now());
        let foreign = compute.world.foreign(LATELY);
        let constraints = Constraints {
            forced: request.forced,
            foreign: Some(&foreign),
            unfit: Some(&unfit),
            ..constraints
        };
        let (world, intended) = (compute.world.snapshot(), &compute.intended);
        compute.tally.planned();
        let planned = places_with_intentions(&world, intended, &constraints, &query, max_count);
        let is_short = !planned.as_ref().is_ok_and(|plan| plan.len() >= request.min_count);
        if is_short && !has_caught_up {
            has_caught_up = true;
            compute.catch_up().await;
            continue;
        }
        let planned = match planned {
            Ok(plan) if plan.len() >= request.min_count => plan,
            Ok(plan) => {
                let reason = format!(
                    "There is room for {} of the {} servers.",
                    plan.len(),
                    request.min_count
                );
                let reason = misfits.explain(NoHost::new(reason));
                return refuse(compute, request, &query, reason).await;
            }
            Err(reason) => {
                let reason = misfits.explain(reason);
                return match waiting::boot(compute, &request, &query, &reason).await? {
                    Some(server) => Ok(vec![server]),
                    None => refuse(compute, request, &query, reason).await,
                };
            }
        };
        let (compute_, request_) = (compute.clone(), request.clone());
        let (usage, ports) = (usage::scope(&request.project_id), request.ports.rows());
        let host = planned.first().and_then(|choice| choice.candidates.first());
        let host = host.map_or_else(String::new, |candidate| candidate.root.to_string());
        let intention = intended.begin(&planned);
        let work = move |tx: &mut Tx<'_>| commit(tx, &compute_, &request_, &planned);
        let booted = compute.store.write_together(usage, host, ports, work).await;
        drop(intention);
        match booted {
            Err(Error::Outdated) => {
                // The new seed gives the next plan other alternates.
                outdated += 1;
                query.seed = rand::random();
                compute.catch_up().await;
            }
            Err(Error::Unfit(found, placed)) => {
                query.seed = rand::random();
                if !found.is_empty() {
                    misfits.extend(found);
                } else if placed >= request.min_count && placed < max_count {
                    // The hosts have room only for the servers that this plan placed.
                    max_count = placed;
                } else {
                    let reason = format!(
                        "There is room for {placed} of the {} servers with their NUMA topologies.",
                        request.min_count
                    );
                    let reason = misfits.explain(NoHost::new(reason));
                    return refuse(compute, request, &query, reason).await;
                }
            }
            // Fewer servers than the maximum may be within the quota.
            Err(Error::Refused(refusal))
                if refusal.kind == Kind::Forbidden && max_count > request.min_count =>
            {
                let room = room_in_quota(compute, &request).await?;
                if room < request.min_count || room >= max_count {
                    return Err(Error::Refused(refusal));
                }
                max_count = room;
                request.max_count = room;
            }
            ended => return ended,
        }
    }
    refuse(compute, request, &query, give_up(outdated, &misfits)).await
}

/// The zone of a server whose host is named as `zone:host`: a wrong zone is replaced by the host's, as by Nova
/// (`_validate_host_availability_zone`).
fn zone_of_forced(compute: &Compute, spec: &Spec) -> Option<String> {
    let named = spec.availability_zone.clone()?;
    let zone = compute.zone_of(spec.wanted_host.as_ref());
    if named == zone || zone.is_empty() {
        return Some(named);
    }
    Some(zone).filter(|zone| zone != DEFAULT_ZONE)
}

/// The number of servers of a request that the quota allows now.
async fn room_in_quota(compute: &Compute, request: &BootRequest) -> Result<usize, Error> {
    let (project, user) = (request.project_id.clone(), request.user_id.clone());
    let each = usage_of(request, 1);
    let room = compute.store.read(move |tx| usage::room(tx, &project, &user, each)).await?;
    Ok(usize::try_from(room).unwrap_or(usize::MAX))
}

/// The refusal when no further plan is made, although another plan might find a host.
fn give_up(outdated: usize, misfits: &Misfits) -> NoHost {
    misfits.explain(NoHost::new(match outdated {
        ROUNDS => "Every host that had room was taken by other requests; try again.",
        _ => "Further hosts were not tried.",
    }))
}

/// The facts about other servers that the scheduler needs; most requests need none.
pub(super) async fn read_facts(compute: &Compute, request: &BootRequest) -> Result<Facts, Error> {
    if !kilonova_compute_scheduler::are_needed(&compute.options.scheduler, &request.spec.hints) {
        return Ok(Facts::default());
    }
    let (compute_, hints) = (compute.clone(), request.spec.hints.clone());
    Ok(compute
        .store
        .read(move |tx| {
            kilonova_compute_scheduler::facts(tx, &compute_.options.scheduler, Subject::New(&hints))
        })
        .await?)
}

/// Adds the server to the group that it requests, if any. Writes the group's row first, so that boots into the same
/// group are serialized. Fails with [`Error::Outdated`] if the group does not allow the host.
pub(super) fn enter(
    tx: &mut Tx<'_>,
    request: &BootRequest,
    server: ServerId,
    host: &HostName,
) -> Result<(), Error> {
    let Some(group) = request.spec.hints.group else { return Ok(()) };
    server_groups::join(tx, group, server, &request.project_id, &request.user_id)?;
    let subject = Subject::Server(server, &request.spec.hints);
    match kilonova_compute_scheduler::group_facts(tx, group, subject)? {
        Some(facts) if !request.forced && !facts.allows(host) => Err(Error::Outdated),
        _ => Ok(()),
    }
}

/// Writes the servers of a plan. Fails with [`Error::Outdated`] if another transaction has claimed every planned
/// candidate of some server.
fn commit(
    tx: &mut Tx<'_>,
    compute: &Compute,
    request: &BootRequest,
    plan: &Plan,
) -> Result<Vec<ServerId>, Error> {
    let now = time::now();
    let mut new_ports =
        compute.networks.ask_new(tx, &request.project_id, &request.ports, plan.len())?;
    let mut counted = Some(ask_quota(tx, request, plan.len())?);
    let mut ids = Vec::with_capacity(plan.len());
    let numa = numa::requested(&request.spec.flavor, &request.spec.image_properties);
    let wanted = Wanted { profiles: &request.profiles, numa: &numa, running: None };
    let mut placed_on = HashSet::new();
    for (index, choice) in plan.iter().enumerate() {
        let id = id_of(request, index);
        let placed = claim_along(
            tx,
            compute,
            id,
            &request.project_id,
            Initiator { user_id: &request.user_id, request_id: &request.request_id },
            wanted,
            choice,
            |tx, host| {
                let mut server = NewServer {
                    host: Some(host.clone()),
                    vm_state: VmState::Building,
                    task_state: Some(TaskState::Spawning),
                    ..new_server(request, id, index, plan.len())
                };
                server.spec.networked = !request.ports.is_empty();
                let inserted = servers::ask_insert(tx, &server, now)?;
                Ok((server, inserted, documents::ask_next(tx, host)?))
            },
        )?;
        // The first claim also sends the quota count. An exceeded quota takes precedence over a
        // full cloud.
        if let Some(counted) = counted.take() {
            counted.check(tx, &request.project_id, &request.user_id)?;
        }
        let (place, (server, inserted, generation)) = match placed {
            Ok(placed) => placed,
            Err(misfits) if misfits.is_empty() => return Err(Error::Outdated),
            Err(misfits) => return Err(Error::Unfit(misfits.without(&placed_on), index)),
        };
        placed_on.insert(place.host.clone());
        enter(tx, request, id, &place.host)?;
        let seq = servers::inserted(tx, inserted)?;
        let (project, spec, host) = (&*request.project_id, &server.spec, &place.host);
        let owner = ports::PortOwner { id, project, spec, host };
        let ports = compute.networks.attach(tx, owner, &request.ports, &mut new_ports, now)?;
        let name = &server.name;
        let (zone, metadata) = (&*compute.zone_of(Some(host)), &server.metadata);
        let source = GuestSource { seq, name, project, spec, metadata, zone };
        let (properties, flavor) = (&server.spec.image_properties, &server.spec.flavor);
        let volumes = &request.volumes;
        let placed = resolve::Placed { id, project, zone };
        let volumes = resolve::begin(tx, compute, placed, volumes, properties, flavor)?;
        let (host, delivery) = (&place.host, ports.delivery);
        let document = desired(&source, place.devices, place.numa, ports, volumes);
        documents::put_next_as(tx, compute, host, generation, id, &document, delivery)?;
        begin(tx, request, id, Some(place.how), now)?;
        ids.push(id);
    }
    Ok(ids)
}

/// Inserts the servers of a request that has no valid host, in the state `ERROR`. The fault is determined in a read
/// beforehand, because a write transaction blocks all others.
async fn refuse(
    compute: &Compute,
    request: BootRequest,
    query: &Query,
    reason: NoHost,
) -> Result<Vec<ServerId>, Error> {
    let classes = classes(query);
    let cards: Vec<String> = compute
        .store
        .read(move |tx| {
            let cards = classes.iter().map(|one| kilonova_accelerator::ledger::excluded(tx, one));
            cards.collect::<Result<_, _>>().map_err(Error::from)
        })
        .await?;
    let reason = cards.into_iter().fold(reason, NoHost::and);
    let message = reason.details();
    compute
        .store
        .write(move |tx| {
            let now = time::now();
            take_quota(tx, &request, request.min_count)?;
            tracing::info!(request = %request.request_id, "{message}");
            let mut ids = Vec::with_capacity(request.min_count);
            for index in 0..request.min_count {
                let id = id_of(&request, index);
                let fault = Fault::new(&reason.message(), &*message, now);
                let server = NewServer {
                    vm_state: VmState::Error,
                    fault: Some(fault),
                    ..new_server(&request, id, index, request.min_count)
                };
                servers::insert(tx, &server, now)?;
                if !request.volumes.devices.is_empty() {
                    resolve::keep_reserved(tx, id)?;
                }
                let open = begin(tx, &request, id, None, now)?;
                flow::event(tx, open.row.id, &failed_to_schedule(&message, now))?;
                journal::finish(tx, &open, Outcome::Failed, Some(&message), now)?;
                ids.push(id);
            }
            Ok(ids)
        })
        .await
}

/// The resource classes of a query.
fn classes(query: &Query) -> BTreeSet<ResourceClass> {
    let resources = query.groups.iter().flat_map(|group| &group.resources);
    resources.map(|(class, _)| class.clone()).collect()
}

pub(super) fn take_quota(
    tx: &mut Tx<'_>,
    request: &BootRequest,
    count: usize,
) -> Result<(), Error> {
    ask_quota(tx, request, count)?.check(tx, &request.project_id, &request.user_id)
}

fn ask_quota(
    tx: &mut Tx<'_>,
    request: &BootRequest,
    count: usize,
) -> Result<usage::AskedUsage, Error> {
    usage::ask_take(tx, &request.project_id, &request.user_id, usage_of(request, count))
}

/// The usage of some servers of a request.
fn usage_of(request: &BootRequest, count: usize) -> usage::ProjectUsage {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let flavor = &request.spec.flavor;
    usage::ProjectUsage {
        instances: count,
        cores: flavor.vcpus.saturating_mul(count),
        ram: flavor.ram.saturating_mul(count),
    }
}

pub(super) fn failed_to_schedule(message: &str, now: Timestamp) -> Event {
    Event {
        name: "conductor_schedule_and_build_instances".into(),
        host: None,
        result: Some("Error".into()),
        details: Some(message.to_owned()),
        started_at: now,
        finished_at: Some(now),
    }
}

fn begin(
    tx: &mut Tx<'_>,
    request: &BootRequest,
    server: ServerId,
    chosen: Option<String>,
    now: Timestamp,
) -> Result<OpenOperation, Error> {
    begin_at(tx, request, server, Create::Spawn { chosen, tried: Vec::new(), reason: None }, now)
}

/// Begins the build of one of the request's servers at the step `create`.
pub(super) fn begin_at(
    tx: &mut Tx<'_>,
    request: &BootRequest,
    server: ServerId,
    create: Create,
    now: Timestamp,
) -> Result<OpenOperation, Error> {
    let by = Requester {
        request_id: request.request_id.clone(),
        project_id: request.project_id.clone(),
        user_id: request.user_id.clone(),
    };
    journal::begin_first(tx, server, &by, Operation::Create(create), now)
}

/// The id of one server of the request.
fn id_of(request: &BootRequest, index: usize) -> ServerId {
    request.ids.get(index).copied().unwrap_or_else(ascending)
}

/// The row of one server of the request. If the request is for several servers, `-1`, `-2`, … is appended to each name.
pub(super) fn new_server(
    request: &BootRequest,
    id: ServerId,
    index: usize,
    of: usize,
) -> NewServer {
    let name = if of > 1 || request.max_count > 1 {
        format!("{}-{}", request.name, index + 1)
    } else {
        request.name.clone()
    };
    let mut spec = request.spec.clone();
    spec.launch_index = index as i64;
    if spec.hostname.is_empty() {
        // The name has no character of a host name (Nova: `_populate_instance_names`).
        spec.hostname = format!("Server-{id}");
    } else if request.max_count > 1 {
        spec.hostname = format!("{}-{}", spec.hostname, index + 1);
    }
    NewServer {
        id,
        project_id: request.project_id.clone(),
        user_id: request.user_id.clone(),
        name,
        description: request.description.clone(),
        host: None,
        vm_state: VmState::Building,
        task_state: None,
        spec,
        metadata: request.metadata.clone(),
        tags: request.tags.clone(),
        fault: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_that_gives_up_says_why_and_on_which_hosts_the_topology_did_not_fit() {
        let mut misfits = Misfits::default();
        misfits.add(&HostName::verbatim("a"), "it offers no NUMA cells".to_owned());
        for (outdated, why) in
            [(ROUNDS, "taken by other requests"), (0, "Further hosts were not tried")]
        {
            let reason = give_up(outdated, &misfits);
            assert!(reason.message().contains(why), "{}", reason.message());
            assert!(reason.details().contains("does not fit on a ("), "{}", reason.details());
        }
    }
}

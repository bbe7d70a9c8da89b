//! Lets a boot for which there is no room wait in `BUILD` while one or two live migrations make room (`[rebalance]
//! on_refusal`).
//!
//! ```text
//!   no host has room ─► plan moves ─► server in BUILD, step wait_for_room ─► 202
//!                                        │ move, move (each an operation of its own)
//!                                        ├─ room ──► claim and document in one transaction, step spawn
//!                                        └─ none, a move failed, too late ──► ERROR with the refusal
//! ```
//!
//! The waiting server holds only its quota. Its request is in the memory of one controller; if that controller dies,
//! another one ends the wait ([`end_overdue`]). Only one controller can end the wait, because ending it is a single
//! transaction that requires the server to be at this step.

use std::collections::HashSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kilonova_compute_db::moves::{self, Status};
use kilonova_compute_db::servers::{self, Fault, NewServer, TaskState, VmState};
use kilonova_compute_db::{documents, slow};
use kilonova_compute_scheduler::{Choice, Constraints, NoHost, places};
use kilonova_engine::Query;
use kilonova_flow::{self as flow, Outcome};
use kilonova_ids::{HostName, ServerId, ascending};
use kilonova_store::Tx;
use kilonova_topology::Request;
use kilonova_wire::time;
use tokio::time::Instant;

use super::run::{begin_at, enter, failed_to_schedule, new_server, read_facts, take_quota};
use super::{BootRequest, GuestSource, Initiator, Wanted, claim, desired};
use crate::flows::journal::{self, OpenOperation};
use crate::flows::operation::{Create, Operation};
use crate::flows::service_context;
use crate::rebalance::{self, Begun, Step};
use crate::{Compute, Error, numa, ports};

/// The interval at which the progress of a move is read.
const POLL: Duration = Duration::from_millis(250);

/// The longest pause between two plans for a boot whose moves have completed. Each plan searches the whole cloud.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Number of plans tried after the moves have completed.
const ROUNDS: usize = 4;

/// Time after the deadline of a wait at which another controller treats it as abandoned.
pub const GRACE: SignedDuration = SignedDuration::from_secs(30);

/// Plans moves that make room for a boot that was refused, and begins to wait for them. Returns the waiting
/// server; `None` if no such moves exist, the request cannot wait, or the operator has not enabled it.
///
/// # Errors
/// Those of a refused boot.
pub(super) async fn boot(
    compute: &Compute,
    request: &BootRequest,
    query: &Query,
    reason: &NoHost,
) -> Result<Option<ServerId>, Error> {
    let options = compute.options.rebalance;
    // A boot with reserved volumes does not wait, because the volumes belong to the request, which is answered now.
    let may_wait = options.on_refusal
        && (request.min_count, request.max_count) == (1, 1)
        && !request.forced
        && request.volumes.devices.is_empty()
        // The planner of moves does not consider NUMA cells.
        && !numa::is_requested(&request.spec.flavor, &request.spec.image_properties);
    if !may_wait {
        return Ok(None);
    }
    let facts = read_facts(compute, request).await?;
    let steps = match rebalance::for_boot(compute, request, query, facts).await {
        Ok(steps) if !steps.is_empty() => steps,
        Ok(_) => return Ok(None),
        Err(error) => {
            // The boot can still be refused.
            tracing::warn!(
                %error, request = %request.request_id,
                "cannot plan moves for a boot without room; the boot is refused"
            );
            return Ok(None);
        }
    };
    let waiting = begin(compute, request, reason, options.wait).await?;
    tokio::spawn(run(
        compute.clone(),
        request.clone(),
        query.clone(),
        waiting,
        steps,
        options.wait,
    ));
    Ok(Some(waiting))
}

/// Inserts the waiting server.
async fn begin(
    compute: &Compute,
    request: &BootRequest,
    reason: &NoHost,
    wait: SignedDuration,
) -> Result<ServerId, Error> {
    let (request, id) = (request.clone(), ascending());
    let (reason, message) = (reason.details(), reason.message());
    compute
        .store
        .write(move |tx| {
            let now = time::now();
            take_quota(tx, &request, 1)?;
            let server = NewServer {
                vm_state: VmState::Building,
                task_state: Some(TaskState::Scheduling),
                ..new_server(&request, id, 0, 1)
            };
            servers::insert(tx, &server, now)?;
            let until = time::after(tx.database_time()?, wait);
            let wait = Create::Wait { until, reason: reason.clone(), message: message.clone() };
            begin_at(tx, &request, id, wait, now)?;
            tracing::info!(request = %request.request_id, server = %id, "the server waits for moves: {reason}");
            Ok(id)
        })
        .await
}

/// Performs the moves, then claims the room or refuses the boot.
async fn run(
    compute: Compute,
    request: BootRequest,
    query: Query,
    server: ServerId,
    steps: Vec<Step>,
    wait: SignedDuration,
) {
    let wait = Duration::try_from(wait).unwrap_or_default();
    let deadline = Instant::now() + wait;
    let moved = tokio::time::timeout_at(deadline, all_moved(&compute, &steps)).await;
    let ended = match moved {
        Ok(Ok(Ok(()))) => claim_room(&compute, &request, query, server, deadline).await,
        Ok(Ok(Err(why))) => refuse(&compute, server, why).await,
        Ok(Err(error)) => Err(error),
        Err(_) => {
            let why = format!("The moves that make room took longer than {} s.", wait.as_secs());
            refuse(&compute, server, why).await
        }
    };
    if let Err(error) = ended {
        tracing::warn!(
            %server, %error,
            "cannot update a server that waits for room; the server is set to ERROR soon after the deadline"
        );
    }
}

/// Performs the moves one after the other, or returns why one failed.
async fn all_moved(compute: &Compute, steps: &[Step]) -> Result<Result<(), String>, Error> {
    for step in steps {
        let begun = match begin_move(compute, step).await {
            Ok(begun) => begun,
            Err(Error::Refused(refusal)) => return Ok(Err(failed(step, &refusal.message))),
            Err(error) => return Err(error),
        };
        let server = step.server;
        loop {
            let request = begun.request_id.clone();
            let read = move |tx: &mut Tx<'_>| {
                let all = moves::of_server(tx, server)?;
                let one = all.into_iter().find(|one| one.number == begun.migration);
                let why = match &one {
                    Some(one) if !one.open && one.status != Status::Completed => {
                        flow::one(tx, server, &request)?.and_then(|(one, _)| one.message)
                    }
                    _ => None,
                };
                Ok::<_, Error>((one, why))
            };
            let (state, why) = compute.store.read(read).await?;
            match state {
                // A server that has been deleted in the meantime makes room as well.
                None => break,
                Some(one) if one.open => {}
                Some(one) if one.status != Status::Completed => {
                    let why = why.unwrap_or_else(|| format!("its migration is {}", one.status));
                    return Ok(Err(failed(step, &why)));
                }
                Some(one) if one.held_on.is_none() => break,
                // Its source still has to remove the guest.
                Some(_) => {}
            }
            tokio::time::sleep(POLL).await;
        }
    }
    compute.catch_up().await;
    Ok(Ok(()))
}

fn failed(step: &Step, why: &str) -> String {
    format!("Server {} could not be moved to {} to make room: {why}", step.server, step.to)
}

/// Begins a move on behalf of the moved server's owner, with its own request id.
async fn begin_move(compute: &Compute, step: &Step) -> Result<Begun, Error> {
    let compute = compute.explaining();
    let (own, Step { server, to }) = (compute.clone(), step.clone());
    compute
        .write(move |tx| {
            let owner = servers::find(tx, server)?;
            let (user, project) =
                owner.map(|one| (one.user_id, one.project_id)).unwrap_or_default();
            let context = service_context(&user, &project);
            let begun = rebalance::begin(tx, &own, &context, server, &to, time::now())?;
            tracing::info!(
                %server, from = %begun.source, %to, request = %begun.request_id,
                "starting a move to make room for a boot"
            );
            Ok(begun)
        })
        .await
}

/// Plans again and claims the room. Repeats until the deadline, because a device that a moved guest has released may
/// have to be cleaned first.
async fn claim_room(
    compute: &Compute,
    request: &BootRequest,
    mut query: Query,
    server: ServerId,
    deadline: Instant,
) -> Result<(), Error> {
    let (mut rounds, mut pause) = (0, POLL);
    while rounds < ROUNDS {
        let facts = read_facts(compute, request).await?;
        let planned = {
            let (nobody, project) = (HashSet::new(), &*request.project_id);
            let owner = (project, &request.spec);
            let constraints =
                Constraints::new(compute.scope(), owner, &facts, &nobody, time::now());
            places(&compute.world.snapshot(), &constraints, &query, 1)
        };
        let choice = match planned {
            Ok(mut plan) => plan.pop().unwrap_or_default(),
            Err(why) if Instant::now() >= deadline => {
                let why = format!("There is no room after the moves: {}", why.all());
                return refuse(compute, server, why).await;
            }
            Err(_) => {
                if compute.store.read(move |tx| waits(tx, server)).await?.is_none() {
                    return Ok(());
                }
                // The last plan is made at the deadline.
                tokio::time::sleep_until(deadline.min(Instant::now() + pause)).await;
                pause = LONGEST_PAUSE.min(pause * 2);
                compute.catch_up().await;
                continue;
            }
        };
        rounds += 1;
        let (own, request) = (compute.clone(), request.clone());
        let work = move |tx: &mut Tx<'_>| claim_waiting(tx, &own, &request, server, &choice);
        match compute.store.write(work).await {
            Err(Error::Outdated) => {
                query.seed = rand::random();
                compute.catch_up().await;
            }
            Err(Error::Refused(refusal)) => return refuse(compute, server, refusal.message).await,
            ended => return ended,
        }
    }
    let why = "Moves made room, but other requests took it.".to_owned();
    refuse(compute, server, why).await
}

/// A build that waits, and its refusal if it gets no room.
struct Waiting {
    open: OpenOperation,
    until: Timestamp,
    /// For administrators.
    reason: String,
    /// For the owner.
    message: String,
}

/// The server's build, if it still waits.
fn waits(tx: &mut Tx<'_>, server: ServerId) -> Result<Option<Waiting>, Error> {
    let Some(open) = journal::open_of(tx, server)? else { return Ok(None) };
    let Operation::Create(Create::Wait { until, reason, message }) = &open.state else {
        return Ok(None);
    };
    let (until, reason, message) = (*until, reason.clone(), message.clone());
    Ok(Some(Waiting { open, until, reason, message }))
}

/// Claims a place for a waiting server, like the transaction of a boot. Fails with [`Error::Outdated`] if the place is
/// taken.
fn claim_waiting(
    tx: &mut Tx<'_>,
    compute: &Compute,
    request: &BootRequest,
    server: ServerId,
    choice: &Choice,
) -> Result<(), Error> {
    let now = time::now();
    let Some(Waiting { open, .. }) = waits(tx, server)? else { return Ok(()) };
    let Some(found) = servers::find(tx, server)? else { return Ok(()) };
    // The row is written first, so that a concurrent deletion conflicts with this transaction.
    servers::set_task(tx, server, Some(TaskState::Spawning), now)?;
    let mut new_ports = compute.networks.ask_new(tx, &request.project_id, &request.ports, 1)?;
    let by = Initiator { user_id: &request.user_id, request_id: &request.request_id };
    let project = &request.project_id;
    // A request with a NUMA topology does not wait.
    let wanted = Wanted { profiles: &request.profiles, numa: &Request::default(), running: None };
    let Ok(place) = claim(tx, compute, server, project, by, wanted, choice)? else {
        return Err(Error::Outdated);
    };
    let host: &HostName = &place.host;
    enter(tx, request, server, host)?;
    let mut spec = found.spec.clone();
    spec.networked = !request.ports.is_empty();
    servers::set_spec(tx, server, &spec, now)?;
    servers::set_host(tx, server, Some(host), now)?;
    let owner = ports::PortOwner { id: server, project, spec: &spec, host };
    let ports = compute.networks.attach(tx, owner, &request.ports, &mut new_ports, now)?;
    let zone = compute.zone_of(Some(host));
    let (name, metadata) = (&*found.name, &found.metadata);
    let source = GuestSource { seq: found.seq, name, project, spec: &spec, metadata, zone: &zone };
    let delivery = ports.delivery;
    let document = desired(&source, place.devices, place.numa, ports, Vec::new());
    documents::put_as(tx, compute, host, server, &document, delivery)?;
    let spawn = Create::Spawn { chosen: Some(place.how), tried: Vec::new(), reason: None };
    journal::advance(tx, &open, &Operation::Create(spawn), now)
}

/// Ends a wait: sets the server to `ERROR` with the original refusal and the reason why the wait failed.
async fn refuse(compute: &Compute, server: ServerId, why: String) -> Result<(), Error> {
    compute.store.write(move |tx| refuse_waiting(tx, server, &why)).await
}

fn refuse_waiting(tx: &mut Tx<'_>, server: ServerId, why: &str) -> Result<(), Error> {
    let now = time::now();
    let Some(Waiting { open, reason, message, .. }) = waits(tx, server)? else { return Ok(()) };
    let details = format!("{reason} {why}");
    tracing::info!(%server, "{details}");
    servers::set_error(tx, server, &Fault::new(&message, &*details, now), now)?;
    flow::event(tx, open.row.id, &failed_to_schedule(&details, now))?;
    journal::finish(tx, &open, Outcome::Failed, Some(&details), now)
}

/// Ends the waits that exceed their deadline by `grace`, because the controller that kept their requests has stopped.
///
/// # Errors
/// Store errors only.
pub async fn end_overdue(compute: Compute, grace: SignedDuration) -> Result<(), Error> {
    let overdue = compute.store.read(move |tx| {
        let now = tx.database_time()?;
        let mut overdue = Vec::new();
        for server in slow::waits(tx)? {
            let waiting = match waits(tx, server) {
                Err(error @ Error::Unreadable { .. }) => {
                    tracing::warn!(%server, %error, "cannot update a server that waits for room");
                    continue;
                }
                waiting => waiting?,
            };
            if waiting.is_some_and(|one| now >= time::after(one.until, grace)) {
                overdue.push(server);
            }
        }
        Ok::<_, Error>(overdue)
    });
    for server in overdue.await? {
        refuse(&compute, server, "The controller that made room for it has stopped.".to_owned())
            .await?;
    }
    Ok(())
}

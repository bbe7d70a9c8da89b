//! Unbinds requests whose instance the external Nova no longer has. Nova reports the end of an
//! instance from its host; if that host was down, no report ever arrives. So this loop queries Nova
//! about requests that have long been bound and whose instance has no allocation on the device, and
//! unbinds them if Nova answers that the instance does not exist.
//!
//! Any other answer changes nothing. Of several controllers, only the one that records the query in
//! the request's row queries Nova. Each round queries a limited number of instances, and each
//! instance only once per interval.

use jiff::{SignedDuration, Timestamp};
use kilonova_ids::{ConsumerId, ServerId};
use kilonova_placement::ledger as placement;
use kilonova_store::Tx;
use kilonova_wire::time;
use newtype_uuid::GenericUuid;

use crate::app::arqs::{self as requests, Caller, Scope};
use crate::db::arqs::{self, ExternalRequest};
use crate::ledger::Actor;
use crate::nova::{Nova, NovaError, Presence};
use crate::{ArqState, Error, State};

/// Minimum age of a binding before the first query: Nova binds and claims in separate steps.
const BIND_GRACE: SignedDuration = SignedDuration::from_mins(5);
/// Interval between two queries about one instance.
const ASK_INTERVAL: SignedDuration = SignedDuration::from_mins(5);
/// Maximum number of requests that one round examines.
const PAGE: i64 = 500;
/// Maximum number of instances that one round queries.
const MAX_QUERIES: usize = 10;

/// The result of a round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    /// Instances that Nova was asked about.
    pub asked: usize,
    /// Requests that were unbound.
    pub unbound: usize,
    /// Where the next round continues; 0 for the start.
    pub next: i64,
}

/// Runs one round over the requests after an id.
///
/// # Errors
/// Store errors only; errors of Nova are logged.
pub async fn lost(state: &State, nova: &dyn Nova, after: i64) -> Result<Lost, Error> {
    let now = time::now();
    let (bound_before, asked_before) =
        (time::before(now, BIND_GRACE), time::before(now, ASK_INTERVAL));
    let page = state
        .store
        .read(move |tx| {
            arqs::external(tx, after, bound_before, asked_before, PAGE).map_err(Error::from)
        })
        .await?;
    let mut done = Lost { next: last(&page), ..Lost::default() };
    let suspects = state.store.read(move |tx| suspects(tx, &page)).await?;
    for suspect in suspects {
        if done.asked == MAX_QUERIES {
            done.next = suspect.id - 1;
            break;
        }
        let server = suspect.server;
        let record = move |tx: &mut Tx<'_>| {
            arqs::record_query(tx, server, now, asked_before).map_err(Error::from)
        };
        if !state.store.write(record).await? {
            continue;
        }
        done.asked += 1;
        match nova.has(server).await {
            Ok(Presence::Absent) => done.unbound += unbind(state, server, bound_before).await?,
            Ok(Presence::Exists) => tracing::warn!(
                %server,
                "Nova has the instance, whose accelerator request is bound without an allocation; delete or \
                 rebuild it there, or heal its allocations"
            ),
            Err(NovaError::Permanent(why)) => {
                tracing::warn!(%server, why, "Nova's answer about the instance is inconclusive");
            }
            Err(NovaError::Temporary(why)) => {
                tracing::warn!(%server, why, "cannot query Nova about the instance");
                break;
            }
        }
    }
    Ok(done)
}

/// The id after which to continue; 0 after the last page.
fn last(page: &[ExternalRequest]) -> i64 {
    if (page.len() as i64) < PAGE { 0 } else { page.last().map_or(0, |row| row.id) }
}

/// The first request of each instance without an allocation on its device.
fn suspects(tx: &mut Tx<'_>, page: &[ExternalRequest]) -> Result<Vec<ExternalRequest>, Error> {
    let mut found: Vec<ExternalRequest> = Vec::new();
    for row in page {
        let seen = found.iter().any(|other| other.server == row.server);
        if !seen && !placement::has_allocation_on(tx, consumer_of(row.server), row.provider)? {
            found.push(row.clone());
        }
    }
    Ok(found)
}

fn consumer_of(server: ServerId) -> ConsumerId {
    ConsumerId::from_untyped_uuid(server.into_untyped_uuid())
}

/// Unbinds the requests of a deleted instance, unless they have changed since `bound_before`.
async fn unbind(state: &State, server: ServerId, bound_before: Timestamp) -> Result<usize, Error> {
    let request = format!("req-{}", uuid::Uuid::new_v4());
    let caller = Caller {
        scope: Scope::All,
        actor: Actor { user_id: None, request_id: Some(request.clone()) },
        service: true,
        notify_nova: false,
        world: state.world.clone(),
        bitstreams: None,
        nodes: state.nodes.clone(),
    };
    let notifier = state.clone();
    let work = move |tx: &mut Tx<'_>| {
        let mut gone = Vec::new();
        for row in arqs::list(tx, None, Some(server))? {
            let Some(provider) = row.provider else { continue };
            let settled = row.updated_at.is_some_and(|at| at < bound_before);
            let bound = row.state == ArqState::Bound && !row.internal && settled;
            if bound && !placement::has_allocation_on(tx, consumer_of(server), provider)? {
                gone.push(row.uuid);
            }
        }
        requests::unbind(tx, &caller, &gone)?;
        notifier.announce(tx)?;
        Ok::<_, Error>(gone.len())
    };
    let unbound = state.store.write(work).await?;
    tracing::warn!(
        %server,
        request,
        unbound,
        "Nova no longer has the instance; its accelerator requests are unbound"
    );
    Ok(unbound)
}

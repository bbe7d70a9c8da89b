//! Requests whose instance the other Nova no longer has. Nova tells of an instance's end from the host; where
//! that was down, nobody ever does. A request that has long been bound and whose instance holds no
//! allocation of the device is asked about, and unbound when Nova answers that there is no such instance.
//!
//! Any other answer, and none, changes nothing. Of several controllers one asks about an instance: whoever
//! notes the question in the request's row. So many questions are asked in one round, and an instance is
//! asked about once in a while.

use kilonova_ids::{ConsumerId, ServerId};
use kilonova_placement::ledger as placement;
use kilonova_store::{Tx, params};
use kilonova_wire::time::now_micros;
use newtype_uuid::GenericUuid;

use crate::app::arqs::{self as requests, Caller, Scope};
use crate::db::arqs::{self, Elsewhere};
use crate::ledger::Actor;
use crate::nova::{Nova, Presence, Trouble};
use crate::{Error, State};

const SECOND: i64 = 1_000_000;
/// A request is bound for so long before anybody is asked: Nova binds and claims in steps.
const SETTLED: i64 = 300 * SECOND;
/// Between two questions about one instance.
const AGAIN: i64 = 300 * SECOND;
/// Requests that one round looks at.
const PAGE: i64 = 500;
/// Instances that one round asks about.
const QUESTIONS: usize = 10;

/// What a round came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    /// Instances that Nova was asked about.
    pub asked: usize,
    /// Requests that were unbound.
    pub unbound: usize,
    /// Where the next round goes on; 0 for the beginning.
    pub next: i64,
}

/// One round, over the requests after a number.
///
/// # Errors
/// Only the store's; what Nova does not answer is logged.
pub async fn lost(state: &State, nova: &dyn Nova, after: i64) -> Result<Lost, Error> {
    let now = now_micros();
    let (bound_before, asked_before) = (now - SETTLED, now - AGAIN);
    let page = state
        .store
        .read(move |tx| {
            arqs::elsewhere(tx, after, bound_before, asked_before, PAGE).map_err(Error::from)
        })
        .await?;
    let mut done = Lost { next: last(&page), ..Lost::default() };
    let suspects = state.store.read(move |tx| suspects(tx, &page)).await?;
    for suspect in suspects {
        if done.asked == QUESTIONS {
            done.next = suspect.id - 1;
            break;
        }
        let server = suspect.server;
        let mine = move |tx: &mut Tx<'_>| {
            Ok::<_, Error>(tx.execute(arqs::ASK, params![server, now, asked_before])? > 0)
        };
        if !state.store.write(mine).await? {
            continue;
        }
        done.asked += 1;
        match nova.has(server).await {
            Ok(Presence::Gone) => done.unbound += unbind(state, server, bound_before).await?,
            Ok(Presence::There) => tracing::warn!(
                %server,
                "Nova has the instance, whose accelerator request is bound without an allocation; delete or \
                 rebuild it there, or heal its allocations"
            ),
            Err(Trouble::Never(why)) => {
                tracing::warn!(%server, why, "Nova does not say whether it has the instance");
            }
            Err(Trouble::Later(why)) => {
                tracing::warn!(%server, why, "Nova cannot be asked whether it has the instance");
                break;
            }
        }
    }
    Ok(done)
}

/// From where a page that is full goes on.
fn last(page: &[Elsewhere]) -> i64 {
    if (page.len() as i64) < PAGE { 0 } else { page.last().map_or(0, |row| row.id) }
}

/// The first request of each instance that holds nothing of its device.
fn suspects(tx: &mut Tx<'_>, page: &[Elsewhere]) -> Result<Vec<Elsewhere>, Error> {
    let mut found: Vec<Elsewhere> = Vec::new();
    for row in page {
        let seen = found.iter().any(|other| other.server == row.server);
        if !seen && !placement::holds_on(tx, consumer_of(row.server), row.provider)? {
            found.push(row.clone());
        }
    }
    Ok(found)
}

fn consumer_of(server: ServerId) -> ConsumerId {
    ConsumerId::from_untyped_uuid(server.into_untyped_uuid())
}

/// Unbinds what an instance that is gone still has, if that is as it was when Nova was asked.
async fn unbind(state: &State, server: ServerId, bound_before: i64) -> Result<usize, Error> {
    let request = format!("req-{}", uuid::Uuid::new_v4());
    let caller = Caller {
        scope: Scope::All,
        actor: Actor { user_id: None, request_id: Some(request.clone()) },
        service: true,
        tell_nova: false,
        world: state.world.clone(),
        bitstreams: None,
        nodes: state.nodes.clone(),
    };
    let told = state.clone();
    let work = move |tx: &mut Tx<'_>| {
        let mut gone = Vec::new();
        for row in arqs::list(tx, None, Some(server))? {
            let Some(provider) = row.provider else { continue };
            let settled = row.updated_at.is_some_and(|at| at < bound_before);
            let bound = row.state == "Bound" && !row.internal && settled;
            if bound && !placement::holds_on(tx, consumer_of(server), provider)? {
                gone.push(row.uuid);
            }
        }
        requests::unbind(tx, &caller, &gone)?;
        told.announce(tx)?;
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

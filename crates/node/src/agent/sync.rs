//! Reports guests that are not in the state that their document requests: a guest that was shut down
//! from inside, for example, or one that waits for its ports. Repeats each report until the controller
//! sends a new desired state. Changes nothing.

use std::collections::HashSet;

use kilonova_hypervisor::DomainState;
use kilonova_ids::ServerId;
use kilonova_node_api::{Observation, Power};

use super::reconcile::outcome;
use super::work::Work;
use super::workers::Workers;

/// Guests whose state differs from the one in which the agent left them, and domains without a
/// document.
pub(super) async fn check_all(work: &Work, workers: &Workers) -> Vec<Observation> {
    let mut seen = Vec::new();
    let running = running(work).await;
    for settled in work.notes.settled() {
        let (server, _, power) = settled;
        if expected(power) == DomainState::Running && running.contains(&server) {
            continue;
        }
        seen.extend(deviation(work, workers, settled).await);
    }
    for server in work.undocumented_domains() {
        if let Some(state) = state(work, server).await {
            seen.push(Observation::new(server, 0, outcome(state)));
        }
    }
    seen
}

/// The same for one guest that may have changed.
pub(super) async fn check_one(
    work: &Work,
    workers: &Workers,
    server: ServerId,
) -> Option<Observation> {
    let settled = work.notes.settled().into_iter().find(|(settled, ..)| *settled == server)?;
    deviation(work, workers, settled).await
}

async fn deviation(
    work: &Work,
    workers: &Workers,
    (server, generation, power): (ServerId, i64, Power),
) -> Option<Observation> {
    if workers.is_busy(server) {
        return None;
    }
    let state = state(work, server).await.filter(|state| *state != expected(power))?;
    if workers.is_busy(server) {
        return None;
    }
    tracing::info!(host = %work.host(), %server, ?state, "the power state of a guest differs from its document");
    Some(Observation::new(server, generation, outcome(state)))
}

/// The running guests. Most guests are supposed to run, so this one call checks most of them.
async fn running(work: &Work) -> HashSet<ServerId> {
    match work.hypervisor.running().await {
        Ok(servers) => servers.into_iter().collect(),
        Err(error) => {
            tracing::warn!(host = %work.host(), %error, "could not list the running guests");
            HashSet::new()
        }
    }
}

/// The state of a domain. `None` if the domain was migrated out, waits for an incoming migration, does
/// not exist or cannot be read.
async fn state(work: &Work, server: ServerId) -> Option<DomainState> {
    match work.hypervisor.domain(server).await {
        Ok(found) => found
            .map(|found| found.state)
            .filter(|state| !matches!(state, DomainState::MigratedOut | DomainState::Incoming)),
        Err(error) => {
            tracing::warn!(host = %work.host(), %server, %error, "could not read a domain");
            None
        }
    }
}

fn expected(power: Power) -> DomainState {
    match power {
        Power::On | Power::Incoming | Power::AsIs => DomainState::Running,
        Power::Off => DomainState::Shutoff,
        Power::Paused => DomainState::Paused,
        Power::Suspended => DomainState::Saved,
    }
}

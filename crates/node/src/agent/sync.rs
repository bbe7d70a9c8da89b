//! What guests do by themselves: one that has stopped, or was stopped by somebody on the host, is told
//! of now and then until the control plane says what it is to be. Nothing is done to it here.

use std::collections::HashSet;

use kilonova_hypervisor::Life;
use kilonova_ids::ServerId;
use kilonova_node_api::{Observation, Power};

use super::make::outcome;
use super::work::Work;
use super::workers::Workers;

/// Guests that are not as they were left, and domains that no document names.
pub(super) async fn look(work: &Work, workers: &Workers) -> Vec<Observation> {
    let mut seen = Vec::new();
    let running = running(work).await;
    for settled in work.notes.settled() {
        let (server, _, power) = settled;
        if wanted(power) == Life::Running && running.contains(&server) {
            continue;
        }
        seen.extend(look_at(work, workers, settled).await);
    }
    for server in work.strangers() {
        if let Some(life) = life(work, server).await {
            seen.push(Observation::new(server, 0, outcome(life)));
        }
    }
    seen
}

/// The same of one guest that may have changed.
pub(super) async fn look_again(
    work: &Work,
    workers: &Workers,
    server: ServerId,
) -> Option<Observation> {
    let settled = work.notes.settled().into_iter().find(|(settled, ..)| *settled == server)?;
    look_at(work, workers, settled).await
}

async fn look_at(
    work: &Work,
    workers: &Workers,
    (server, generation, power): (ServerId, i64, Power),
) -> Option<Observation> {
    if workers.is_busy(server) {
        return None;
    }
    let life = life(work, server).await.filter(|life| *life != wanted(power))?;
    if workers.is_busy(server) {
        return None;
    }
    tracing::info!(host = work.host(), %server, ?life, "a guest is not as it was left");
    Some(Observation::new(server, generation, outcome(life)))
}

/// Guests that run: most of those that should, and they need no closer look.
async fn running(work: &Work) -> HashSet<ServerId> {
    match work.hypervisor.running().await {
        Ok(servers) => servers.into_iter().collect(),
        Err(error) => {
            tracing::warn!(host = work.host(), %error, "the guests that run cannot be listed");
            HashSet::new()
        }
    }
}

/// What a domain of this host does, if it is one that does something here.
async fn life(work: &Work, server: ServerId) -> Option<Life> {
    match work.hypervisor.domain(server).await {
        Ok(found) => found
            .map(|found| found.life)
            .filter(|life| !matches!(life, Life::Left | Life::Incoming)),
        Err(error) => {
            tracing::warn!(host = work.host(), %server, %error, "a domain cannot be looked at");
            None
        }
    }
}

fn wanted(power: Power) -> Life {
    match power {
        Power::On | Power::Incoming | Power::AsIs => Life::Running,
        Power::Off => Life::Off,
        Power::Paused => Life::Paused,
        Power::Suspended => Life::Saved,
    }
}

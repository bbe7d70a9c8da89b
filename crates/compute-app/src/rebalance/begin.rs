//! Begins one move, within the operator's limits.

use jiff::Timestamp;
use kilonova_compute_db::rebalance::{self, Count};
use kilonova_compute_db::{moves, servers};
use kilonova_ids::{HostName, ServerId};
use kilonova_store::Tx;
use kilonova_wire::{Context, Refusal};

use super::RebalanceOptions;
use crate::flows::{self, LiveRequest};
use crate::{Compute, Error};

/// A move that has begun.
#[derive(Debug, Clone)]
pub struct Begun {
    /// The number of its migration.
    pub migration: i64,
    /// The source.
    pub source: HostName,
    /// The id of the request that its operation records.
    pub request_id: String,
}

/// Begins to live-migrate a server to a host. A lock ensures that concurrent controllers count the moves one after the
/// other.
///
/// # Errors
/// 409 if a limit is reached, the server is locked or busy, or one of the hosts is disabled or down; the
/// refusals of a live migration.
pub fn begin(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: ServerId,
    host: &HostName,
    now: Timestamp,
) -> Result<Begun, Error> {
    rebalance::lock(tx)?;
    if let Some(why) = at_limit(compute, rebalance::count(tx)?) {
        return Err(Refusal::conflict(why).into());
    }
    let found = servers::find(tx, server)?;
    let found = found
        .ok_or_else(|| Refusal::not_found(format!("Instance {server} could not be found.")))?;
    if found.lock.is_some() {
        return Err(Refusal::conflict(format!("Instance {server} is locked")).into());
    }
    for end in found.host.iter().chain([host]) {
        let takes = compute.fleet.by_name(end).is_some_and(|host| host.takes_servers(now));
        if !takes {
            let why =
                format!("Compute host {end} is disabled or down; nothing is rebalanced there.");
            return Err(Refusal::conflict(why).into());
        }
    }
    if found.host.as_ref() == Some(host) {
        let why = format!("Unable to migrate instance ({server}) to current host ({host}).");
        return Err(Refusal::bad_request(why).into());
    }
    let request = LiveRequest { host: Some(host.clone()), force: false, refuse_without_host: true };
    flows::migrate_live(tx, compute, context, &found, &request, now)?;
    let begun = moves::open_of(tx, server)?;
    let begun = begun.ok_or_else(|| servers::shape("the requested move created no migration"))?;
    rebalance::record(tx, begun.id, server)?;
    Ok(Begun {
        migration: begun.number,
        source: begun.source,
        request_id: context.request_id_text(),
    })
}

/// The reason why no move may begin now; `None` if one may. Only the limit on moves in progress uses the words "when
/// one has ended", which tell the operators' command to wait.
pub(super) fn at_limit(compute: &Compute, count: Count) -> Option<String> {
    limit(&compute.options.rebalance, count)
}

fn limit(options: &RebalanceOptions, count: Count) -> Option<String> {
    let Count { open, last_hour } = count;
    for (most, name) in [
        (options.moves_per_hour, "moves_per_hour"),
        (options.max_concurrent_moves, "max_concurrent_moves"),
    ] {
        if most <= 0 {
            return Some(format!("[rebalance] {name} = 0 allows no moves."));
        }
    }
    if last_hour >= options.moves_per_hour {
        return Some(format!(
            "{last_hour} move(s) began within the last hour, as many as [rebalance] moves_per_hour allows; \
             try again later."
        ));
    }
    (open >= options.max_concurrent_moves).then(|| {
        format!(
            "{open} move(s) are in progress, as many as [rebalance] max_concurrent_moves allows; try again \
             when one has ended."
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_hour_comes_before_moves_in_progress_and_none_before_both() {
        let why = |max_concurrent_moves, moves_per_hour, open, last_hour| {
            let options =
                RebalanceOptions { max_concurrent_moves, moves_per_hour, ..Default::default() };
            limit(&options, Count { open, last_hour }).unwrap_or_default()
        };
        assert_eq!(why(2, 20, 1, 19), "");
        assert!(why(2, 20, 2, 19).ends_with("try again when one has ended."));
        assert!(why(2, 20, 2, 20).ends_with("moves_per_hour allows; try again later."));
        assert_eq!(why(0, 20, 0, 0), "[rebalance] max_concurrent_moves = 0 allows no moves.");
        assert_eq!(why(2, 0, 2, 0), "[rebalance] moves_per_hour = 0 allows no moves.");
    }
}

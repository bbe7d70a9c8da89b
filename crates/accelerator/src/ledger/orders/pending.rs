//! Periodic processing of pending work: orders without a generation, parked handles that an
//! operator declared clean, and failed cleanings to retry.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kilonova_ids::ProviderId;
use kilonova_node_api::CLEANED_BY_AGENT;
use kilonova_placement::{World, ledger as placement};
use kilonova_store::Tx;
use kilonova_wire::time;

use super::clean::{order, unpark};
use super::{HostNotifier, announce};
use crate::Error;
use crate::db::orders;
use crate::db::parked::{self, Idle};
use crate::ledger::Actor;

/// Delay before a failed cleaning is retried.
const RETRY_DELAY: SignedDuration = SignedDuration::from_mins(10);

/// The numbers of processed handles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Processed {
    /// Handles that an operator declared clean.
    pub cleaned: usize,
    /// Handles whose cleaning is retried.
    pub again: usize,
}

/// True if [`process_pending`] has anything to do; read-only.
///
/// # Errors
/// Store errors only.
pub fn has_pending(tx: &mut Tx<'_>) -> Result<bool, Error> {
    Ok(!orders::unannounced(tx)?.is_empty() || !plan(tx, time::now())?.is_empty())
}

/// Processes all pending work.
///
/// # Errors
/// Store errors only.
pub fn process_pending(
    tx: &mut Tx<'_>,
    world: &World,
    nodes: Option<&dyn HostNotifier>,
) -> Result<Processed, Error> {
    let now = time::now();
    let mut done = Processed::default();
    for (idle, step) in plan(tx, now)? {
        match step {
            Step::Clean => {
                unpark(tx, world, idle.handle)?;
                done.cleaned += 1;
            }
            Step::Retry => {
                if let Some(parked) = parked::parked(tx, idle.handle)? {
                    order(tx, &Actor::default(), &parked, now)?;
                    done.again += 1;
                }
            }
        }
    }
    if let Some(nodes) = nodes {
        announce(tx, nodes)?;
    }
    Ok(done)
}

enum Step {
    /// An operator declared the handle clean.
    Clean,
    /// The host cleans the handle again.
    Retry,
}

fn plan(tx: &mut Tx<'_>, now: Timestamp) -> Result<Vec<(Idle, Step)>, Error> {
    let mut by_provider: BTreeMap<ProviderId, Vec<Idle>> = BTreeMap::new();
    for idle in parked::idle(tx)? {
        by_provider.entry(idle.provider).or_default().push(idle);
    }
    let mut steps = Vec::new();
    for (provider, idle) in by_provider {
        // An operator declares handles clean by setting `reserved` below the number of parked
        // handles; the handles beyond `reserved` are clean.
        let reserved = placement::operator_reserved(tx, provider)?;
        let keep = reserved.map_or(usize::MAX, |units| usize::try_from(units).unwrap_or(0));
        for (at, one) in idle.into_iter().enumerate() {
            if at >= keep {
                steps.push((one, Step::Clean));
                continue;
            }
            let due = one.tried_at.is_none_or(|tried| now.duration_since(tried) >= RETRY_DELAY);
            if due && one.cleaner.as_deref() == Some(CLEANED_BY_AGENT) {
                steps.push((one, Step::Retry));
            }
        }
    }
    Ok(steps)
}

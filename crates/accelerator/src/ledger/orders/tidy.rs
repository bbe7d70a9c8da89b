//! What follows from time passing and from operators' words: orders of which nobody was told, parked
//! handles that an operator says are clean, clean-ups that failed and are tried again.

use std::collections::BTreeMap;

use kilonova_ids::ProviderId;
use kilonova_node_api::CLEANED_BY_AGENT;
use kilonova_placement::{World, ledger as placement};
use kilonova_store::Tx;
use kilonova_wire::time::now_micros;

use super::clean::{order, unpark};
use super::{Nodes, announce};
use crate::Error;
use crate::db::orders;
use crate::db::parked::{self, Idle};
use crate::ledger::Actor;

/// How long after a clean-up that failed it is tried again.
const AGAIN: i64 = 600 * 1_000_000;

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tidied {
    /// Handles that an operator had cleaned.
    pub cleaned: usize,
    /// Clean-ups that are tried again.
    pub again: usize,
}

/// Whether [`tidy`] might find something to do; only reads.
///
/// # Errors
/// Only the store's.
pub fn needs_tidying(tx: &mut Tx<'_>) -> Result<bool, Error> {
    Ok(!orders::untold(tx)?.is_empty() || !plan(tx, now_micros())?.is_empty())
}

/// Does what there is to do.
///
/// # Errors
/// Only the store's.
pub fn tidy(tx: &mut Tx<'_>, world: &World, nodes: Option<&dyn Nodes>) -> Result<Tidied, Error> {
    let now = now_micros();
    let mut done = Tidied::default();
    for (idle, step) in plan(tx, now)? {
        match step {
            Step::Clean => {
                unpark(tx, world, idle.handle)?;
                done.cleaned += 1;
            }
            Step::Again => {
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
    /// An operator says that it is clean.
    Clean,
    /// The node tries again.
    Again,
}

fn plan(tx: &mut Tx<'_>, now: i64) -> Result<Vec<(Idle, Step)>, Error> {
    let mut by_provider: BTreeMap<ProviderId, Vec<Idle>> = BTreeMap::new();
    for idle in parked::idle(tx)? {
        by_provider.entry(idle.provider).or_default().push(idle);
    }
    let mut steps = Vec::new();
    for (provider, idle) in by_provider {
        // An operator's `reserved` below what is withheld is his word on the rest.
        let said = placement::said_by_operator(tx, provider)?;
        let keep = said.map_or(usize::MAX, |units| usize::try_from(units).unwrap_or(0));
        for (at, one) in idle.into_iter().enumerate() {
            if at >= keep {
                steps.push((one, Step::Clean));
                continue;
            }
            let due = one.tried_at.is_none_or(|tried| tried + AGAIN <= now);
            if due && one.by.as_deref() == Some(CLEANED_BY_AGENT) {
                steps.push((one, Step::Again));
            }
        }
    }
    Ok(steps)
}

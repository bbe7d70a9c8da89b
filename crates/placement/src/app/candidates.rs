//! Allocation candidates: the engine's answer on the current snapshot, and the providers that a
//! client needs to see beside it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use kilonova_engine::{Candidate, Provider, Query, Snapshot};
use kilonova_ids::ProviderId;
use kilonova_store::Tx;
use kilonova_wire::Fault;

use super::{classes, traits};
use crate::Error;

/// Candidates in one answer when the client sets no limit. Upstream has none and can be made to
/// build millions.
pub const MOST: usize = 50_000;

/// A provider as a summary shows it.
pub struct Summary {
    /// The provider.
    pub provider: Provider,
    /// The root of its tree.
    pub root: ProviderId,
}

/// Candidates, and the providers of their trees.
pub struct Found {
    /// The candidates.
    pub candidates: Vec<Candidate>,
    /// Every provider of every tree that takes part.
    pub summaries: Vec<Summary>,
}

/// Refuses classes and traits that are not there.
///
/// # Errors
/// 400.
pub fn check(tx: &mut Tx<'_>, query: &Query) -> Result<(), Error> {
    for (class, _) in query.groups.iter().flat_map(|group| &group.resources) {
        if !classes::exists(tx, class)? {
            return Err(Fault::bad_request(format!(
                "Invalid resource class in resources parameter: {}",
                classes::unknown(class)
            ))
            .into());
        }
    }
    let of_groups =
        query.groups.iter().flat_map(|g| g.required.iter().flatten().chain(&g.forbidden));
    let named = of_groups.chain(&query.root_required).chain(&query.root_forbidden);
    let missing = traits::unknown(tx, named.map(String::as_str))?;
    if missing.is_empty() {
        return Ok(());
    }
    Err(Fault::bad_request(format!("No such trait(s): {}.", missing.join(", "))).into())
}

/// Searches. Clients before 1.29 know no nested providers: they get no candidate that takes from
/// two providers of one tree, and see no provider that they could not use.
///
/// # Errors
/// 400 for a query without sense.
pub fn search(
    snapshot: &Arc<Snapshot>,
    query: &Query,
    limit: Option<usize>,
    nested: bool,
) -> Result<Found, Error> {
    let mut candidates = Vec::new();
    let search = snapshot
        .search(query)
        .map_err(|error| Fault::bad_request(format!("Invalid query string parameters: {error}")))?;
    let most = limit.unwrap_or(MOST).min(MOST);
    for candidate in search {
        if nested || is_flat(snapshot, &candidate) {
            candidates.push(candidate);
        }
        if candidates.len() >= most {
            break;
        }
    }
    let mut summaries = summarise(snapshot, &candidates);
    if !nested {
        let used: HashSet<ProviderId> =
            candidates.iter().flat_map(|c| c.allocations.iter().map(|(p, _, _)| *p)).collect();
        summaries.retain(|summary| used.contains(&summary.provider.id));
    }
    Ok(Found { candidates, summaries })
}

fn is_flat(snapshot: &Snapshot, candidate: &Candidate) -> bool {
    let mut by_root: HashMap<Option<ProviderId>, ProviderId> = HashMap::new();
    candidate.allocations.iter().all(|(provider, _, _)| {
        *by_root.entry(snapshot.root_of(*provider)).or_insert(*provider) == *provider
    })
}

fn summarise(snapshot: &Snapshot, candidates: &[Candidate]) -> Vec<Summary> {
    let mut roots = BTreeSet::new();
    for candidate in candidates {
        roots.insert(candidate.root);
        let taking = candidate.allocations.iter().map(|(provider, _, _)| provider);
        let serving = candidate.mappings.iter().flat_map(|(_, providers)| providers);
        roots.extend(taking.chain(serving).filter_map(|id| snapshot.root_of(*id)));
    }
    roots
        .into_iter()
        .filter_map(|root| Some((root, snapshot.tree(root)?)))
        .flat_map(|(root, tree)| {
            tree.providers().map(move |provider| Summary { provider, root }).collect::<Vec<_>>()
        })
        .collect()
}

//! Allocation candidates: the engine's answer on the current snapshot, and the providers that a
//! client needs to see beside it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kilonova_engine::{Candidate, Query, Snapshot};
use kilonova_ids::ProviderId;
use kilonova_store::Tx;
use kilonova_wire::Fault;

use super::{classes, traits};
use crate::{Error, names};

/// Candidates in one answer when the client sets no limit, or a larger one. Upstream has no bound
/// and can be made to build millions; with hosts served in turn, each of as many hosts is there.
pub const MOST: usize = 50_000;

/// Candidates that are looked at for a client before 1.29, most of which it may not be shown.
const LOOKED_AT: usize = 4 * MOST;

/// Candidates, and the trees that a client needs to see beside them.
pub struct Found {
    /// What was searched.
    pub snapshot: Arc<Snapshot>,
    /// The candidates.
    pub candidates: Vec<Candidate>,
    /// The roots of all providers that something is taken from.
    pub roots: Vec<ProviderId>,
    /// The only providers to be shown; none for all of these trees.
    pub only: Option<HashSet<ProviderId>>,
}

/// Whether every class and trait is a standard one, so that [`check`] has nothing to refuse.
pub fn all_standard(query: &Query) -> bool {
    let classes = query.groups.iter().flat_map(|group| &group.resources);
    let mut classes = classes.map(|(class, _)| class);
    classes.all(|class| names::is_standard_class(class))
        && traits_of(query).all(names::is_standard_trait)
}

fn traits_of(query: &Query) -> impl Iterator<Item = &str> {
    let of_groups =
        query.groups.iter().flat_map(|g| g.required.iter().flatten().chain(&g.forbidden));
    let of_roots = query.root_required.iter().chain(&query.root_forbidden);
    of_groups.chain(of_roots).map(String::as_str)
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
    let missing = traits::unknown(tx, traits_of(query))?;
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
    snapshot: Arc<Snapshot>,
    query: &Query,
    limit: Option<usize>,
    nested: bool,
) -> Result<Found, Error> {
    let most = limit.unwrap_or(MOST).min(MOST);
    let mut search = snapshot
        .search(query)
        .map_err(|error| Fault::bad_request(format!("Invalid query string parameters: {error}")))?;
    let candidates: Vec<Candidate> = search
        .by_ref()
        .take(LOOKED_AT)
        .filter(|candidate| nested || is_flat(&snapshot, candidate))
        .take(most)
        .collect();
    if search.gave_up() {
        tracing::warn!(found = candidates.len(), "a search for candidates tried too long in vain");
    }
    let taken = || candidates.iter().flat_map(|c| c.allocations.iter().map(|(id, _, _)| *id));
    let mut roots: Vec<ProviderId> = taken().filter_map(|id| snapshot.root_of(id)).collect();
    roots.sort_unstable();
    roots.dedup();
    let only = (!nested).then(|| taken().collect());
    Ok(Found { snapshot, candidates, roots, only })
}

fn is_flat(snapshot: &Snapshot, candidate: &Candidate) -> bool {
    let mut by_root: HashMap<Option<ProviderId>, ProviderId> = HashMap::new();
    candidate.allocations.iter().all(|(provider, _, _)| {
        *by_root.entry(snapshot.root_of(*provider)).or_insert(*provider) == *provider
    })
}

//! Allocation candidates: the result of the engine's search in the current snapshot, and the
//! providers for the summaries.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kilonova_engine::{Candidate, Query, Snapshot};
use kilonova_ids::ProviderId;
use kilonova_store::Tx;
use kilonova_wire::Refusal;

use super::{classes, traits};
use crate::{Error, names};

/// Maximum number of candidates in one response. Upstream has no bound and can be made to build
/// millions. Hosts take turns, so that the response covers as many hosts as possible.
pub const MAX_CANDIDATES: usize = 50_000;

/// Maximum number of candidates examined for a client before 1.29: most may have to be filtered out.
const MAX_EXAMINED: usize = 4 * MAX_CANDIDATES;

/// Candidates, and the trees for their provider summaries.
pub struct SearchResult {
    /// The snapshot that was searched.
    pub snapshot: Arc<Snapshot>,
    /// The candidates.
    pub candidates: Vec<Candidate>,
    /// The roots of all providers that candidates use.
    pub roots: Vec<ProviderId>,
    /// The only providers to show; `None` for all providers of these trees.
    pub only: Option<HashSet<ProviderId>>,
}

/// True if every class and trait is a standard one, so that [`check`] cannot fail.
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

/// Refuses unknown classes and traits.
///
/// # Errors
/// 400.
pub fn check(tx: &mut Tx<'_>, query: &Query) -> Result<(), Error> {
    for (class, _) in query.groups.iter().flat_map(|group| &group.resources) {
        if !classes::exists(tx, class)? {
            return Err(Refusal::bad_request(format!(
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
    Err(Refusal::bad_request(format!("No such trait(s): {}.", missing.join(", "))).into())
}

/// Searches for candidates. Clients before 1.29 do not support nested providers (`nested` is false): the
/// result then contains no candidate that uses two providers of one tree, and shows only the providers
/// that a candidate uses.
///
/// # Errors
/// 400 for an invalid query.
pub fn search(
    snapshot: Arc<Snapshot>,
    query: &Query,
    limit: Option<usize>,
    nested: bool,
) -> Result<SearchResult, Error> {
    let most = limit.unwrap_or(MAX_CANDIDATES).min(MAX_CANDIDATES);
    let mut search = snapshot.search(query).map_err(|error| {
        Refusal::bad_request(format!("Invalid query string parameters: {error}"))
    })?;
    let candidates: Vec<Candidate> = search
        .by_ref()
        .take(MAX_EXAMINED)
        .filter(|candidate| nested || is_flat(&snapshot, candidate))
        .take(most)
        .collect();
    if search.gave_up() {
        tracing::warn!(
            found = candidates.len(),
            "the search for allocation candidates reached its limit of attempts; the result may be incomplete"
        );
    }
    let taken = || candidates.iter().flat_map(|c| c.allocations.iter().map(|(id, _, _)| *id));
    let mut roots: Vec<ProviderId> = taken().filter_map(|id| snapshot.root_of(id)).collect();
    roots.sort_unstable();
    roots.dedup();
    let only = (!nested).then(|| taken().collect());
    Ok(SearchResult { snapshot, candidates, roots, only })
}

fn is_flat(snapshot: &Snapshot, candidate: &Candidate) -> bool {
    let mut by_root: HashMap<Option<ProviderId>, ProviderId> = HashMap::new();
    candidate.allocations.iter().all(|(provider, _, _)| {
        *by_root.entry(snapshot.root_of(*provider)).or_insert(*provider) == *provider
    })
}

//! How often accelerators were bound, and why not, since the process began. For operators' graphs: a number in
//! memory for each cause, added to after the commit, so that nothing is counted that did not happen.
//!
//! What failed for the database's sake alone is not here: it is tried again.

use std::sync::atomic::{AtomicU64, Ordering};

use kilonova_store::Tx;

use crate::Error;

/// Who bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Road {
    /// A server of this cloud, with its claim.
    Server,
    /// A service, by the API.
    Api,
}

const ROADS: [&str; 2] = ["server", "api"];
const OUTCOMES: [&str; 8] = [
    "bound",
    "no_free_handle",
    "no_device",
    "other_host",
    "already_bound",
    "bad_state",
    "no_request",
    "refused",
];

static COUNTS: [AtomicU64; ROADS.len() * OUTCOMES.len()] =
    [const { AtomicU64::new(0) }; ROADS.len() * OUTCOMES.len()];

/// One number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binds {
    /// `server` or `api`.
    pub road: &'static str,
    /// `bound`, or the cause of the failure.
    pub outcome: &'static str,
    /// Requests bound, or attempts that failed.
    pub count: u64,
}

/// All of them.
pub fn binds() -> Vec<Binds> {
    let pairs = ROADS.iter().flat_map(|road| OUTCOMES.iter().map(move |outcome| (road, outcome)));
    pairs
        .zip(&COUNTS)
        .map(|((road, outcome), count)| Binds {
            road,
            outcome,
            count: count.load(Ordering::Relaxed),
        })
        .collect()
}

/// Counts what a bind came to: so many requests, or an error.
pub(crate) fn note(tx: &mut Tx<'_>, road: Road, result: Result<usize, &Error>) {
    let add = move |outcome: usize, count: usize| {
        COUNTS[road as usize * OUTCOMES.len() + outcome].fetch_add(count as u64, Ordering::Relaxed);
    };
    match result {
        Ok(count) => tx.on_commit(move || add(0, count)),
        Err(error) => {
            if let Some(cause) = cause(error) {
                add(cause, 1);
            }
        }
    }
}

fn cause(error: &Error) -> Option<usize> {
    let name = match error {
        Error::Store(_) | Error::Placement(_) => return None,
        Error::NoHandle(_) => "no_free_handle",
        Error::NoDeployable(_) => "no_device",
        Error::OtherHost { .. } => "other_host",
        Error::AlreadyBound(_) => "already_bound",
        Error::BadState { .. } => "bad_state",
        Error::NotFound { .. } => "no_request",
        _ => "refused",
    };
    OUTCOMES.iter().position(|outcome| *outcome == name)
}

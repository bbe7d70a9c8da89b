//! Counters of binds and their failures since the process started, for operators' metrics: one
//! number in memory per outcome. A bind is counted after its commit, a failure immediately.
//!
//! Store errors are not counted, because the transaction is retried.

use std::sync::atomic::{AtomicU64, Ordering};

use kilonova_store::Tx;

use crate::Error;

/// The origin of a bind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindSource {
    /// A server of this cloud, with its claim.
    Server,
    /// A service, through the API.
    Api,
}

const SOURCES: [&str; 2] = ["server", "api"];
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

static COUNTS: [AtomicU64; SOURCES.len() * OUTCOMES.len()] =
    [const { AtomicU64::new(0) }; SOURCES.len() * OUTCOMES.len()];

/// One counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binds {
    /// `server` or `api`.
    pub source: &'static str,
    /// `bound`, or the cause of the failure.
    pub outcome: &'static str,
    /// Bound requests, or failed attempts.
    pub count: u64,
}

/// All counters.
pub fn binds() -> Vec<Binds> {
    let pairs =
        SOURCES.iter().flat_map(|source| OUTCOMES.iter().map(move |outcome| (source, outcome)));
    pairs
        .zip(&COUNTS)
        .map(|((source, outcome), count)| Binds {
            source,
            outcome,
            count: count.load(Ordering::Relaxed),
        })
        .collect()
}

/// Counts the result of a bind: the number of requests, or an error.
pub(crate) fn note(tx: &mut Tx<'_>, source: BindSource, result: Result<usize, &Error>) {
    let add = move |outcome: usize, count: usize| {
        COUNTS[source as usize * OUTCOMES.len() + outcome]
            .fetch_add(count as u64, Ordering::Relaxed);
    };
    match result {
        Ok(count) => tx.on_commit(move || add(0, count)),
        // The work runs again, and the failure is counted then.
        Err(_) if tx.repeats_failures() => {}
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

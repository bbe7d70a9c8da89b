//! Durations and planned failures of a simulated hypervisor's steps.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use crate::{Error, Step};

/// The hosts that have the guest after a live migration that is reported as failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum GuestLocation {
    /// The source: the guest has not migrated.
    #[default]
    Source,
    /// The destination: the guest has migrated nevertheless.
    Destination,
    /// Both: the guest has migrated nevertheless, and the source keeps a paused guest.
    Both,
}

/// A planned failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The step that fails.
    pub step: Step,
    /// The display names for which it fails; `*` stands for any characters.
    pub server_name: String,
    /// How often it fails; `None` means always.
    pub times: Option<u32>,
    /// Where the guest is after a failed live migration.
    pub guest: GuestLocation,
}

/// Durations and planned failures of one host.
#[derive(Debug, Default)]
pub struct Plan {
    times: BTreeMap<Step, Duration>,
    failures: Mutex<Vec<Failure>>,
}

impl Plan {
    /// A plan. Steps without a duration take none.
    pub fn new(times: BTreeMap<Step, Duration>, failures: Vec<Failure>) -> Self {
        Self { times, failures: Mutex::new(failures) }
    }

    /// Adds a failure.
    pub fn fail(&self, failure: Failure) {
        self.failures.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(failure);
    }

    /// Waits for the step's duration, then fails if a failure is planned.
    pub(super) async fn step(&self, step: Step, display_name: &str) -> Result<(), Error> {
        let time = self.time(step);
        if !time.is_zero() {
            tokio::time::sleep(time).await;
        }
        self.check(step, display_name)
    }

    /// The duration of a step.
    pub(super) fn time(&self, step: Step) -> Duration {
        self.times.get(&step).copied().unwrap_or_default()
    }

    /// Fails if a failure is planned.
    pub(super) fn check(&self, step: Step, display_name: &str) -> Result<(), Error> {
        self.due(step, display_name).map_or(Ok(()), |(_, error)| Err(error))
    }

    /// The next planned failure, and where the guest is if it was migrating.
    pub(super) fn due(&self, step: Step, display_name: &str) -> Option<(GuestLocation, Error)> {
        let mut failures = self.failures.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let due = failures.iter_mut().find(|failure| {
            failure.step == step
                && failure.times != Some(0)
                && matches(&failure.server_name, display_name)
        });
        let due = due?;
        due.times = due.times.map(|times| times - 1);
        let why = format!("simulated failure of step {step} for {display_name}");
        Some((due.guest, Error::new(step, why)))
    }
}

/// True if a name matches a pattern in which `*` stands for any characters.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match name.find(part) {
            Some(at) => name = &name[at + part.len()..],
            None => return false,
        }
    }
    name.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_match_any_characters() {
        for (pattern, name, fits) in [
            ("bad*", "bad-1", true),
            ("bad*", "good", false),
            ("*", "", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c", false),
            ("ab*ba", "aba", false),
            ("exact", "exact", true),
            ("exact", "exactly", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }
}

//! The examination of a cloud by a running controller: those findings of `kilonova doctor` that need only the
//! database.
//!
//! Read-only. A process runs one examination at a time and caches its result for a few seconds, so a page that
//! many operators reload costs no more than one request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use kilonova_compute_db::audit;
use kilonova_store::Store;
use kilonova_wire::{Refusal, time};
use tokio::sync::Mutex;

use super::{Bounds, Finding, HostContact, Level, collect, contacts};
use crate::{Compute, Error};

/// How long an examination is cached.
const FRESH: Duration = Duration::from_secs(10);
/// Maximum number of rows named for a broken rule of the ledger.
const NAMED: usize = 20;

/// The result of an examination.
#[derive(Debug, Clone)]
pub struct Examination {
    /// The time of the examination.
    pub at: Timestamp,
    /// The areas, each with a summary, in the order of the checks.
    pub areas: Vec<(&'static str, String)>,
    /// The findings; those of the ledger are last.
    pub findings: Vec<Finding>,
}

impl Examination {
    /// The severity of the worst finding in an area; `None` if there is none.
    pub fn state(&self, area: &str) -> Option<Level> {
        self.findings.iter().filter(|one| one.area == area).map(|one| one.level).max()
    }
}

/// The last examination of this process.
#[derive(Debug, Clone, Default)]
pub struct Examiner(Arc<Mutex<Option<Last>>>);

impl Examiner {
    /// True while an examination runs.
    pub fn is_busy(&self) -> bool {
        self.0.try_lock().is_err()
    }
}

type Last = (Instant, Arc<Examination>);

/// Returns the cached examination if it is recent, and otherwise examines the cloud. An examination continues
/// even if its client disconnects, so that no second one starts while its statements still run.
///
/// # Errors
/// Store errors only.
pub async fn examine(compute: &Compute) -> Result<Arc<Examination>, Error> {
    let mut last = Arc::clone(&compute.examiner.0).lock_owned().await;
    if let Some((at, found)) = last.as_ref()
        && at.elapsed() < FRESH
    {
        return Ok(Arc::clone(found));
    }
    let store = compute.store.clone();
    let examination = tokio::spawn(async move {
        let found = Arc::new(examined(&store).await?);
        *last = Some((Instant::now(), Arc::clone(&found)));
        Ok(found)
    });
    examination.await.map_err(Refusal::internal)?
}

async fn examined(store: &Store) -> Result<Examination, Error> {
    let bounds = Bounds::default();
    let mut findings = collect(store, &bounds).await?;
    let hosts = contacts(store).await?;
    let rules = audit::run(store).await?;
    let mut areas = summaries(&hosts, &bounds);
    areas.push(("ledger", format!("{} rules hold", rules.len())));
    findings.extend(broken(&rules, NAMED));
    Ok(Examination { at: time::now(), areas, findings })
}

/// The areas of the findings, each with a summary that applies if the area has no finding.
pub fn summaries(hosts: &[HostContact], bounds: &Bounds) -> Vec<(&'static str, String)> {
    vec![
        ("nodes", nodes(hosts)),
        ("clock", skews(hosts)),
        ("operations", format!("none is stuck for {} s", bounds.stuck.as_secs())),
        ("devices", "all healthy".to_owned()),
        ("routers", "none waits for a gateway host".to_owned()),
    ]
}

fn nodes(hosts: &[HostContact]) -> String {
    let up = hosts.iter().filter(|host| host.up).count();
    let disabled = hosts.iter().filter(|host| !host.enabled).count();
    let disabled = if disabled == 0 { String::new() } else { format!(", {disabled} disabled") };
    format!("{} hosts, {up} of them up{disabled}", hosts.len())
}

fn skews(hosts: &[HostContact]) -> String {
    let skews = hosts.iter().filter_map(|host| host.clock_skew);
    let skews: Vec<Duration> = skews.map(SignedDuration::unsigned_abs).collect();
    match skews.iter().max() {
        None => "no host has reported its clock".to_owned(),
        Some(most) => {
            let seconds = most.as_secs_f64();
            format!("{} hosts report theirs, at most {seconds:.1} s from this clock", skews.len())
        }
    }
}

/// The broken rules of the ledger, each with at most `most` of the rows that violate it.
pub fn broken(rules: &[audit::Finding], most: usize) -> Vec<Finding> {
    let broken = rules.iter().filter(|rule| !rule.rows.is_empty());
    broken
        .map(|rule| {
            let more = rule.rows.len().saturating_sub(most);
            let mut rows = rule.rows[..rule.rows.len() - more].join(", ");
            if more > 0 {
                rows.push_str(&format!(" and {more} more"));
            }
            let remedy = rule.remedy.unwrap_or(
                "keep a copy of the database and the log, and report the problem; no service repairs it, so \
                 do not change the named resources until it is resolved",
            );
            Finding {
                area: "ledger",
                level: Level::Error,
                what: format!("{}: BROKEN by {rows}", rule.rule),
                remedy: remedy.to_owned(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_rule_names_some_of_its_rows() {
        let rows = (0..30).map(|at| format!("r{at}")).collect();
        let rules = [
            audit::Finding { rule: "holds", rows: Vec::new(), remedy: None },
            audit::Finding { rule: "does not", rows, remedy: Some("repair it") },
        ];
        let findings = broken(&rules, 2);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].what, "does not: BROKEN by r0, r1 and 28 more");
        assert_eq!((findings[0].area, &*findings[0].remedy), ("ledger", "repair it"));
        let all = broken(&rules, usize::MAX);
        assert!(all[0].what.ends_with("r28, r29"), "{}", all[0].what);
    }
}

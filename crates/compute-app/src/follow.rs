//! Applies the commits of other controllers to the in-memory copy of the hosts.
//!
//! Entries about documents are applied before the hosts' rows are read again, because a host that was deleted and
//! registered again starts at a new generation.

use std::collections::BTreeSet;
use std::time::Duration;

use kilonova_accelerator::ledger as devices;
use kilonova_changes::{Applied, Entry, Subscriber, Topic};
use kilonova_compute_db::{aggregates, documents, fleet, volumes};
use kilonova_ids::HostName;
use kilonova_store::Tx;
use tokio::time::{sleep, timeout};

use crate::{Compute, Error};

/// Maximum number of hosts of one transaction, in the order of their names: their rows are locked until its end.
const REQUESTS: usize = 10;
/// The pause before failed requests are repeated.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the start of a process waits for the requests.
const START: Duration = Duration::from_secs(5);

impl Subscriber for Compute {
    fn apply<'a>(&'a self, entries: &'a [Entry]) -> Applied<'a> {
        Box::pin(async move {
            let mut hosts = BTreeSet::new();
            let mut regroup = false;
            for entry in entries {
                let host = || self.fleet.by_name(entry.subject.as_str());
                match entry.topic {
                    Topic::Documents => {
                        host().iter().for_each(|host| host.publish(entry.number));
                    }
                    Topic::Builds => {
                        host().iter().for_each(|host| host.record_build_failures(entry.number));
                    }
                    Topic::Host => {
                        hosts.insert(HostName::verbatim(entry.subject.as_str()));
                    }
                    Topic::Aggregates => regroup = true,
                    Topic::Networks => self.network_news.notify_one(),
                    Topic::Tree | Topic::Identity | Topic::Revoked => {}
                }
            }
            refresh(self, hosts).await?;
            if regroup {
                read_aggregates(self).await?;
            }
            Ok(())
        })
    }

    fn reload(&self) -> Applied<'_> {
        Box::pin(async move {
            read_hosts(self).await?;
            self.fleet.all().iter().for_each(|host| host.clear_stored_skew());
            self.network_news.notify_one();
            Ok(())
        })
    }

    /// In a task of its own: the hosts' rows may be locked for long, and the follower must not wait for them.
    fn reloaded(&self) {
        request_all_reports(self.clone(), BTreeSet::new());
    }
}

/// Reads all hosts and aggregates again. Even rows older than those in memory are adopted: the database may have been
/// restored, or may have lost commits when a standby took over.
///
/// # Errors
/// Store errors only.
pub async fn read_hosts(compute: &Compute) -> Result<(), Error> {
    let known = compute.fleet.all_known();
    let rows = compute.store.read(fleet::all).await?;
    compute.fleet.apply_all_read(known, &rows);
    read_aggregates(compute).await
}

/// Requests the reports before this process serves requests, but does not delay its start for long: the rest is requested by
/// a task.
pub(crate) async fn request_reports_at_start(compute: &Compute) {
    let mut requested = BTreeSet::new();
    let asked = timeout(START, request_reports(compute, &mut requested)).await;
    if !matches!(asked, Ok(Ok(()))) {
        request_all_reports(compute.clone(), requested);
    }
}

/// Starts the task that requests the reports until it succeeds.
fn request_all_reports(compute: Compute, mut requested: BTreeSet<HostName>) {
    tokio::spawn(async move {
        while let Err(error) = request_reports(&compute, &mut requested).await {
            tracing::warn!(
                %error,
                "could not request new reports from the hosts, although the database may have lost reports; retrying every second"
            );
            sleep(PAUSE).await;
        }
    });
}

/// Requests a report on every guest from each host whose report is awaited, except those in `requested`, and adds the
/// host there. The database may have lost their last report, by a restore or the takeover of a standby, but not the
/// document that it answered: the host has the newest generation and nothing to report.
///
/// # Errors
/// Store errors only.
async fn request_reports(
    compute: &Compute,
    requested: &mut BTreeSet<HostName>,
) -> Result<(), Error> {
    let awaited = |tx: &mut Tx<'_>| {
        let mut hosts: BTreeSet<_> = documents::awaited_hosts(tx)?.into_iter().collect();
        hosts.extend(volumes::awaited_hosts(tx)?);
        hosts.extend(devices::awaited_hosts(tx)?);
        Ok::<_, Error>(hosts)
    };
    let awaited = compute.store.read(awaited).await?;
    let hosts = Vec::from_iter(awaited.difference(requested).cloned());
    for hosts in hosts.chunks(REQUESTS) {
        let (names, wake) = (hosts.to_vec(), compute.clone());
        let request = move |tx: &mut Tx<'_>| {
            names.iter().try_for_each(|name| {
                documents::request_reports(tx, &wake, name).map_err(Error::from)
            })
        };
        compute.store.write(request).await?;
        requested.extend(hosts.iter().cloned());
    }
    Ok(())
}

async fn read_aggregates(compute: &Compute) -> Result<(), Error> {
    let known = compute.fleet.grouped();
    let grouping = compute.store.read(aggregates::grouping).await?;
    compute.fleet.apply_grouping_read(known, &grouping);
    Ok(())
}

/// Reads the rows of some hosts again.
///
/// # Errors
/// Store errors only.
pub(crate) async fn refresh(compute: &Compute, hosts: BTreeSet<HostName>) -> Result<(), Error> {
    if hosts.is_empty() {
        return Ok(());
    }
    let names: Vec<HostName> = hosts.into_iter().collect();
    let known: Vec<_> = names.iter().map(|name| compute.fleet.known(name)).collect();
    let rows = compute.store.read(move |tx| fleet::some(tx, &names)).await?;
    for ((name, row), known) in rows.iter().zip(&known) {
        compute.fleet.apply_read(name, known, row.as_ref());
    }
    Ok(())
}

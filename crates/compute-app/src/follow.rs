//! Applies the commits of other controllers to the in-memory copy of the hosts.
//!
//! Entries about documents are applied before the hosts' rows are read again, because a host that was deleted and
//! registered again starts at a new generation.

use std::collections::BTreeSet;

use kilonova_accelerator::ledger::orders;
use kilonova_changes::{Applied, Entry, Subscriber, Topic};
use kilonova_compute_db::{aggregates, documents, fleet};
use kilonova_ids::HostName;
use kilonova_store::Tx;

use crate::{Compute, Error};

/// Maximum number of hosts of one transaction, in the order of their names: their rows are locked until its end.
const REQUESTS: usize = 10;

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
            request_reports(self).await?;
            self.network_news.notify_one();
            Ok(())
        })
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

/// Requests a report on every guest from the hosts for which an operation or an order waits. The database may have lost
/// their last report, by a restore or the takeover of a standby, but not the document that it answered: the host has the
/// newest generation and nothing to report.
///
/// # Errors
/// Store errors only.
pub(crate) async fn request_reports(compute: &Compute) -> Result<(), Error> {
    let awaited = |tx: &mut Tx<'_>| {
        let mut hosts: BTreeSet<_> = documents::awaited_hosts(tx)?.into_iter().collect();
        hosts.extend(orders::awaited_hosts(tx)?);
        Ok::<_, Error>(hosts)
    };
    let hosts = Vec::from_iter(compute.store.read(awaited).await?);
    for hosts in hosts.chunks(REQUESTS) {
        let (hosts, fleet) = (hosts.to_vec(), compute.fleet.clone());
        let request = move |tx: &mut Tx<'_>| {
            for name in &hosts {
                let Some(generation) = documents::next_of(tx, name)? else { continue };
                let host = fleet.by_name(name);
                tx.on_commit(move || host.iter().for_each(|host| host.request_reports(generation)));
            }
            Ok::<_, Error>(())
        };
        compute.store.write(request).await?;
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

//! Keeps the copy of the hosts current with what other controllers commit.
//!
//! Entries of documents come before those of the hosts' rows: a host that was deleted and registered
//! again begins with a new generation.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kilonova_changes::{Applied, Entry, Subscriber, Topic};
use kilonova_compute_db::{aggregates, fleet};
use kilonova_compute_scheduler::fleet::{Host, Newest};
use kilonova_ids::HostName;

use crate::{Compute, Error};

/// Above this number of new hosts, one read of all aggregates is cheaper.
const MANY: usize = 8;

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
            let new = refresh(self, hosts).await?;
            if regroup || new.len() > MANY {
                self.fleet.regroup(&self.store.read(aggregates::all).await?);
            } else {
                for host in new {
                    group(self, host).await?;
                }
            }
            Ok(())
        })
    }

    fn reload(&self) -> Applied<'_> {
        Box::pin(async move {
            read_hosts(self).await?;
            self.network_news.notify_one();
            Ok(())
        })
    }
}

/// Reads all hosts and aggregates again. A host whose row is older than memory was before the read
/// is taken back: the database was restored, or lost commits when a standby took over.
///
/// # Errors
/// Store errors only.
pub async fn read_hosts(compute: &Compute) -> Result<(), Error> {
    let known: Vec<(Arc<Host>, Newest)> = compute
        .fleet
        .all()
        .into_iter()
        .map(|host| {
            let newest = *host.newest().borrow();
            (host, newest)
        })
        .collect();
    let rows = compute.store.read(fleet::all).await?;
    for row in &rows {
        compute.fleet.refresh(row);
    }
    let rows: HashMap<_, _> = rows.iter().map(|row| (row.id, row)).collect();
    for (host, newest) in known {
        match rows.get(&host.id) {
            Some(row) => {
                host.correct(newest, Newest { epoch: row.epoch, generation: row.generation });
            }
            None => compute.fleet.forget(&host),
        }
    }
    compute.fleet.regroup(&compute.store.read(aggregates::all).await?);
    Ok(())
}

/// Reads the rows of hosts again. Returns the hosts that were unknown.
async fn refresh(compute: &Compute, hosts: BTreeSet<HostName>) -> Result<Vec<HostName>, Error> {
    if hosts.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<HostName> = hosts.into_iter().collect();
    let mut new = Vec::new();
    for (name, row) in compute.store.read(move |tx| fleet::some(tx, &names)).await? {
        match row {
            None => compute.fleet.remove(&name),
            Some(row) if compute.fleet.refresh(&row) => new.push(name),
            Some(_) => {}
        }
    }
    Ok(new)
}

async fn group(compute: &Compute, host: HostName) -> Result<(), Error> {
    let name = host.clone();
    let aggregates = compute.store.read(move |tx| aggregates::of_host(tx, &name)).await?;
    compute.fleet.group(&host, &aggregates);
    Ok(())
}

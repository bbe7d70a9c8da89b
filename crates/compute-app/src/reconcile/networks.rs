//! Notifies the hosts of changes to networks, ports, security groups and routers.
//!
//! The transaction of each change records it. One run takes all records together, so a thousand new
//! members of a group cost each host one document. The change for a guest in a live migration is
//! recorded again until the guest has arrived, and does not delay other changes.

use std::collections::BTreeSet;

use kilonova_compute_db::documents;
use kilonova_store::Tx;
use kilonova_wire::time;

use super::routers;
use crate::{Compute, Error, ports};

/// Sends all recorded changes once.
///
/// # Errors
/// Store errors only.
pub async fn run(compute: Compute) -> Result<(), Error> {
    let own = compute.clone();
    if !compute.store.read(move |tx| own.networks.has_changed(tx)).await? {
        return Ok(());
    }
    let own = compute.clone();
    compute.store.write(move |tx| send(tx, &own)).await
}

fn send(tx: &mut Tx<'_>, compute: &Compute) -> Result<(), Error> {
    let networks = &*compute.networks;
    let changes = networks.take_changes(tx)?;
    let mut done = BTreeSet::new();
    for change in &changes {
        let mut migrating = false;
        for server in networks.servers_to_reconnect(tx, *change)? {
            if done.contains(&server) {
                continue;
            }
            if ports::refresh(tx, compute, server)? {
                done.insert(server);
            } else {
                migrating = true;
            }
        }
        if migrating {
            networks.put_back(tx, *change)?;
        }
    }
    let filtered = networks.servers_to_filter(tx, &changes)?;
    let mut hosts = documents::hosts_of(tx, &filtered)?;
    let mut routers = BTreeSet::new();
    for change in &changes {
        routers.extend(networks.routers_of(tx, *change)?);
    }
    for router in routers {
        hosts.extend(routers::follow(tx, compute, router, time::now())?);
    }
    for host in hosts {
        documents::filter(tx, compute, &host)?;
    }
    Ok(())
}

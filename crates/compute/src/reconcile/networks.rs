//! Hosts are told of what has changed on networks and in security groups.
//!
//! Who changes something notes it with the change. All notes that are there are taken at once, so a
//! thousand new members of a group are one piece of news for each host. A guest that is on its way
//! between hosts is looked at again once it is there, and keeps no other waiting.

use std::collections::BTreeSet;

use kilonova_network::ledger as networks;
use kilonova_store::Tx;

use crate::app::nics;
use crate::db::documents;
use crate::{Compute, Error};

/// Takes all notes once.
///
/// # Errors
/// The database's.
pub async fn run(compute: Compute) -> Result<(), Error> {
    if !compute.store.read(networks::has_changed).await? {
        return Ok(());
    }
    let own = compute.clone();
    compute.store.write(move |tx| tell(tx, &own)).await
}

fn tell(tx: &mut Tx<'_>, compute: &Compute) -> Result<(), Error> {
    let changes = networks::take_changes(tx)?;
    let mut done = BTreeSet::new();
    for change in &changes {
        let mut waits = false;
        for server in networks::servers_to_reconnect(tx, *change)? {
            if done.contains(&server) {
                continue;
            }
            if nics::refresh(tx, compute, server)? {
                done.insert(server);
            } else {
                waits = true;
            }
        }
        if waits {
            networks::record_change(tx, *change)?;
        }
    }
    let filtered = networks::servers_to_filter(tx, &changes)?;
    for host in documents::hosts_of(tx, &filtered)? {
        documents::filter(tx, compute, &host)?;
    }
    Ok(())
}

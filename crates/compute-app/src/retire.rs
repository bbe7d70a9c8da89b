//! Removes a compute host: its service, hypervisor, providers, devices, and pending removals of
//! guests. If its agent returns, the host registers as a new one.

use kilonova_accelerator::ledger as devices;
use kilonova_compute_db::hosts::{self, Host};
use kilonova_compute_db::{documents, drains, usage};
use kilonova_placement as placement;
use kilonova_store::Tx;
use kilonova_wire::{Refusal, time};

use crate::boot::{consumer_of, reclaim};
use crate::{Compute, Error, aggregates, services};

/// Removes a host.
///
/// # Errors
/// 409 while its agent is up, servers are on it, unfinished migrations use it, or other consumers have
/// allocations on its providers; store errors.
pub fn retire(tx: &mut Tx<'_>, compute: &Compute, host: &Host) -> Result<(), Error> {
    let name = &host.host;
    let now = time::now();
    if services::is_up(&compute.fleet, host, now) {
        return Err(Refusal::conflict(format!(
            "Unable to delete compute service of {name}: its agent is up and would register again. Stop \
             the agent first."
        ))
        .into());
    }
    if usage::any_on(tx, name)? {
        return Err(Refusal::conflict(
            "Unable to delete compute service that is hosting instances. Migrate or delete the \
             instances first.",
        )
        .into());
    }
    if usage::any_move_holds(tx, name)? {
        return Err(Refusal::conflict(
            "Unable to delete compute service that has in-progress migrations. Complete the \
             migrations or delete the instances first.",
        )
        .into());
    }
    for server in documents::servers_on(tx, name)? {
        reclaim(tx, compute, consumer_of(server))?;
        documents::forget(tx, name, server)?;
    }
    for aggregate in kilonova_compute_db::aggregates::of_host(tx, name)? {
        aggregates::remove_host(tx, compute, aggregate.id, name, now)?;
    }
    devices::acknowledge(tx, &compute.world, name, devices::EVERYTHING)?;
    devices::report(tx, name, &[])?;
    if compute.options.nova_elsewhere {
        placement::ledger::report_below(tx, &compute.world, host.root_provider, &[])?;
    } else {
        let root = placement::ledger::ProviderSpec {
            id: host.root_provider,
            name: name.into(),
            inventories: Vec::new(),
            initial_ratios: Vec::new(),
            traits: Vec::new(),
        };
        placement::ledger::report_host(tx, &compute.world, &root, &[])?;
        placement::app::providers::delete(tx, &compute.world, host.root_provider)?;
    }
    compute.networks.unplace_routers_of(tx, name, now)?;
    drains::forget(tx, name)?;
    hosts::delete(tx, name)?;
    let (fleet, name, number) = (compute.fleet.clone(), name.clone(), host.number);
    tx.on_commit(move || fleet.deleted(&name, number));
    Ok(())
}

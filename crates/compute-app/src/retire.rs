//! Removes a compute host: its service, hypervisor, providers, devices, and pending removals of guests. If its machine
//! returns, under any name, it registers as a new host, whose devices count as failed until it has removed the guests that
//! it had ([`return_left_guests`]).

use kilonova_accelerator::ledger as devices;
use kilonova_compute_db::documents::Wake as _;
use kilonova_compute_db::hosts::{self, Host};
use kilonova_compute_db::left_guests::{self, LeftGuest};
use kilonova_compute_db::servers::{self, TaskState};
use kilonova_compute_db::{documents, drains, machines, moves, usage};
use kilonova_ids::{HostName, ServerId};
use kilonova_node_api::Desired;
use kilonova_placement as placement;
use kilonova_store::Tx;
use kilonova_wire::{Refusal, time};

use crate::boot::{abandon_of, consumer_of, reclaim};
use crate::flows::operation::{Delete, Operation};
use crate::flows::{self, journal};
use crate::{Compute, Error, aggregates, services, volumes};

/// Removes a host. The claims of servers that were evacuated from it end with it, as upstream
/// (`_remove_allocations_for_evacuated_instances` of `nova/scheduler/client/report.py`): only this host could report
/// that it has removed their guests, and it may never return.
///
/// # Errors
/// 409 while its agent is up, servers are on it, open migrations use it, a deletion waits for it, or other consumers have
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
    if usage::any_open_move_uses(tx, name)? {
        return Err(Refusal::conflict(
            "Unable to delete compute service that has in-progress migrations. Complete the \
             migrations or delete the instances first.",
        )
        .into());
    }
    let pending = documents::servers_on(tx, name)?;
    end_deletions(tx, compute, name, &pending)?;
    for server in pending {
        for held in moves::held_on(tx, server, name)? {
            abandon_of(tx, compute, server, held.id)?;
            reclaim(tx, compute, name, held.id)?;
            moves::set_held(tx, held.id, None)?;
        }
        reclaim(tx, compute, name, consumer_of(server))?;
        documents::forget(tx, name, server)?;
        left_guests::leave(tx, name, server)?;
        volumes::nudge(tx, compute, server, now)?;
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
    if let Some(machine) = machines::of_host(tx, name)? {
        // The machine may already be up under another name; its registration finds the guests.
        for other in machines::others(tx, &machine, name)? {
            request_registration(tx, compute, &other)?;
        }
    }
    let (fleet, name, number) = (compute.fleet.clone(), name.clone(), host.number);
    tx.on_commit(move || fleet.deleted(&name, number));
    Ok(())
}

/// Ends the deletions that wait only for this host: its report will not come.
///
/// # Errors
/// 409 if a deletion still waits for it, because it has not been down for long enough; store errors.
fn end_deletions(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    pending: &[ServerId],
) -> Result<(), Error> {
    for server in pending {
        let Some(open) = journal::open_of(tx, *server)? else { continue };
        let Operation::Delete(Delete::Destroy { .. }) = open.state else { continue };
        // A concurrent report of another host writes this row too, so one of the two sees that the other is done.
        servers::set_task(tx, *server, Some(TaskState::Deleting), time::now())?;
        if flows::delete_without_hosts(tx, compute, *server, time::now())? {
            continue;
        }
        let documents = documents::of_server(tx, *server)?;
        if documents.iter().all(|(other, _)| other == host) {
            return Err(Refusal::conflict(format!(
                "Unable to delete compute service of {host}: the deletion of server {server} waits for it. Try again \
                 in a minute, or force the service down first."
            ))
            .into());
        }
    }
    Ok(())
}

/// The guests that a registering machine must remove first, because it may have them from before the service of its host
/// was deleted. A server that is on the host again has a document of its own there.
///
/// # Errors
/// Store errors only.
pub fn left_guests(
    tx: &mut Tx<'_>,
    host: &HostName,
    machine_id: &str,
) -> Result<Vec<LeftGuest>, Error> {
    let mut left = Vec::new();
    for guest in left_guests::of(tx, host, machine_id)? {
        let document = documents::get(tx, host, guest.server)?;
        if document.is_none_or(|document| document.desired == Desired::Absent) {
            left.push(guest);
        } else {
            left_guests::remove(tx, &guest)?;
        }
    }
    Ok(left)
}

/// Makes a host that has registered remove these guests. Each has a document until the host reports its removal
/// ([`left_guest_removed`]), also if the host registers again meanwhile.
///
/// # Errors
/// Store errors only.
pub fn return_left_guests(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    left: &[LeftGuest],
) -> Result<(), Error> {
    for guest in left {
        if guest.host != *host {
            // The machine has another name now, under which it reports.
            left_guests::remove(tx, guest)?;
            left_guests::leave(tx, host, guest.server)?;
        }
        if documents::get(tx, host, guest.server)?.is_none() {
            documents::put(tx, compute, host, guest.server, &Desired::Absent)?;
        }
    }
    Ok(())
}

/// Handles a host's report that it has removed a guest from before its service was deleted. The host
/// registers again, which makes its devices available after the last such guest. Each removal requests it, because two
/// concurrent ones do not see each other.
///
/// # Errors
/// Store errors only.
pub(crate) fn left_guest_removed(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    server: ServerId,
) -> Result<(), Error> {
    left_guests::forget(tx, host, server)?;
    moves::complete_evacuations(tx, server, host, time::now())?;
    request_registration(tx, compute, host)
}

fn request_registration(tx: &mut Tx<'_>, compute: &Compute, host: &HostName) -> Result<(), Error> {
    if let Some(row) = hosts::by_name(tx, host)?
        && let Some((host, generation)) = documents::request_registration(tx, row.root_provider)?
    {
        compute.wake_on_commit(tx, &host, generation);
    }
    Ok(())
}

//! Registration of a host. One transaction updates the device ledger, the provider tree and the
//! host's row, and fences the host's previous session.
//!
//! With an external Nova, that Nova owns the root of the tree: a host without one waits for it, and
//! a registration changes only the devices below it.

use http::StatusCode;
use kilonova_accelerator::ledger as devices;
use kilonova_engine::Inventory;
use kilonova_ids::{HostId, ProviderId};
use kilonova_node_api::{Refusal, Registration, Session};
use kilonova_placement::ledger as placement;
use kilonova_store::Tx;
use kilonova_wire::Fault;
use kilonova_wire::time::now_micros;

use super::machine::identify;
use super::{sane, unavailable};
use crate::app::owners;
use crate::db::{aggregates, fleet, hosts};
use crate::{Compute, Error};

/// Nova's maximum unit.
const MOST: i64 = 2_147_483_647;

pub(super) async fn register(
    compute: &Compute,
    registration: Registration,
) -> Result<Session, Refusal> {
    sane::check(&registration).map_err(Refusal::Rejected)?;
    let compute_ = compute.clone();
    let before = compute.fleet.by_name(&registration.host).map(|host| host.root);
    let row = compute
        .store
        .write(move |tx| take_in(tx, &compute_, &registration))
        .await
        .map_err(unavailable)?;
    if before != Some(row.root) {
        let name = row.host.clone();
        let aggregates = compute
            .store
            .read(move |tx| aggregates::of_host(tx, &name))
            .await
            .map_err(unavailable)?;
        compute.fleet.group(&row.host, &aggregates);
    }
    Ok(Session { epoch: row.epoch })
}

fn take_in(
    tx: &mut Tx<'_>,
    compute: &Compute,
    registration: &Registration,
) -> Result<fleet::HostRow, Error> {
    let now = now_micros();
    let known = hosts::by_name(tx, &registration.host)?;
    if known.is_none() {
        let same = hosts::spellings(tx, &registration.host)?;
        if let Some(other) = same.first() {
            return Err(Error::from(Fault::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                format!(
                    "There is a host {other}, and {} is the same name; give this machine another one \
                     with [DEFAULT] host, or delete the service of {other} first.",
                    registration.host
                ),
            )));
        }
    }
    let there = identify(tx, compute, registration, now)?;
    let elsewhere = compute.options.nova_elsewhere;
    let named = placement::root_by_name(tx, &registration.host)?;
    let root = match &known {
        _ if elsewhere => named.ok_or_else(|| Error::NoRoot(registration.host.clone()))?,
        Some(host) => host.root_provider,
        None => named.unwrap_or_else(ProviderId::new_v4),
    };
    devices::acknowledge(tx, &compute.world, &registration.host, devices::EVERYTHING)?;
    let mut children = devices::report(tx, &registration.host, &there)?;
    children.iter_mut().for_each(|child| owners::mark(child, elsewhere));
    if elsewhere {
        placement::report_below(tx, &compute.world, root, &children)?;
    } else {
        placement::report_host(tx, &compute.world, &root_of(registration, root), &children)?;
    }
    let new = hosts::NewHost {
        id: HostId::new_v4(),
        host: registration.host.clone(),
        root_provider: root,
        hypervisor_type: registration.hypervisor_type.clone(),
        hypervisor_version: registration.hypervisor_version,
        host_ip: registration.host_ip.clone(),
        vcpus: registration.vcpus,
        memory_mb: registration.memory_mb,
        disk_gb: registration.disk_gb,
    };
    let epoch = hosts::register(tx, &new, now)?;
    let host = known.as_ref();
    let row = fleet::HostRow {
        host: registration.host.clone(),
        id: host.map_or(new.id, |host| host.id),
        root,
        epoch,
        generation: host.map_or(1, |host| host.generation),
        enabled: host.is_none_or(|host| host.enabled),
        forced_down: host.is_some_and(|host| host.forced_down),
        availability_zone: host.map_or("nova".into(), |host| host.availability_zone.clone()),
        last_seen: now,
        reported_at: now,
        about: fleet::About {
            hypervisor_type: registration.hypervisor_type.clone(),
            hypervisor_version: registration.hypervisor_version,
            vcpus: registration.vcpus,
            memory_mb: registration.memory_mb,
        },
    };
    // With the commit, so that an operator's later change is not overwritten here.
    let (fleet, said) = (compute.fleet.clone(), row.clone());
    tx.on_commit(move || {
        fleet.refresh(&said);
    });
    Ok(row)
}

/// The root provider: vCPUs, memory, disk.
fn root_of(registration: &Registration, id: ProviderId) -> placement::ProviderSpec {
    let [cpu, memory, disk] = registration.ratios;
    let inventory = |total: i64, reserved: i64, ratio: f64| Inventory {
        total,
        reserved,
        min_unit: 1,
        max_unit: total.min(MOST),
        step_size: 1,
        allocation_ratio: ratio,
        used: 0,
    };
    let amounts = [
        ("VCPU", inventory(registration.vcpus, 0, cpu)),
        ("MEMORY_MB", inventory(registration.memory_mb, registration.reserved_memory_mb, memory)),
        ("DISK_GB", inventory(registration.disk_gb, 0, disk)),
    ];
    let mut traits = registration.traits.clone();
    if !registration.devices.is_empty() {
        traits.push("COMPUTE_ACCELERATORS".into());
    }
    owners::mark_root(&mut traits);
    traits.sort_unstable();
    traits.dedup();
    placement::ProviderSpec {
        id,
        name: registration.host.clone(),
        inventories: amounts
            .into_iter()
            .filter(|(_, inventory)| inventory.total > 0)
            .map(|(class, inventory)| (class.to_owned(), inventory))
            .collect(),
        traits,
    }
}

//! Registration of a host. One transaction updates the device ledger, the provider tree and the
//! host's row, and fences the host's previous session.
//!
//! An external Nova owns the root of the tree. A host without a root waits until that Nova has created
//! it, and a registration changes only the devices below the root.

use kilonova_accelerator::ledger;
use kilonova_compute_app::{Compute, Error, retire};
use kilonova_compute_db::{cells, fits, hosts, left_guests, machines, volumes};
use kilonova_engine::Inventory;
use kilonova_ids::{HostId, ProviderId, ResourceClass, ascending};
use kilonova_node_api::{Refusal, Registration, Session};
use kilonova_placement::ledger as placement;
use kilonova_store::Tx;
use kilonova_topology::{Cpus, HostCell, format_cpus};
use kilonova_wire::refusal::Kind;
use kilonova_wire::time;

use super::machine::{self, identify};
use super::{division, owner_traits, unavailable, validate};

/// Placement's upper bound of `max_unit`.
pub(super) const MAX_UNIT: i64 = 2_147_483_647;

pub(super) async fn register(
    compute: &Compute,
    registration: Registration,
) -> Result<Session, Refusal> {
    validate::check(&registration).map_err(Refusal::Rejected)?;
    let compute_ = compute.clone();
    let record = move |tx: &mut Tx<'_>| record(tx, &compute_, &registration);
    compute.store.write(record).await.map_err(unavailable)
}

/// Announces the reads that [`record`] makes before it writes anything, so that an unchanged registration
/// waits only once for all of them.
fn expect(tx: &mut Tx<'_>, registration: &Registration) -> Result<(), Error> {
    let host = &registration.host;
    if !registration.machine_id.is_empty() {
        machines::expect(tx, &registration.machine_id, host)?;
    }
    placement::expect_root_by_name(tx, host)?;
    ledger::expect_acknowledge(tx, host, ledger::EVERYTHING)?;
    ledger::expect_report(tx, host, &registration.devices)?;
    cells::expect_of_host(tx, host)?;
    left_guests::expect_of(tx, host, &registration.machine_id)?;
    Ok(hosts::expect_by_name(tx, host)?)
}

/// Writes the registration.
fn record(
    tx: &mut Tx<'_>,
    compute: &Compute,
    registration: &Registration,
) -> Result<Session, Error> {
    let now = time::now();
    expect(tx, registration)?;
    let known = hosts::by_name(tx, &registration.host)?;
    // Read before anything is written: a later read would cost an extra round trip.
    let known_cells = cells::of_host(tx, &registration.host)?;
    if known.is_none() {
        let spellings = hosts::spellings(tx, &registration.host)?;
        if let Some(other) = spellings.first() {
            return Err(Error::from(kilonova_wire::Refusal::new(
                Kind::Unprocessable,
                format!(
                    "Host {other} exists, and {} differs from it only in case. Set another name \
                     with [DEFAULT] host, or delete the service of {other} first.",
                    registration.host
                ),
            )));
        }
    }
    if let (Some(host), Some(attempt)) = (&known, registration.attempt)
        && host.has_passed(attempt)
    {
        tracing::info!(host = %host.host, "ignored an outdated attempt to register");
        return Ok(Session { epoch: host.epoch, undivided: known_cells.undivided.is_some() });
    }
    let named = placement::root_by_name(tx, &registration.host)?;
    let left = retire::left_guests(tx, &registration.host, &registration.machine_id)?;
    let mut offered = identify(tx, compute, registration, known.as_ref(), now)?;
    if !left.is_empty() {
        machine::withhold(&mut offered, registration, left.len());
    }
    let external_nova = compute.options.nova_elsewhere;
    let root = match &known {
        _ if external_nova => named.ok_or_else(|| Error::NoRoot(registration.host.clone()))?,
        Some(host) => host.root_provider,
        None => named.unwrap_or_else(ascending::<ProviderId>),
    };
    ledger::acknowledge(tx, &compute.world, &registration.host, ledger::EVERYTHING)?;
    let mut children = ledger::report(tx, &registration.host, &offered.devices)?;
    children.iter_mut().for_each(|child| owner_traits::mark(child, external_nova));
    let mut reported = division::Reported { divided: false, why_not: None };
    if external_nova {
        if known_cells.divided {
            division::check_hand_over(tx, &registration.host, root)?;
        }
        placement::report_below(tx, &compute.world, root, &children)?;
    } else {
        reported = division::report(tx, compute, registration, root, &children, &known_cells)?;
    }
    let new = hosts::NewHost {
        id: ascending::<HostId>(),
        host: registration.host.clone(),
        root_provider: root,
        hypervisor_type: registration.hypervisor_type.clone(),
        hypervisor_version: registration.hypervisor_version,
        host_ip: registration.host_ip.clone(),
        vcpus: registration.vcpus,
        memory_mb: registration.memory_mb,
        disk_gb: registration.disk_gb,
        agent_version: registration.agent_version.clone(),
        attempt: registration.attempt,
    };
    let row = hosts::register(tx, &new, now)?;
    retire::return_left_guests(tx, compute, &registration.host, &left)?;
    follow_routes(tx, compute, registration, known.as_ref())?;
    if reported.divided || known_cells.divided {
        cells::set_divided(tx, &registration.host, reported.divided.then_some(row.version.epoch))?;
    }
    if known_cells.undivided != reported.why_not {
        cells::set_undivided(tx, &registration.host, reported.why_not.as_deref())?;
    }
    let reported_cells = cells::text(&registration.host, offered.cells)?;
    if known_cells.text != reported_cells {
        cells::set(tx, &registration.host, reported_cells.as_deref())?;
        if known_cells.text.is_some() {
            warn_of_pins(tx, registration)?;
        }
    }
    if compute.volumes.is_some() {
        let connector = registration.connector.as_ref();
        let connector = connector.and_then(|connector| serde_json::to_string(connector).ok());
        volumes::set_connector(tx, &registration.host, connector.as_deref())?;
    }
    let session = Session { epoch: row.version.epoch, undivided: reported.why_not.is_some() };
    let fleet = compute.fleet.clone();
    tx.on_commit(move || fleet.refresh(&row));
    Ok(session)
}

/// Records the physical networks between which the host can route, if they changed, and schedules a check
/// of its routers: the host may no longer reach all of their networks.
fn follow_routes(
    tx: &mut Tx<'_>,
    compute: &Compute,
    registration: &Registration,
    known: Option<&hosts::Host>,
) -> Result<(), Error> {
    let routed = registration.routes.as_deref().map(hosts::routed);
    if routed.as_deref() == known.and_then(|host| host.routed.as_deref()) {
        return Ok(());
    }
    hosts::set_routed(tx, &registration.host, routed.as_deref())?;
    if known.is_some() {
        compute.networks.record_host_networks_change(tx, &registration.host)?;
    }
    Ok(())
}

/// Logs the CPUs that are dedicated to guests and that the host no longer offers. The guests keep them, and no other
/// guest gets them.
fn warn_of_pins(tx: &mut Tx<'_>, registration: &Registration) -> Result<(), Error> {
    let topology = registration.cells.as_deref().map(cells::topology);
    let topology = topology.and_then(Result::ok).unwrap_or_default();
    let offered: Cpus =
        topology.cells.iter().flat_map(|cell| cell.dedicated.iter().copied()).collect();
    let pinned: Cpus = fits::pins_on(tx, &registration.host)?.into_iter().collect();
    let missing: Cpus = pinned.difference(&offered).copied().collect();
    if !missing.is_empty() {
        let (host, cpus) = (registration.host.clone(), format_cpus(&missing));
        tx.on_commit(move || {
            tracing::warn!(
                %host, %cpus,
                "guests have dedicated CPUs that the host no longer offers; bring them online and back into cpu_dedicated_set, or move the guests"
            );
        });
    }
    Ok(())
}

/// The root provider, with CPUs, memory and disk. The dedicated CPUs are `PCPU`, never overcommitted,
/// and the others `VCPU`.
pub(super) fn root_of(registration: &Registration, id: ProviderId) -> placement::ProviderSpec {
    let [cpu, memory, disk] = registration.ratios;
    let inventory = |total: i64, reserved: i64, ratio: f64| Inventory {
        reserved,
        max_unit: total.min(MAX_UNIT),
        allocation_ratio: ratio,
        ..Inventory::of(total)
    };
    let (shared, dedicated) = cpus(registration);
    let amounts = [
        ("VCPU", inventory(shared, registration.reserved_cpus.min(shared), cpu)),
        ("PCPU", inventory(dedicated, 0, 1.0)),
        ("MEMORY_MB", inventory(registration.memory_mb, registration.reserved_memory_mb, memory)),
        ("DISK_GB", inventory(registration.disk_gb, registration.reserved_disk_gb, disk)),
    ];
    let mut traits = registration.traits.clone();
    if !registration.devices.is_empty() {
        traits.push("COMPUTE_ACCELERATORS".into());
    }
    owner_traits::mark_root(&mut traits);
    traits.sort_unstable();
    traits.dedup();
    placement::ProviderSpec {
        id,
        name: registration.host.to_string(),
        inventories: amounts
            .into_iter()
            .filter(|(_, inventory)| inventory.total > 0)
            .map(|(class, inventory)| (ResourceClass::verbatim(class), inventory))
            .collect(),
        initial_ratios: initial_ratios(registration),
        traits,
    }
}

/// The classes whose ratio an operator may change through Placement.
pub(super) fn initial_ratios(registration: &Registration) -> Vec<ResourceClass> {
    let classes = ["VCPU", "MEMORY_MB", "DISK_GB"].into_iter().zip(registration.initial_ratios);
    let initial = classes.filter(|(_, is_initial)| *is_initial);
    initial.map(|(class, _)| ResourceClass::verbatim(class)).collect()
}

/// The numbers of shared and of dedicated CPUs. All CPUs of a host without NUMA cells are shared.
fn cpus(registration: &Registration) -> (i64, i64) {
    let topology = registration.cells.as_deref().map(cells::topology);
    let Some(Ok(topology)) = topology else { return (registration.vcpus, 0) };
    let count = |part: fn(&HostCell) -> &Cpus| {
        let all = topology.cells.iter().map(|cell| part(cell).len()).sum::<usize>();
        i64::try_from(all).unwrap_or(MAX_UNIT)
    };
    (count(|cell| &cell.shared), count(|cell| &cell.dedicated))
}

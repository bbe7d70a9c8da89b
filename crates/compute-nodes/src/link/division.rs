//! The providers of a host's CPUs and memory: its root, or one for each NUMA cell below it
//! (`[compute] numa_in_placement`).
//!
//! A change of the division moves the inventories and the allocations of all guests in the transaction of the
//! registration. If the cells have no room for the guests, the host remains undivided, and its row states the reason.

use std::collections::BTreeMap;

use kilonova_compute_app::numa::{NewCell, divide};
use kilonova_compute_app::{Compute, Error};
use kilonova_compute_db::cells::{self, StoredCells};
use kilonova_engine::{CELL_CLASSES, CELL_TRAIT, Inventory, is_of_cell};
use kilonova_ids::{HostName, ProviderId, ResourceClass};
use kilonova_node_api::{NumaCell, Registration};
use kilonova_placement::ledger::{self as placement, ProviderSpec};
use kilonova_store::Tx;
use kilonova_topology::{Cpus, HostCell, HostTopology, share};

use super::owner_traits;
use super::register::{MAX_UNIT, initial_ratios, root_of};

/// How a host's CPUs and memory are offered after its registration.
pub(super) struct Reported {
    /// True if they are offered by NUMA cell.
    pub divided: bool,
    /// The reason why they are not offered by NUMA cell, although the host's registration requests it.
    pub why_not: Option<String>,
}

/// Makes the host's tree match its registration. `known` states whether the tree is divided now.
///
/// # Errors
/// Store errors; a unique key violation if another provider already has the name of a reported provider that is not a
/// cell.
pub(super) fn report(
    tx: &mut Tx<'_>,
    compute: &Compute,
    registration: &Registration,
    root: ProviderId,
    children: &[ProviderSpec],
    known: &StoredCells,
) -> Result<Reported, Error> {
    let was_divided = known.divided;
    let whole = root_of(registration, root);
    let cells = cells_of(registration, root);
    let world = &compute.world;
    if !registration.numa_in_placement || cells.len() < 2 {
        if was_divided {
            placement::unite(tx, world, &whole, children)?;
            let host = registration.host.clone();
            tx.on_commit(move || {
                tracing::info!(%host, "the host offers its CPUs and memory as a whole again");
            });
        } else {
            placement::report_host(tx, world, &whole, children)?;
        }
        return Ok(Reported { divided: false, why_not: None });
    }
    let mut bare = whole.clone();
    bare.inventories.retain(|(class, _)| !is_of_cell(class));
    if was_divided {
        if !has_moved_cpus(known, registration) {
            let mut all = children.to_vec();
            all.extend(cells.into_iter().map(|(_, spec)| spec));
            placement::report_host(tx, world, &bare, &all)?;
            return Ok(Reported { divided: true, why_not: None });
        }
        // The allocations are at the cells of the old numbers, so the host is united, and divided again if it can be.
        placement::unite(tx, world, &whole, children)?;
    }
    let (mut new, specs): (Vec<NewCell>, Vec<ProviderSpec>) = cells.into_iter().unzip();
    let held = placement::allocations_of_root(tx, root)?;
    for own in placement::of_operator(tx, root)? {
        keep_of_operator(&mut new, &specs, &own);
    }
    let strategy = compute.options.numa_strategy;
    let why = match divide(tx, &registration.host, &new, &held, strategy)? {
        Err(why) => why,
        Ok(parts) => {
            let by_cell = |class: &ResourceClass, amount: i64| {
                let totals: Vec<i64> = specs.iter().map(|spec| total_of(spec, class)).collect();
                share(amount, &totals)
            };
            let divided = tx.attempt(|tx| {
                placement::divide(tx, world, &bare, children, &specs, &parts, by_cell)
            });
            match divided {
                Ok(()) => {
                    let (host, cells) = (registration.host.clone(), specs.len());
                    tx.on_commit(move || {
                        tracing::info!(%host, cells, "the host offers its CPUs and memory by NUMA cell now");
                    });
                    return Ok(Reported { divided: true, why_not: None });
                }
                Err(kilonova_placement::Error::Taken { name, .. }) => {
                    format!("another resource provider is named {name}")
                }
                Err(error) => return Err(error.into()),
            }
        }
    };
    placement::report_host(tx, world, &whole, children)?;
    // The agent repeats the attempt, so the reason is logged only when it changes.
    if known.undivided.as_ref() != Some(&why) {
        let (host, reason) = (registration.host.clone(), why.clone());
        tx.on_commit(move || {
            tracing::warn!(
                %host, %reason,
                "cannot offer the host's CPUs and memory by NUMA cell yet, so they are offered as a whole; the agent \
                 retries every ten minutes and when it starts: move the guests or remove the reason, or set [compute] \
                 numa_in_placement = false on the host"
            );
        });
    }
    Ok(Reported { divided: false, why_not: Some(why) })
}

/// True if a CPU is in another cell than before: the firmware may number the cells differently after a reboot.
fn has_moved_cpus(known: &StoredCells, registration: &Registration) -> bool {
    let stored = known.text.as_deref();
    let stored = stored.and_then(|text| serde_json::from_str::<Vec<NumaCell>>(text).ok());
    let of = |cells: Option<&[NumaCell]>| cells.and_then(|cells| cells::topology(cells).ok());
    let (before, after) = (of(stored.as_deref()), of(registration.cells.as_deref()));
    let (Some(before), Some(after)) = (before, after) else { return false };
    let cell_of = |topology: &HostTopology| -> BTreeMap<u32, u32> {
        let cpus = |cell: &HostCell| -> Vec<(u32, u32)> {
            cpus_of(cell).into_iter().map(|cpu| (cpu, cell.id)).collect()
        };
        topology.cells.iter().flat_map(cpus).collect()
    };
    let after = cell_of(&after);
    cell_of(&before).iter().any(|(cpu, cell)| after.get(cpu).is_some_and(|now| now != cell))
}

fn cpus_of(cell: &HostCell) -> Cpus {
    cell.shared.union(&cell.dedicated).copied().collect()
}

/// Refuses to hand over a divided host with allocations at its cells to an external Nova. That Nova does not know the
/// cells. It would offer the same CPUs and memory on the root, and nothing would move the allocations there.
///
/// # Errors
/// [`Error::Divided`]; store errors.
pub(super) fn check_hand_over(
    tx: &mut Tx<'_>,
    host: &HostName,
    root: ProviderId,
) -> Result<(), Error> {
    match placement::consumers_at_cells(tx, root)? {
        0 => Ok(()),
        consumers => Err(Error::Divided { host: host.clone(), consumers }),
    }
}

/// Applies an operator's settings of the root to the cells. If the host does not fix a ratio, the cells use the root's.
/// The reserved amount is divided in proportion to the totals of the cells. A cell keeps its own reserved amount if
/// that is larger.
fn keep_of_operator(cells: &mut [NewCell], specs: &[ProviderSpec], own: &placement::OfOperator) {
    let Some(at) = CELL_CLASSES.iter().position(|known| own.class == *known) else { return };
    for (cell, spec) in cells.iter_mut().zip(specs) {
        if let Some(inventory) = &mut cell.inventories[at]
            && spec.initial_ratios.contains(&own.class)
        {
            inventory.allocation_ratio = own.allocation_ratio;
        }
    }
    let Some(amount) = own.reserved else { return };
    let totals: Vec<i64> = specs.iter().map(|spec| total_of(spec, &own.class)).collect();
    for (cell, amount) in cells.iter_mut().zip(share(amount, &totals)) {
        if let Some(inventory) = &mut cell.inventories[at] {
            inventory.reserved = inventory.reserved.max(amount);
        }
    }
}

/// The providers of the cells that offer resources. Empty if the registration has no valid cells.
fn cells_of(registration: &Registration, root: ProviderId) -> Vec<(NewCell, ProviderSpec)> {
    let topology = registration.cells.as_deref().map(cells::topology);
    let Some(Ok(topology)) = topology else { return Vec::new() };
    let number = |n: u64| i64::try_from(n).unwrap_or(MAX_UNIT);
    let memory: Vec<i64> = topology.cells.iter().map(|cell| number(cell.memory_mb)).collect();
    let reserved = share(registration.reserved_memory_mb, &memory);
    let shared: Vec<i64> =
        topology.cells.iter().map(|cell| number(cell.shared.len() as u64)).collect();
    let reserved_cpus = share(registration.reserved_cpus, &shared);
    let [cpu_ratio, memory_ratio, _] = registration.ratios;
    let amounts = topology.cells.iter().enumerate().map(|(at, cell)| {
        // In the order of `CELL_CLASSES`.
        [
            (memory[at], reserved[at], memory_ratio),
            (number(cell.dedicated.len() as u64), 0, 1.0),
            (shared[at], reserved_cpus[at].min(shared[at]), cpu_ratio),
        ]
    });
    let amounts: Vec<[(i64, i64, f64); CELL_CLASSES.len()]> = amounts.collect();
    // `max_unit` is the sum of all cells. A guest without a topology may use more of an overcommitted cell than the
    // cell has.
    let most = |class: usize| amounts.iter().map(|cell| cell[class].0).sum::<i64>().min(MAX_UNIT);
    let inventory = |class: usize, (total, reserved, ratio): (i64, i64, f64)| {
        (total > 0).then(|| Inventory {
            reserved,
            max_unit: most(class),
            allocation_ratio: ratio,
            ..Inventory::of(total)
        })
    };
    let cells = topology.cells.iter().zip(&amounts).filter_map(|(cell, amounts)| {
        let mut inventories = placement::CellInventories::default();
        for (at, one) in amounts.iter().enumerate() {
            inventories[at] = inventory(at, *one);
        }
        let offered = CELL_CLASSES.iter().zip(inventories);
        let offered: Vec<_> = offered
            .filter_map(|(class, one)| Some((ResourceClass::verbatim(*class), one?)))
            .collect();
        if offered.is_empty() {
            return None;
        }
        let provider = placement::cell_provider(root, cell.id);
        let mut traits = vec![CELL_TRAIT.to_owned()];
        owner_traits::mark_root(&mut traits);
        let name = format!("{}_NUMA{}", registration.host, cell.id);
        let initial_ratios = initial_ratios(registration);
        let spec =
            ProviderSpec { id: provider, name, inventories: offered, initial_ratios, traits };
        Some((NewCell { number: cell.id, provider, cpus: cpus_of(cell), inventories }, spec))
    });
    cells.collect()
}

fn total_of(spec: &ProviderSpec, class: &ResourceClass) -> i64 {
    let found = spec.inventories.iter().find(|(known, _)| known == class);
    found.map_or(0, |(_, inventory)| inventory.total)
}

//! Fits a guest's cells onto a host's.
//!
//! Each guest cell needs its own host cell, and its fit does not depend on the host cells of the
//! others. Each pair of cells is therefore tried once, and the first assignment in the order of
//! preference is a bipartite matching: at most cells³ steps instead of all permutations. Only the
//! choice of devices depends on the set of host cells. If no devices suit the first assignment,
//! sets of host cells are tried in the same order, up to [`MOST_SETS`] of them. A host with at most
//! 16 cells has fewer sets, so a fit can be missed only on larger hosts.

mod assign;
mod cell;
mod devices;
mod order;
mod pack;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Cpus, GuestTopology, HostTopology};

pub use cell::CellMisfit;
pub use devices::{DevicePick, DevicePool, DeviceRequest, Devices};
pub use order::Strategy;

/// Maximum number of sets of host cells that are tried for a guest with devices; C(16, 8) is
/// 12,870.
const MOST_SETS: usize = 20_000;

/// How far the shared CPUs and the memory of a cell may be overcommitted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// `cpu_allocation_ratio`.
    pub cpu_ratio: f64,
    /// `ram_allocation_ratio`.
    pub memory_ratio: f64,
}

/// A guest's topology on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fitted {
    /// The cells, in the guest's order.
    pub cells: Vec<FittedCell>,
    /// The device pools that serve the guest's requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DevicePick>,
}

/// A guest cell on a host cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FittedCell {
    /// The number of the host cell.
    pub host: u32,
    /// Its vCPUs on shared host CPUs.
    pub shared: Cpus,
    /// The host CPU of each dedicated vCPU.
    pub pins: BTreeMap<u32, u32>,
    /// The host CPUs for the emulator's threads.
    #[serde(default, skip_serializing_if = "Cpus::is_empty")]
    pub emulator: Cpus,
    /// Its memory, MiB.
    pub memory_mb: u64,
    /// The size of its memory pages, KiB; `None` if the host does not report pages.
    pub page_kib: Option<u64>,
}

impl FittedCell {
    /// The host CPUs that only this guest uses.
    pub fn host_cpus(&self) -> impl Iterator<Item = u32> {
        self.pins.values().chain(&self.emulator).copied()
    }

    /// The number of memory pages that it uses.
    pub fn pages(&self) -> u64 {
        match self.page_kib {
            None | Some(0) => 0,
            Some(size) => self.memory_mb.saturating_mul(1024).div_ceil(size),
        }
    }
}

/// Why a guest does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misfit {
    /// The guest has more cells than the host.
    TooFewCells {
        /// Cells of the guest.
        guest: usize,
        /// Cells of the host.
        host: usize,
    },
    /// A guest cell fits on no host cell.
    Cell {
        /// The guest cell.
        cell: usize,
        /// The reason for each host cell.
        reasons: Vec<(u32, CellMisfit)>,
    },
    /// Each guest cell fits somewhere, but they do not all fit together.
    Together,
    /// The devices are not near enough to the host cells that fit.
    Devices,
}

/// Fits a guest onto a host: the first fit in the order of preference.
///
/// # Errors
/// The reason why the guest does not fit.
pub fn fit(
    host: &HostTopology,
    guest: &GuestTopology,
    limits: Option<Limits>,
    strategy: Strategy,
    devices: &Devices,
) -> Result<Fitted, Misfit> {
    let (guests, hosts) = (guest.cells.len(), host.cells.len());
    if guests > hosts {
        return Err(Misfit::TooFewCells { guest: guests, host: hosts });
    }
    let ordered = order::order(host, guest, strategy, devices);
    let mut pairs = Vec::with_capacity(guests);
    for (number, cell) in guest.cells.iter().enumerate() {
        let emulator = if number == 0 { guest.emulator_cpus() } else { 0 };
        let fits: Vec<_> = ordered
            .iter()
            .map(|host| {
                if !devices.are_seen(number, host.id) {
                    return Err(CellMisfit::SeenDevices);
                }
                cell::fit_cell(host, guest, cell, emulator, limits)
            })
            .collect();
        if fits.iter().all(Result::is_err) {
            let reasons =
                ordered.iter().map(|host| host.id).zip(fits.into_iter().filter_map(Result::err));
            return Err(Misfit::Cell { cell: number, reasons: reasons.collect() });
        }
        pairs.push(fits.into_iter().map(Result::ok).collect::<Vec<_>>());
    }
    let possible: Vec<Vec<bool>> =
        pairs.iter().map(|fits| fits.iter().map(Option::is_some).collect()).collect();
    let ids = |places: &[usize]| places.iter().map(|place| ordered[*place].id).collect::<Cpus>();
    let all: Vec<usize> = (0..hosts).collect();
    let first = assign::first(&possible, &all).ok_or(Misfit::Together)?;
    let (places, picks) = match devices::choose(host, devices, &ids(&first)) {
        Some(picks) => (first, picks),
        None => assign::sets(hosts, guests)
            .take(MOST_SETS)
            .filter_map(|set| {
                let picks = devices::choose(host, devices, &ids(&set))?;
                Some((assign::first(&possible, &set)?, picks))
            })
            .min_by(|(one, _), (other, _)| one.cmp(other))
            .ok_or(Misfit::Devices)?,
    };
    let cells =
        pairs.into_iter().zip(places).filter_map(|(mut fits, place)| fits.swap_remove(place));
    Ok(Fitted { cells: cells.collect(), devices: picks })
}

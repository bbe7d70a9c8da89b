//! Claims on hosts that offer their CPUs and memory by NUMA cell.
//!
//! A plan contains only the sums over a divided host's cells, and names the host's root provider. The transaction of
//! the claim reads the cells and divides the amounts among them: a guest with a topology claims from the cells of its
//! fit, any other guest from cells with room. A host that is not divided needs no statement here.

use std::collections::BTreeMap;

use kilonova_compute_db::fits;
use kilonova_engine::{CELL_CLASSES, Candidate, Inventory, is_of_cell};
use kilonova_ids::{ConsumerId, HostName, ProviderId, ResourceClass};
use kilonova_placement::ledger::{self as placement, Allocation, AskedCells, CellInventories};
use kilonova_store::Tx;
use kilonova_topology::{
    CellLimit, CellRoom, Cpus, Fitted, FittedCell, HostTopology, Strategy, format_cpus, split,
};

use crate::{Compute, Error};

/// The position of memory in [`CELL_CLASSES`]; [`split`] orders the cells by their memory.
const MEMORY: usize = 0;
/// The position of dedicated CPUs in [`CELL_CLASSES`].
const DEDICATED: usize = 1;
/// The position of shared CPUs in [`CELL_CLASSES`].
const SHARED: usize = 2;

/// Amounts by class, in the order of [`CELL_CLASSES`].
type Amounts = [i64; CELL_CLASSES.len()];
/// The free amounts of a cell, and the most that one guest may claim there.
type Room = CellRoom<{ CELL_CLASSES.len() }>;

/// A claim on the cells of a host, after the transaction has asked for the cells' inventories.
#[must_use = "a guest must not run without its CPUs and memory"]
pub(crate) struct AskedDivision {
    root: ProviderId,
    amounts: Amounts,
    cells: AskedCells,
}

/// The cells of a host with their inventories, for the claim of one guest.
pub(crate) struct Division {
    root: ProviderId,
    amounts: Amounts,
    cells: Vec<(ProviderId, CellInventories)>,
}

/// Removes from `allocations` the amounts that a divided host offers by cell, and asks for the cells' inventories.
/// Returns `None` for a host that is not divided.
///
/// # Errors
/// Store errors only.
pub(crate) fn ask(
    tx: &mut Tx<'_>,
    compute: &Compute,
    candidate: &Candidate,
    allocations: &mut Vec<Allocation>,
) -> Result<Option<AskedDivision>, Error> {
    let root = candidate.root;
    let cells = compute.world.cells(root);
    if cells.is_empty() {
        return Ok(None);
    }
    let mut amounts = Amounts::default();
    allocations.retain(|one| {
        let at = CELL_CLASSES.iter().position(|class| one.class == *class);
        match at.filter(|_| one.provider == root) {
            None => true,
            Some(at) => {
                amounts[at] = one.amount.saturating_add(amounts[at]);
                false
            }
        }
    });
    let cells = placement::ask_cells(tx, cells)?;
    Ok(Some(AskedDivision { root, amounts, cells }))
}

impl AskedDivision {
    /// Reads the inventories of the cells, with the amounts in use.
    ///
    /// # Errors
    /// Store errors only.
    pub(crate) fn read(self, tx: &mut Tx<'_>) -> Result<Division, Error> {
        let Self { root, amounts, cells } = self;
        Ok(Division { root, amounts, cells: placement::cells(tx, cells)? })
    }
}

impl Division {
    /// Limits each cell of the host's topology to the amounts that are free at its provider, and sets the usage of its
    /// memory and shared CPUs.
    pub(super) fn limit(&self, host: &mut HostTopology) {
        for cell in &mut host.cells {
            let provider = placement::cell_provider(self.root, cell.id);
            let found = self.cells.iter().find(|(id, _)| *id == provider);
            let inventories = found.map_or_else(Default::default, |(_, own)| *own);
            let left = inventories.map(|one| one.map_or(0, |one| free(&one).max(0).unsigned_abs()));
            cell.limit = Some(CellLimit {
                memory_mb: left[MEMORY],
                dedicated: left[DEDICATED],
                shared: left[SHARED],
            });
            if let [Some(memory), _, shared] = inventories {
                cell.memory_used_mb = memory.used.max(0).unsigned_abs();
                cell.shared_used = shared.map_or(0, |one| one.used.max(0).unsigned_abs());
            }
        }
    }

    /// The allocations at the cells for a guest with a topology. Extra specs may request amounts that differ from the
    /// topology's: at most the requested amounts are allocated, and a remainder is split among cells with room.
    ///
    /// # Errors
    /// [`placement::Error::Capacity`](kilonova_placement::Error) if the cells have too little room.
    pub(crate) fn of_fit(&self, fitted: &Fitted) -> Result<Vec<Allocation>, Error> {
        let at = |cell: &FittedCell| {
            let provider = placement::cell_provider(self.root, cell.host);
            self.cells.iter().position(|(id, _)| *id == provider)
        };
        let mut parts = vec![Amounts::default(); self.cells.len()];
        let mut left = self.amounts;
        for cell in &fitted.cells {
            let Some(place) = at(cell) else { return Err(self.lack(MEMORY)) };
            for (one, amount) in of_cell(cell).into_iter().enumerate() {
                let amount = amount.min(left[one]);
                parts[place][one] += amount;
                left[one] -= amount;
            }
        }
        if left.iter().any(|left| *left > 0) {
            let mut rooms = self.rooms();
            for (room, part) in rooms.iter_mut().zip(&parts) {
                take(room, part);
                room.most.iter_mut().zip(part).for_each(|(most, part)| *most -= part);
            }
            let more = split(&rooms, left, MEMORY, Strategy::Spread);
            let more = more.ok_or_else(|| self.lack(MEMORY))?;
            for (part, more) in parts.iter_mut().zip(more) {
                part.iter_mut().zip(more).for_each(|(part, more)| *part += more);
            }
        }
        Ok(self.allocations(&parts))
    }

    /// The allocations at the cells for a guest without a topology.
    ///
    /// # Errors
    /// [`placement::Error::Capacity`](kilonova_placement::Error) if the cells have too little room.
    pub(crate) fn of_any(&self, strategy: Strategy) -> Result<Vec<Allocation>, Error> {
        let rooms = self.rooms();
        let parts = split(&rooms, self.amounts, MEMORY, strategy);
        let parts = parts.ok_or_else(|| {
            let short = |one: &usize| {
                let all = rooms.iter().map(|room| room.free[*one].min(room.most[*one]).max(0));
                all.sum::<i64>() < self.amounts[*one]
            };
            self.lack((0..self.amounts.len()).find(short).unwrap_or(MEMORY))
        })?;
        Ok(self.allocations(&parts))
    }

    fn rooms(&self) -> Vec<Room> {
        self.cells.iter().map(|(_, own)| room(own)).collect()
    }

    fn lack(&self, one: usize) -> Error {
        let class = ResourceClass::verbatim(CELL_CLASSES[one]);
        Error::Placement(kilonova_placement::Error::Capacity { provider: self.root, class })
    }

    fn allocations(&self, parts: &[Amounts]) -> Vec<Allocation> {
        let of_cell = self.cells.iter().zip(parts);
        let of_cell = of_cell.flat_map(|((id, _), part)| allocations_of(*id, part));
        of_cell.collect()
    }
}

fn allocations_of(provider: ProviderId, part: &Amounts) -> Vec<Allocation> {
    let all = CELL_CLASSES.iter().zip(part).filter(|(_, amount)| **amount > 0);
    let one = |(class, amount): (&&str, &i64)| Allocation {
        provider,
        class: ResourceClass::verbatim(*class),
        amount: *amount,
    };
    all.map(one).collect()
}

/// The amounts that one cell of a guest needs.
fn of_cell(cell: &FittedCell) -> Amounts {
    let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let mut amounts = Amounts::default();
    amounts[MEMORY] = i64::try_from(cell.memory_mb).unwrap_or(i64::MAX);
    amounts[DEDICATED] = count(cell.host_cpus().count());
    amounts[SHARED] = count(cell.shared.len());
    amounts
}

fn free(inventory: &Inventory) -> i64 {
    inventory.capacity().saturating_sub(inventory.used)
}

fn room(own: &CellInventories) -> Room {
    CellRoom {
        free: own.map(|one| one.map_or(0, |one| free(&one))),
        most: own.map(|one| one.map_or(0, |one| one.max_unit)),
    }
}

/// A cell of a host that is about to be divided.
#[derive(Debug, Clone)]
pub struct NewCell {
    /// The number of the cell.
    pub number: u32,
    /// Its provider.
    pub provider: ProviderId,
    /// Its CPUs.
    pub cpus: Cpus,
    /// Its inventories.
    pub inventories: CellInventories,
}

/// The allocations at the cells that replace those at the root when a host is divided. The allocations of a guest with
/// a topology go to the cells that its fit records. Those of other guests go to cells with room, beginning with the
/// guest that has the most memory. `Err` is a clause that states why the allocations do not fit.
///
/// # Errors
/// Store errors only.
pub fn divide(
    tx: &mut Tx<'_>,
    host: &HostName,
    cells: &[NewCell],
    held: &[placement::RootAllocation],
    strategy: Strategy,
) -> Result<Result<Vec<(ConsumerId, Allocation)>, String>, Error> {
    let mut consumers: BTreeMap<ConsumerId, Amounts> = BTreeMap::new();
    for one in held.iter().filter(|one| is_of_cell(&one.class)) {
        if let Some(at) = CELL_CLASSES.iter().position(|class| one.class == *class) {
            consumers.entry(one.consumer).or_default()[at] += one.amount;
        }
    }
    let mut fits: BTreeMap<_, _> = fits::fits_on(tx, host)?.into_iter().collect();
    let mut rooms: Vec<_> = cells.iter().map(|cell| room(&cell.inventories)).collect();
    let mut all = Vec::new();
    let mut put = |rooms: &mut Vec<Room>, consumer, parts: &[Amounts]| {
        for ((cell, room), part) in cells.iter().zip(rooms.iter_mut()).zip(parts) {
            take(room, part);
            all.extend(allocations_of(cell.provider, part).into_iter().map(|one| (consumer, one)));
        }
    };
    let mut floating: Vec<(ConsumerId, Amounts)> = Vec::new();
    for (consumer, amounts) in consumers {
        let Some(fitted) = fits.remove(&consumer) else {
            floating.push((consumer, amounts));
            continue;
        };
        let mut parts = vec![Amounts::default(); cells.len()];
        let mut left = amounts;
        for cell in &fitted.cells {
            let Some(at) = cells.iter().position(|known| known.number == cell.host) else {
                let cpus = format_cpus(&cell.host_cpus().collect());
                return Ok(Err(format!(
                    "guest {consumer} has a cell on NUMA cell {} (CPUs {cpus}), which the host does not have",
                    cell.host
                )));
            };
            let elsewhere = cell.host_cpus().filter(|cpu| {
                cells.iter().any(|known| known.number != cell.host && known.cpus.contains(cpu))
            });
            let elsewhere: Cpus = elsewhere.collect();
            if !elsewhere.is_empty() {
                return Ok(Err(format!(
                    "guest {consumer} was placed on NUMA cell {}, and its CPUs {} are in another cell now",
                    cell.host,
                    format_cpus(&elsewhere)
                )));
            }
            for (one, amount) in of_cell(cell).into_iter().enumerate() {
                let amount = amount.min(left[one]);
                parts[at][one] += amount;
                left[one] -= amount;
            }
        }
        if left.iter().any(|left| *left > 0) {
            return Ok(Err(format!(
                "guest {consumer} has more allocated than the cells of its topology: {}",
                words(&left)
            )));
        }
        for ((cell, room), part) in cells.iter().zip(&rooms).zip(&parts) {
            if (0..part.len()).any(|one| part[one] > 0 && part[one] > room.free[one]) {
                return Ok(Err(format!(
                    "NUMA cell {} has no room for the part of guest {consumer} that is there: {}",
                    cell.number,
                    words(part)
                )));
            }
        }
        put(&mut rooms, consumer, &parts);
    }
    floating.sort_by_key(|(consumer, amounts)| (std::cmp::Reverse(amounts[MEMORY]), *consumer));
    for (consumer, amounts) in floating {
        let Some(parts) = split(&rooms, amounts, MEMORY, strategy) else {
            return Ok(Err(format!(
                "its NUMA cells have no room for guest {consumer}: {}",
                words(&amounts)
            )));
        };
        put(&mut rooms, consumer, &parts);
    }
    Ok(Ok(all))
}

/// Subtracts the amounts that a guest has at a cell from the cell's free amounts.
fn take(room: &mut Room, part: &Amounts) {
    room.free.iter_mut().zip(part).for_each(|(free, part)| *free -= part);
}

fn words(amounts: &Amounts) -> String {
    let all = CELL_CLASSES.iter().zip(amounts).filter(|(_, amount)| **amount > 0);
    all.map(|(class, amount)| format!("{amount} of {class}")).collect::<Vec<_>>().join(", ")
}

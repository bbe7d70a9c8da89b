//! The use of a host by fits.

use crate::fit::{Fitted, FittedCell};
use crate::{Cpus, HostCell, HostTopology};

/// A fit that conflicts with the host's resources or with their use by others.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// The host has no such cell.
    #[error("the host has no NUMA cell {0}")]
    Cell(u32),
    /// The CPU is not a dedicated CPU of the cell.
    #[error("CPU {cpu} is not a dedicated CPU of NUMA cell {cell}")]
    NotDedicated {
        /// The cell.
        cell: u32,
        /// The CPU.
        cpu: u32,
    },
    /// The CPU belongs to another guest, or to another vCPU of the same one.
    #[error("CPU {cpu} of NUMA cell {cell} is in use")]
    InUse {
        /// The cell.
        cell: u32,
        /// The CPU.
        cpu: u32,
    },
    /// The CPU is not in use.
    #[error("CPU {cpu} of NUMA cell {cell} is not in use")]
    NotInUse {
        /// The cell.
        cell: u32,
        /// The CPU.
        cpu: u32,
    },
}

impl HostTopology {
    /// Counts a fit as used.
    ///
    /// # Errors
    /// The first conflict; the host is then unchanged.
    pub fn claim(&mut self, fitted: &Fitted) -> Result<(), Conflict> {
        let mut claimed = Cpus::new();
        for cell in &fitted.cells {
            let host = self.cell(cell.host).ok_or(Conflict::Cell(cell.host))?;
            for cpu in cell.host_cpus() {
                if !host.dedicated.contains(&cpu) {
                    return Err(Conflict::NotDedicated { cell: host.id, cpu });
                }
                if host.pinned.contains(&cpu) || !claimed.insert(cpu) {
                    return Err(Conflict::InUse { cell: host.id, cpu });
                }
            }
        }
        self.count(fitted);
        Ok(())
    }

    /// Counts the fit of a guest that is already on the host. Cells and CPUs that the host no longer offers are
    /// tolerated, so that a changed configuration does not hide other guests. A CPU that is in another cell now (the
    /// firmware may divide a socket differently) is in use there.
    pub fn count(&mut self, fitted: &Fitted) {
        for cell in &fitted.cells {
            for host in &mut self.cells {
                if host.id == cell.host {
                    add(host, cell);
                } else {
                    let moved = cell.host_cpus().filter(|cpu| host.dedicated.contains(cpu));
                    host.pinned.extend(moved);
                }
            }
        }
    }

    /// Stops counting a fit as used.
    ///
    /// # Errors
    /// The first conflict; the host is then unchanged.
    pub fn release(&mut self, fitted: &Fitted) -> Result<(), Conflict> {
        for cell in &fitted.cells {
            let host = self.cell(cell.host).ok_or(Conflict::Cell(cell.host))?;
            if let Some(cpu) = cell.host_cpus().find(|cpu| !host.pinned.contains(cpu)) {
                return Err(Conflict::NotInUse { cell: host.id, cpu });
            }
        }
        for cell in &fitted.cells {
            if let Some(host) = self.cells.iter_mut().find(|host| host.id == cell.host) {
                remove(host, cell);
            }
        }
        Ok(())
    }
}

fn add(host: &mut HostCell, cell: &FittedCell) {
    host.pinned.extend(cell.host_cpus());
    host.shared_used = host.shared_used.saturating_add(cell.shared.len() as u64);
    host.memory_used_mb = host.memory_used_mb.saturating_add(cell.memory_mb);
    if let Some(pages) = host.pages.iter_mut().find(|pages| Some(pages.size_kib) == cell.page_kib) {
        pages.used = pages.used.saturating_add(cell.pages());
    }
}

fn remove(host: &mut HostCell, cell: &FittedCell) {
    for cpu in cell.host_cpus() {
        host.pinned.remove(&cpu);
    }
    host.shared_used = host.shared_used.saturating_sub(cell.shared.len() as u64);
    host.memory_used_mb = host.memory_used_mb.saturating_sub(cell.memory_mb);
    if let Some(pages) = host.pages.iter_mut().find(|pages| Some(pages.size_kib) == cell.page_kib) {
        pages.used = pages.used.saturating_sub(cell.pages());
    }
}

//! The NUMA cells of hosts, as their agents report them.

use std::collections::BTreeMap;

use kilonova_ids::HostName;
use kilonova_node_api::NumaCell;
use kilonova_store::{Migration, Row, Tx, params};
use kilonova_topology::{Cpus, HostCell, HostTopology, Pages, parse_cpus};

use super::servers::shape;
use crate::Error;

/// Every CPU number of a host is below this bound.
const MOST_CPUS: u32 = 1 << 16;

/// The NUMA cells of a host, as JSON; NULL for a host that reports none.
pub const CELLS: Migration =
    Migration { name: "compute-0780-cells", sql: "ALTER TABLE hosts ADD COLUMN cells TEXT;" };

/// The hosts that offer their CPUs and memory by NUMA cell, each with the epoch of its
/// registration; and, for a host that is configured to do so but does not, the reason.
///
/// The reference to the epoch keeps a controller of the previous version, which does not support
/// cells, from registering a divided host: such a controller increments only the epoch, and its
/// commit fails. Otherwise it would offer the CPUs and memory a second time, on the root. The
/// unique index exists only as the target of this reference: the host's name alone is already
/// unique.
pub const DIVISION: Migration = Migration {
    name: "compute-0860-divided-hosts",
    sql: "
ALTER TABLE hosts ADD COLUMN undivided TEXT;
CREATE UNIQUE INDEX hosts_by_epoch ON hosts (host, epoch);
CREATE TABLE divided_hosts (
    host TEXT NOT NULL PRIMARY KEY,
    epoch BIGINT NOT NULL,
    FOREIGN KEY (host, epoch) REFERENCES hosts (host, epoch)
        ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED
);",
};

kilonova_store::statements! {
    /// The cells of a host, whether it is divided, and the reason if it is not.
    OF_HOST = "SELECT cells, undivided, (SELECT d.epoch FROM divided_hosts d WHERE d.host = hosts.host) AS divided
        FROM hosts WHERE host = ?1";
    /// Records that a host is divided, with the epoch of its registration.
    SET_DIVIDED = "INSERT INTO divided_hosts (host, epoch) VALUES (?1, ?2)
        ON CONFLICT (host) DO UPDATE SET epoch = excluded.epoch";
    /// Records that a host is not divided any more.
    END_DIVISION = "DELETE FROM divided_hosts WHERE host = ?1";
    /// Records why a host is not divided.
    SET_UNDIVIDED = "UPDATE hosts SET undivided = ?2 WHERE host = ?1";
    /// The hosts that are configured to be divided and are not.
    ALL_UNDIVIDED = "SELECT host, undivided FROM hosts WHERE undivided IS NOT NULL ORDER BY host";
    /// Sets the cells of a host.
    SET = "UPDATE hosts SET cells = ?2 WHERE host = ?1";
}

/// Announces [`of_host`].
pub fn expect_of_host(tx: &mut Tx<'_>, host: &HostName) -> Result<(), Error> {
    Ok(tx.expect(OF_HOST, params![host])?)
}

/// The stored cells of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredCells {
    /// As JSON, in the form of [`text`]; `None` if the host reports none.
    pub text: Option<String>,
    /// True if the host offers its CPUs and memory by cell.
    pub divided: bool,
    /// Why the host does not do so, although it is configured to.
    pub undivided: Option<String>,
}

/// The cells of a host; the default if it is unknown. The cells stay unparsed text, so that a
/// registration can replace cells that cannot be read.
///
/// # Errors
/// Store errors only; also for the functions that write.
pub fn of_host(tx: &mut Tx<'_>, host: &HostName) -> Result<StoredCells, Error> {
    let Some(row) = tx.row(OF_HOST, params![host])? else { return Ok(StoredCells::default()) };
    Ok(StoredCells {
        text: row.string_opt("cells")?,
        divided: row.int_opt("divided")?.is_some(),
        undivided: row.string_opt("undivided")?,
    })
}

/// Records the epoch in which a host has registered as divided; `None` for a host that is not
/// divided. Every registration of a divided host must record its epoch.
pub fn set_divided(tx: &mut Tx<'_>, host: &HostName, epoch: Option<i64>) -> Result<(), Error> {
    match epoch {
        Some(epoch) => tx.defer(SET_DIVIDED, params![host, epoch])?,
        None => tx.defer(END_DIVISION, params![host])?,
    }
    Ok(())
}

/// Records why a host is not divided although it is configured to be.
pub fn set_undivided(tx: &mut Tx<'_>, host: &HostName, why: Option<&str>) -> Result<(), Error> {
    Ok(tx.defer(SET_UNDIVIDED, params![host, why])?)
}

/// The hosts that are configured to be divided and are not, each with the reason.
///
/// # Errors
/// Store errors only.
pub fn undivided(tx: &mut Tx<'_>) -> Result<Vec<(HostName, String)>, Error> {
    let one = |row: &Row| Ok((row.host("host")?, row.string("undivided")?));
    tx.rows(ALL_UNDIVIDED, &[])?.iter().map(one).collect()
}

/// The JSON text of cells, as the database stores it.
///
/// # Errors
/// If the cells cannot be written as JSON.
pub fn text(host: &HostName, cells: Option<&[NumaCell]>) -> Result<Option<String>, Error> {
    let text = cells.map(serde_json::to_string).transpose();
    text.map_err(|error| shape(format!("NUMA cells of host {host}: {error}")))
}

/// Records the cells of a host.
pub fn set(tx: &mut Tx<'_>, host: &HostName, text: Option<&str>) -> Result<(), Error> {
    Ok(tx.defer(SET, params![host, text])?)
}

/// The topology of a host without guests.
///
/// # Errors
/// A sentence without a full stop, if the report contradicts itself.
pub fn topology(cells: &[NumaCell]) -> Result<HostTopology, String> {
    let mut topology = HostTopology::default();
    // The numbers of threads and of CPUs that the report may still list. Repetitions count.
    let mut left = (MOST_CPUS as usize, MOST_CPUS as usize);
    for cell in cells {
        topology.cells.push(host_cell(cell, cells, &mut left)?);
    }
    topology.check().map_err(|error| error.to_string())?;
    Ok(topology)
}

/// One cell of the topology. `left` bounds the threads and CPUs of all cells together, and thereby
/// the cost of reading a report.
fn host_cell(
    cell: &NumaCell,
    all: &[NumaCell],
    left: &mut (usize, usize),
) -> Result<HostCell, String> {
    let id = cell.id;
    let list = |what: &str, text: &str| {
        // Agents never send exclusions (`^`). Such a list can cost much work and yield no CPU.
        let parsed = match text.contains('^') {
            true => Err("it has a ^".to_owned()),
            false => parse_cpus(text, MOST_CPUS).map_err(|error| error.to_string()),
        };
        parsed
            .map_err(|why| format!("the {what} CPUs of NUMA cell {id} are not a valid list: {why}"))
    };
    let (shared, dedicated) = (list("shared", &cell.shared)?, list("dedicated", &cell.dedicated)?);
    left.1 = left
        .1
        .checked_sub(shared.len() + dedicated.len())
        .ok_or_else(|| format!("there are more than {MOST_CPUS} CPUs"))?;
    let mut siblings = Vec::with_capacity(cell.cores.len());
    for core in &cell.cores {
        let mut core = list("core's", core)?;
        left.0 = left
            .0
            .checked_sub(core.len())
            .ok_or_else(|| format!("there are more than {MOST_CPUS} threads"))?;
        core.retain(|cpu| shared.contains(cpu) || dedicated.contains(cpu));
        siblings.push(core);
    }
    siblings.retain(|core: &Cpus| !core.is_empty());
    let pages = cell.pages.iter().map(|pages| Pages {
        size_kib: pages.size_kib,
        total: pages.total,
        reserved: pages.reserved,
        used: 0,
    });
    let distances: BTreeMap<u32, u32> =
        all.iter().map(|other| other.id).zip(cell.distances.iter().copied()).collect();
    Ok(HostCell {
        id,
        shared,
        dedicated,
        siblings,
        socket: cell.socket,
        memory_mb: cell.memory_mb,
        pages: pages.collect(),
        distances,
        ..HostCell::default()
    })
}

#[cfg(test)]
mod tests {
    use kilonova_node_api::NumaPages;

    use super::*;

    fn cell(id: u32, shared: &str, dedicated: &str, cores: &[&str]) -> NumaCell {
        NumaCell {
            id,
            shared: shared.into(),
            dedicated: dedicated.into(),
            cores: cores.iter().map(|core| (*core).to_owned()).collect(),
            socket: Some(id),
            memory_mb: 1024,
            pages: vec![NumaPages { size_kib: 4, total: 262_144, reserved: 7 }],
            distances: vec![10, 21],
        }
    }

    #[test]
    fn a_report_becomes_a_topology() {
        let cells = [cell(0, "0", "1-2", &["0,2", "1,3"]), cell(4, "", "4-5", &["4", "5"])];
        let topology = topology(&cells).expect("the report is consistent");
        let first = &topology.cells[0];
        assert_eq!((first.shared.len(), first.dedicated.len()), (1, 2));
        assert_eq!(first.siblings, [Cpus::from([0, 2]), Cpus::from([1])], "no guest may use 3");
        assert_eq!(first.distances, [(0, 10), (4, 21)].into());
        assert_eq!(first.pages[0].free(), 262_137);
        assert_eq!(topology.cells[1].socket, Some(4));
    }

    #[test]
    fn contradictions_are_named() {
        let refused = |cells: &[NumaCell]| topology(cells).expect_err("the report is refused");
        assert_eq!(
            refused(&[cell(0, "0-x", "", &[])]).split(':').next(),
            Some("the shared CPUs of NUMA cell 0 are not a valid list")
        );
        let twice = [cell(0, "0", "", &[]), cell(1, "", "0", &[])];
        assert_eq!(refused(&twice), "CPU 0 is reported twice");
        assert_eq!(
            refused(&[cell(0, "", "", &[]), cell(0, "", "", &[])]),
            "NUMA cell 0 is reported twice"
        );
        let wide: Vec<NumaCell> = (0..1000).map(|id| cell(id, "0-65535", "", &[])).collect();
        assert_eq!(refused(&wide), "there are more than 65536 CPUs");
        let nothing = refused(&[cell(0, "", "", &["0-65535,^0-65535"])]);
        assert!(nothing.ends_with("are not a valid list: it has a ^"), "{nothing}");
        let many = vec!["0-65535"; 1000];
        assert_eq!(refused(&[cell(0, "", "", &many)]), "there are more than 65536 threads");
        assert_eq!(refused(&[cell(0, "0-1", "", &["0", "0,1"])]), "CPU 0 is a thread of two cores");
    }
}

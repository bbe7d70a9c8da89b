//! The NUMA fits of guests: for each guest with a NUMA topology, the cells and CPUs of its host that it
//! uses.
//!
//! A fit belongs to a consumer of the resource ledger. A foreign key with `ON DELETE CASCADE` deletes the fit and its
//! pins together with the consumer. The primary key of `pins` guarantees that no two guests have the same dedicated
//! CPU.
//!
//! A claim first updates the host's row ([`ask_host`]). Two concurrent claims on a host therefore
//! conflict; without the update, each would miss the fit that the other inserts. A release needs no
//! such update: a claim that does not see it only finds less room.

use std::collections::BTreeMap;

use kilonova_ids::{ConsumerId, HostName, ProviderId};
use kilonova_node_api::{GuestNuma, NumaCell};
use kilonova_placement::ledger::cell_provider;
use kilonova_store::{Asked, Migration, Tx, Value, params};
use kilonova_topology::{Fitted, HostTopology};
use serde::de::DeserializeOwned;

use super::cells;
use super::servers::shape;
use crate::Error;

/// The fits of guests, and the dedicated CPUs in use. Placement's table of consumers must exist
/// first.
pub const FITS: Migration = Migration {
    name: "compute-0790-fits",
    sql: "
ALTER TABLE hosts ADD COLUMN topology_revision BIGINT NOT NULL DEFAULT 0;
CREATE TABLE fits (
    consumer_id TEXT NOT NULL PRIMARY KEY REFERENCES consumers (id)
        ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    host TEXT NOT NULL,
    pinned BIGINT NOT NULL,
    fitted TEXT NOT NULL,
    guest TEXT NOT NULL
);
CREATE INDEX fits_by_host ON fits (host);
CREATE TABLE pins (
    host TEXT NOT NULL,
    cpu BIGINT NOT NULL,
    consumer_id TEXT NOT NULL REFERENCES fits (consumer_id) ON DELETE CASCADE ON UPDATE CASCADE,
    PRIMARY KEY (host, cpu)
);
CREATE INDEX pins_by_consumer ON pins (consumer_id);",
};

kilonova_store::statements! {
    /// Prevents other claims on a host until the commit, and reads its cells.
    LOCK = "UPDATE hosts SET topology_revision = topology_revision + 1 WHERE host = ?1
        RETURNING cells";
    /// The fits on a host.
    ON_HOST = "SELECT fitted FROM fits WHERE host = ?1";
    /// One fit.
    OF = "SELECT host, fitted, guest FROM fits WHERE consumer_id = ?1";
    /// Inserts a fit.
    INSERT = "INSERT INTO fits (consumer_id, host, pinned, fitted, guest)
        VALUES (?1, ?2, ?3, ?4, ?5)";
    /// The fits on a host with their consumers.
    OF_CONSUMERS_ON = "SELECT consumer_id, fitted FROM fits WHERE host = ?1 ORDER BY consumer_id";
    /// Inserts the dedicated CPUs of a fit.
    INSERT_PINS = "INSERT INTO pins (host, cpu, consumer_id) VALUES ({}, {}, {})";
    /// Moves a fit, with its dedicated CPUs, to another consumer.
    MOVE = "UPDATE fits SET consumer_id = ?2 WHERE consumer_id = ?1";
    /// The dedicated CPUs in use on a host.
    PINS_ON = "SELECT cpu FROM pins WHERE host = ?1 ORDER BY cpu";
    /// One of the given hosts with dedicated CPUs in use, if there is one.
    PINNED = "SELECT host FROM pins WHERE host IN ({}) LIMIT 1";
}

/// The rules of fits, for the audit.
pub const AUDIT: &[(&str, &str)] = &[
    (
        "a guest has as many dedicated CPUs as its NUMA fit, on its host",
        "SELECT f.consumer_id AS broken FROM fits f WHERE f.pinned <> (
             SELECT COUNT(*) FROM pins p WHERE p.consumer_id = f.consumer_id AND p.host = f.host)
         UNION ALL SELECT p.consumer_id FROM pins p LEFT JOIN fits f
             ON f.consumer_id = p.consumer_id AND f.host = p.host WHERE f.consumer_id IS NULL",
    ),
    (
        "a NUMA fit belongs to a server, on its host or on the destination of its migration, or to a migration, on \
         the host where it holds claims",
        "SELECT f.consumer_id AS broken FROM fits f
         LEFT JOIN consumers c ON c.id = f.consumer_id
         LEFT JOIN servers s ON s.id = f.consumer_id
         LEFT JOIN moves o ON o.open_server = s.id
         LEFT JOIN moves m ON m.id = f.consumer_id
         WHERE c.id IS NULL OR NOT (
             (s.id IS NOT NULL AND (COALESCE(s.host, '') = f.host OR COALESCE(o.dest_host, '') = f.host))
             OR (m.id IS NOT NULL AND COALESCE(m.held_on, '') = f.host))",
    ),
];

/// The rule of [`misplaced`], and the rows that it examines: the fits on divided hosts, each with
/// its consumer's allocations of dedicated CPUs.
pub const CELLS_AUDIT: (&str, &str) = (
    "a guest has its dedicated CPUs allocated at the NUMA cells where they are, if its host offers them by cell",
    "SELECT f.consumer_id, h.root_provider, f.fitted, a.provider_id, a.used FROM divided_hosts d
     JOIN hosts h ON h.host = d.host JOIN fits f ON f.host = d.host
     LEFT JOIN allocations a ON a.consumer_id = f.consumer_id AND a.class = 'PCPU'
     ORDER BY f.consumer_id",
);

/// The consumers that use more dedicated CPUs of a cell than they have allocated there, for the
/// audit.
///
/// # Errors
/// Store errors, and fits that cannot be read.
pub fn misplaced(tx: &mut Tx<'_>) -> Result<Vec<String>, Error> {
    let rows = tx.rows(CELLS_AUDIT.1, params![])?;
    let mut broken = Vec::new();
    for rows in
        rows.chunk_by(|one, next| one.text("consumer_id").ok() == next.text("consumer_id").ok())
    {
        let Some(first) = rows.first() else { continue };
        let root = first.id("root_provider")?;
        let fitted: Fitted = read(first.text("fitted")?)?;
        let mut needed: BTreeMap<ProviderId, i64> = BTreeMap::new();
        for cell in &fitted.cells {
            let cpus = i64::try_from(cell.host_cpus().count()).unwrap_or(i64::MAX);
            *needed.entry(cell_provider(root, cell.host)).or_default() += cpus;
        }
        for row in rows {
            if let (Some(provider), Some(used)) = (row.id_opt("provider_id")?, row.int_opt("used")?)
                && let Some(needed) = needed.get_mut(&provider)
            {
                *needed -= used;
            }
        }
        if needed.values().any(|missing| *missing > 0) {
            broken.push(first.string("consumer_id")?);
        }
    }
    Ok(broken)
}

/// A host whose topology is being read.
#[must_use = "`host` returns the topology"]
pub struct AskedHost {
    cells: Asked,
    fits: Asked,
}

/// Prevents other claims of topologies on a host until the commit, and asks for its topology.
///
/// # Errors
/// Store errors only; also for the functions below.
pub fn ask_host(tx: &mut Tx<'_>, host: &HostName) -> Result<AskedHost, Error> {
    let cells = tx.ask(LOCK, params![host])?;
    Ok(AskedHost { cells, fits: tx.ask(ON_HOST, params![host])? })
}

/// The topology of a host, less the fits of its guests; `None` if the host reports no cells, or if
/// its cells cannot be read.
pub fn host(tx: &mut Tx<'_>, asked: AskedHost) -> Result<Option<HostTopology>, Error> {
    let row = tx.answer_row(asked.cells)?;
    let fits = tx.answer(asked.fits)?;
    let text = row.as_ref().map(|row| row.text_opt("cells")).transpose()?.flatten();
    let cells: Option<Vec<NumaCell>> = text.and_then(|text| serde_json::from_str(text).ok());
    let Some(Ok(mut topology)) = cells.map(|cells| cells::topology(&cells)) else {
        return Ok(None);
    };
    for row in &fits {
        topology.count(&read(row.text("fitted")?)?);
    }
    Ok(Some(topology))
}

/// The topology of a guest on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fit {
    /// The host.
    pub host: HostName,
    /// The cells and CPUs.
    pub fitted: Fitted,
    /// The NUMA part of the guest's document.
    pub guest: GuestNuma,
}

/// Records the fit of a consumer, which must have none.
pub fn insert(tx: &mut Tx<'_>, consumer: ConsumerId, fit: &Fit) -> Result<(), Error> {
    let text = |error: serde_json::Error| shape(format!("fit of {consumer}: {error}"));
    let fitted = serde_json::to_string(&fit.fitted).map_err(text)?;
    let guest = serde_json::to_string(&fit.guest).map_err(text)?;
    let cpus = fit.fitted.cells.iter().flat_map(|cell| cell.host_cpus());
    let pins: Vec<[Value; 3]> = cpus
        .map(|cpu| [Value::from(&fit.host), i64::from(cpu).into(), Value::from(consumer)])
        .collect();
    let pinned = i64::try_from(pins.len()).unwrap_or(i64::MAX);
    tx.defer(INSERT, params![consumer, &fit.host, pinned, fitted, guest])?;
    Ok(tx.defer_rows(INSERT_PINS, &pins)?)
}

/// The fit of a consumer, if it has one.
pub fn of(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<Option<Fit>, Error> {
    let Some(row) = tx.row(OF, params![consumer])? else { return Ok(None) };
    let (fitted, guest) = (read(row.text("fitted")?)?, read(row.text("guest")?)?);
    Ok(Some(Fit { host: row.host("host")?, fitted, guest }))
}

/// The fits on a host, by consumer.
pub fn fits_on(tx: &mut Tx<'_>, host: &HostName) -> Result<Vec<(ConsumerId, Fitted)>, Error> {
    let rows = tx.rows(OF_CONSUMERS_ON, params![host])?;
    rows.iter().map(|row| Ok((row.id("consumer_id")?, read(row.text("fitted")?)?))).collect()
}

/// Moves the fit of a consumer to another one, which must have none. The other consumer must get
/// its allocations after this call and before the commit.
pub fn hand_over(tx: &mut Tx<'_>, from: ConsumerId, to: ConsumerId) -> Result<(), Error> {
    Ok(tx.defer(MOVE, params![from, to])?)
}

/// The dedicated CPUs in use on a host.
pub fn pins_on(tx: &mut Tx<'_>, host: &HostName) -> Result<Vec<u32>, Error> {
    let rows = tx.rows(PINS_ON, params![host])?;
    let cpu = |cpu: i64| u32::try_from(cpu).map_err(|_| shape(format!("CPU {cpu} of {host}")));
    rows.iter().map(|row| cpu(row.int("cpu")?)).collect()
}

/// True if dedicated CPUs of one of these hosts are in use.
pub fn are_pinned(tx: &mut Tx<'_>, hosts: &[HostName]) -> Result<bool, Error> {
    let hosts: Vec<Value> = hosts.iter().map(Value::from).collect();
    let asked = tx.ask_list(PINNED, &hosts)?;
    Ok(!tx.answers(asked)?.is_empty())
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| shape(format!("a fit: {error}")))
}

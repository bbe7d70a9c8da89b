//! The hosts as the scheduler and the agents' API need them; `hosts` has the operators' view.

use jiff::{SignedDuration, Timestamp};
use kilonova_ids::{HostId, HostName, ProviderId};
use kilonova_store::{Asked, Row, Tx, Value, params};

use super::hosts::is_enabled;
use crate::Error;

/// The columns of a [`HostRow`].
macro_rules! columns {
    () => {
        "number, revision, host, id, root_provider, epoch, generation, status, forced_down,
        availability_zone, last_seen, hypervisor_type, hypervisor_version, vcpus, memory_mb,
        reported_at"
    };
}
pub(super) use columns;

/// Selects [`HostRow`]s.
macro_rules! select {
    () => {
        concat!("SELECT ", columns!(), " FROM hosts")
    };
}

/// A list of parameters for [`TOGETHER`] hosts.
macro_rules! hosts {
    () => {
        "(?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20,
            ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35, ?36, ?37,
            ?38, ?39, ?40, ?41, ?42, ?43, ?44, ?45, ?46, ?47, ?48, ?49, ?50, ?51)"
    };
}

kilonova_store::statements! {
    /// Every host.
    ALL = select!();
    /// One host.
    ONE = concat!(select!(), " WHERE host = ?1");
    /// The epoch of a host.
    EPOCH = "SELECT epoch FROM hosts WHERE host = ?1";
    /// Updates `last_seen` of some hosts, unless another controller has stored a later time.
    SEEN = concat!(
        "UPDATE hosts SET last_seen = ?1 WHERE last_seen < ?1 AND host IN ",
        hosts!(),
        " RETURNING host"
    );
    /// Updates the clock skew.
    SKEW = "UPDATE hosts SET clock_skew = ?2 WHERE host = ?1";
}

/// Statements for PostgreSQL only.
pub const POSTGRES_STATEMENTS: &[(&str, &str)] = &[("PG_SEEN", PG_SEEN)];
/// [`SEEN`] without the rows that another transaction is changing: while waiting for one of them, the statement would
/// keep the other rows locked, and boots need those. The next round updates the skipped rows.
const PG_SEEN: &str = concat!(
    "UPDATE hosts SET last_seen = ?1 WHERE host IN (SELECT host FROM hosts
        WHERE last_seen < ?1 AND host IN ",
    hosts!(),
    " FOR NO KEY UPDATE SKIP LOCKED) RETURNING host"
);

/// The part of a host's row that the fleet needs.
#[derive(Debug, Clone)]
pub struct HostRow {
    /// The version of the row, which includes the epoch of the host's session.
    pub version: Version,
    /// Name.
    pub host: HostName,
    /// Id, as the hypervisors API shows it.
    pub id: HostId,
    /// Root of its provider tree.
    pub root: ProviderId,
    /// The newest document generation.
    pub generation: i64,
    /// True if its compute service is enabled.
    pub enabled: bool,
    /// True if an operator forced it down.
    pub forced_down: bool,
    /// Availability zone.
    pub availability_zone: String,
    /// Its last heartbeat.
    pub last_seen: Timestamp,
    /// When it last sent a registration; 1970 if unknown.
    pub reported_at: Timestamp,
    /// Properties for filters.
    pub about: About,
}

/// Orders the versions of a host's row by their commits, so that the copy in memory only moves forward.
///
/// Every write to a column that is copied into memory increments the revision, except for the document generation and
/// the times, which only grow. The row of a host that was deleted and registered again has a greater number.
/// Controllers of earlier builds do not change the revision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The number of the row; a later insert has a greater one.
    pub number: i64,
    /// The number of changes to this row.
    pub revision: i64,
    /// The epoch, which controllers of earlier builds increment without the revision.
    pub epoch: i64,
}

/// The properties of a host that filters use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// `QEMU` or `simulated`.
    pub hypervisor_type: String,
    /// In Nova's numeric form.
    pub hypervisor_version: i64,
    /// Logical processors.
    pub vcpus: i64,
    /// Memory in MiB.
    pub memory_mb: i64,
}

/// Every host.
///
/// # Errors
/// Store errors only.
pub fn all(tx: &mut Tx<'_>) -> Result<Vec<HostRow>, Error> {
    tx.rows(ALL, params![])?.iter().map(host).collect()
}

/// One host.
///
/// # Errors
/// Store errors only.
pub fn one(tx: &mut Tx<'_>, name: &HostName) -> Result<Option<HostRow>, Error> {
    tx.row(ONE, params![name])?.as_ref().map(host).transpose()
}

/// Some hosts, each with its row if it has one. The statements are sent to the database together.
///
/// # Errors
/// Store errors only.
pub fn some(
    tx: &mut Tx<'_>,
    names: &[HostName],
) -> Result<Vec<(HostName, Option<HostRow>)>, Error> {
    let mut asked = Vec::with_capacity(names.len());
    for name in names {
        asked.push(tx.ask(ONE, params![name])?);
    }
    let mut rows = Vec::with_capacity(names.len());
    for (name, asked) in names.iter().zip(asked) {
        rows.push((name.clone(), tx.answer(asked)?.first().map(host).transpose()?));
    }
    Ok(rows)
}

pub(super) fn host(row: &Row) -> Result<HostRow, Error> {
    Ok(HostRow {
        version: Version {
            number: row.int("number")?,
            revision: row.int("revision")?,
            epoch: row.int("epoch")?,
        },
        host: row.host("host")?,
        id: row.id("id")?,
        root: row.id("root_provider")?,
        generation: row.int("generation")?,
        enabled: is_enabled(row)?,
        forced_down: row.bool("forced_down")?,
        availability_zone: row.string("availability_zone")?,
        last_seen: row.time("last_seen")?,
        reported_at: row.time("reported_at")?,
        about: About {
            hypervisor_type: row.string("hypervisor_type")?,
            hypervisor_version: row.int("hypervisor_version")?,
            vcpus: row.int("vcpus")?,
            memory_mb: row.int("memory_mb")?,
        },
    })
}

/// The epoch of a host, if it has ever registered.
///
/// # Errors
/// Store errors only.
pub fn epoch(tx: &mut Tx<'_>, host: &HostName) -> Result<Option<i64>, Error> {
    tx.row(EPOCH, params![host])?.map(|row| row.int("epoch")).transpose().map_err(Error::from)
}

/// Announces [`epoch`].
///
/// # Errors
/// Store errors only.
pub fn expect_epoch(tx: &mut Tx<'_>, host: &HostName) -> Result<(), Error> {
    Ok(tx.expect(EPOCH, params![host])?)
}

/// Maximum number of hosts in one statement.
pub const TOGETHER: usize = 50;

/// Asks to update `last_seen` of at most [`TOGETHER`] hosts; [`seen`] reads the answer.
///
/// # Errors
/// Store errors only.
pub fn ask_seen(
    tx: &mut Tx<'_>,
    hosts: &[HostName],
    at: Timestamp,
) -> Result<Option<Asked>, Error> {
    let Some(last) = hosts.last() else { return Ok(None) };
    let mut params = vec![Value::from(at)];
    params.extend(hosts.iter().map(Value::from));
    params.resize(TOGETHER + 1, Value::from(last));
    Ok(Some(tx.ask(if tx.is_postgres() { PG_SEEN } else { SEEN }, &params)?))
}

/// The hosts whose rows were updated. Rows that another transaction is changing are skipped, as are
/// rows with a later time from another controller.
///
/// # Errors
/// Store errors only.
pub fn seen(tx: &mut Tx<'_>, asked: Asked) -> Result<Vec<HostName>, Error> {
    Ok(tx.answer(asked)?.iter().map(|row| row.host("host")).collect::<Result<_, _>>()?)
}

/// Stores the clock skew of some hosts.
///
/// # Errors
/// Store errors only.
pub fn skewed(tx: &mut Tx<'_>, hosts: &[(HostName, SignedDuration)]) -> Result<(), Error> {
    for (host, skew) in hosts {
        tx.defer(SKEW, params![host, *skew])?;
    }
    Ok(())
}

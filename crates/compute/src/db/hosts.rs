//! Compute hosts as operators see them: services and hypervisors.
//!
//! A row stays when its node is gone. The epoch in it fences an older process of the same host; it
//! must only ever grow.

use kilonova_ids::{HostId, ProviderId};
use kilonova_store::{Migration, Row, Tx, params};

use crate::Error;

/// Host names are the same in upper and lower case.
pub const NAMES: Migration = Migration {
    name: "compute-0012-host-names",
    sql: "CREATE INDEX hosts_name ON hosts (LOWER(host));",
};

kilonova_store::statements! {
    /// Names that are this one in lower case.
    SPELLINGS = "SELECT host FROM hosts WHERE LOWER(host) = ?1";
    /// Every host, oldest first.
    ALL = "SELECT number, id, host, root_provider, hypervisor_type, hypervisor_version, host_ip,
        vcpus, memory_mb, disk_gb, epoch, generation, status, disabled_reason, forced_down,
        last_seen, availability_zone, created_at, updated_at, reported_at, clock_skew
        FROM hosts ORDER BY number";
    /// One host.
    BY_NAME = "SELECT number, id, host, root_provider, hypervisor_type, hypervisor_version, host_ip,
        vcpus, memory_mb, disk_gb, epoch, generation, status, disabled_reason, forced_down,
        last_seen, availability_zone, created_at, updated_at, reported_at, clock_skew
        FROM hosts WHERE host = ?1";
    /// A registration: a new row, or the next epoch of the one that is there.
    REGISTER = "INSERT INTO hosts (id, host, root_provider, hypervisor_type, hypervisor_version,
        host_ip, vcpus, memory_mb, disk_gb, epoch, generation, status, forced_down, last_seen,
        reported_at, created_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 1, 1, 'enabled', 0, ?10, ?10, ?10)
        ON CONFLICT (host) DO UPDATE SET epoch = hosts.epoch + 1,
            root_provider = excluded.root_provider,
            hypervisor_type = excluded.hypervisor_type,
            hypervisor_version = excluded.hypervisor_version, host_ip = excluded.host_ip,
            vcpus = excluded.vcpus, memory_mb = excluded.memory_mb, disk_gb = excluded.disk_gb,
            last_seen = excluded.last_seen, reported_at = excluded.reported_at
        RETURNING epoch";
    /// It goes.
    DELETE = "DELETE FROM hosts WHERE host = ?1";
    /// An operator's word on it.
    SET_STATUS = "UPDATE hosts SET status = ?2, disabled_reason = ?3, forced_down = ?4,
        updated_at = ?5 WHERE host = ?1";
}

/// Names of hosts that are this one in lower case.
///
/// # Errors
/// The database's.
pub fn spellings(tx: &mut Tx<'_>, host: &str) -> Result<Vec<String>, kilonova_store::Error> {
    let rows = tx.rows(SPELLINGS, params![host.to_ascii_lowercase()])?;
    rows.iter().map(|row| row.string(0)).collect()
}

/// A compute host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Integer id for clients below 2.53; the database gives it.
    pub number: i64,
    /// Id of its service.
    pub id: HostId,
    /// Name.
    pub host: String,
    /// Root of its provider tree; also the hypervisor's id, as Nova has it.
    pub root_provider: ProviderId,
    /// `QEMU`, or `simulated`.
    pub hypervisor_type: String,
    /// As Nova packs it.
    pub hypervisor_version: i64,
    /// Address.
    pub host_ip: String,
    /// Logical processors.
    pub vcpus: i64,
    /// Memory, MiB.
    pub memory_mb: i64,
    /// Disk for guests, GiB.
    pub disk_gb: i64,
    /// Registrations so far.
    pub epoch: i64,
    /// Newest document.
    pub generation: i64,
    /// Whether it may take new servers.
    pub enabled: bool,
    /// Why not.
    pub disabled_reason: Option<String>,
    /// Whether an operator declared it dead.
    pub forced_down: bool,
    /// Microseconds since 1970.
    pub last_seen: i64,
    /// Zone.
    pub availability_zone: String,
    /// Microseconds since 1970.
    pub created_at: i64,
    /// Microseconds since 1970.
    pub updated_at: Option<i64>,
    /// When it last said what it has, microseconds since 1970.
    pub reported_at: i64,
    /// Microseconds by which its clock is ahead of ours, where it has told.
    pub clock_skew: Option<i64>,
}

/// What a node says of its host when it registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewHost {
    /// Used the first time only.
    pub id: HostId,
    /// Name.
    pub host: String,
    /// Used the first time only.
    pub root_provider: ProviderId,
    /// `QEMU`, or `simulated`.
    pub hypervisor_type: String,
    /// As Nova packs it.
    pub hypervisor_version: i64,
    /// Address.
    pub host_ip: String,
    /// Logical processors.
    pub vcpus: i64,
    /// Memory, MiB.
    pub memory_mb: i64,
    /// Disk for guests, GiB.
    pub disk_gb: i64,
}

fn host(row: &Row) -> Result<Host, Error> {
    Ok(Host {
        number: row.int(0)?,
        id: row.id(1)?,
        host: row.string(2)?,
        root_provider: row.id(3)?,
        hypervisor_type: row.string(4)?,
        hypervisor_version: row.int(5)?,
        host_ip: row.string(6)?,
        vcpus: row.int(7)?,
        memory_mb: row.int(8)?,
        disk_gb: row.int(9)?,
        epoch: row.int(10)?,
        generation: row.int(11)?,
        enabled: row.text(12)? == "enabled",
        disabled_reason: row.string_opt(13)?,
        forced_down: row.bool(14)?,
        last_seen: row.int(15)?,
        availability_zone: row.string(16)?,
        created_at: row.int(17)?,
        updated_at: row.int_opt(18)?,
        reported_at: row.int(19)?,
        clock_skew: row.int_opt(20)?,
    })
}

/// Every host, oldest first.
///
/// # Errors
/// The database's; so for all functions here.
pub fn all(tx: &mut Tx<'_>) -> Result<Vec<Host>, Error> {
    tx.rows(ALL, params![])?.iter().map(host).collect()
}

/// One host.
pub fn by_name(tx: &mut Tx<'_>, name: &str) -> Result<Option<Host>, Error> {
    tx.row(BY_NAME, params![name])?.as_ref().map(host).transpose()
}

/// Takes a registration down and returns the host's new epoch.
pub fn register(tx: &mut Tx<'_>, new: &NewHost, now: i64) -> Result<i64, Error> {
    let row = tx.row(
        REGISTER,
        params![
            new.id,
            &new.host,
            new.root_provider,
            &new.hypervisor_type,
            new.hypervisor_version,
            &new.host_ip,
            new.vcpus,
            new.memory_mb,
            new.disk_gb,
            now,
        ],
    )?;
    Ok(row.map_or(Ok(1), |row| row.int(0))?)
}

/// Writes what an operator says of the host: status, reason and `forced_down`.
pub fn set_status(tx: &mut Tx<'_>, host: &Host, now: i64) -> Result<(), Error> {
    let status = if host.enabled { "enabled" } else { "disabled" };
    tx.execute(
        SET_STATUS,
        params![&host.host, status, host.disabled_reason.clone(), host.forced_down, now],
    )?;
    Ok(())
}

/// Removes a host's row.
pub fn delete(tx: &mut Tx<'_>, name: &str) -> Result<(), Error> {
    tx.execute(DELETE, params![name])?;
    Ok(())
}

//! Compute hosts as operators see them: services and hypervisors.
//!
//! A row outlives its agent. The epoch in it fences older processes of the same host and must only
//! ever increase.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use kilonova_changes::Topic;
use kilonova_ids::{HostId, HostName, ProviderId};
use kilonova_node_api::Attempt;
use kilonova_store::{Migration, Row, Tx, params};

use super::fleet::{self, HostRow, columns};
use super::servers::shape;
use crate::Error;

/// The index for host names, which are case-insensitive.
pub const NAMES: Migration = Migration {
    name: "compute-0012-host-names",
    sql: "CREATE INDEX hosts_name ON hosts (LOWER(host));",
};

/// The registration attempt that gave a host its epoch.
pub const ATTEMPTS: Migration = Migration {
    name: "compute-0013-attempts",
    sql: "
ALTER TABLE hosts ADD COLUMN agent TEXT;
ALTER TABLE hosts ADD COLUMN attempt BIGINT;",
};

/// Numbers that order the versions of the hosts' rows and of the aggregates.
pub const REVISIONS: Migration = Migration {
    name: "compute-0420-revisions",
    sql: "
ALTER TABLE hosts ADD COLUMN revision BIGINT NOT NULL DEFAULT 0;
CREATE TABLE aggregates_revision (revision BIGINT NOT NULL PRIMARY KEY);
INSERT INTO aggregates_revision (revision) VALUES (0);",
};

/// The physical networks between which a host can route.
pub const GATEWAYS: Migration =
    Migration { name: "compute-0710-gateways", sql: "ALTER TABLE hosts ADD COLUMN routed TEXT;" };

/// The version of a host's agent, and the epoch in which it was reported: an earlier version of the controller
/// registers a host without writing the version.
pub const VERSIONS: Migration = Migration {
    name: "compute-0850-agent-versions",
    sql: "
ALTER TABLE hosts ADD COLUMN agent_version TEXT;
ALTER TABLE hosts ADD COLUMN agent_version_epoch BIGINT;",
};

/// The last epochs of deleted hosts.
pub const DELETED_HOSTS: Migration = Migration {
    name: "compute-0901-deleted-hosts",
    sql: "
CREATE TABLE deleted_hosts (
    host TEXT PRIMARY KEY,
    epoch BIGINT NOT NULL
);
",
};

/// Selects [`Host`]s.
macro_rules! select {
    () => {
        "SELECT number, revision, id, host, root_provider, hypervisor_type, hypervisor_version, host_ip,
        vcpus, memory_mb, disk_gb, epoch, generation, status, disabled_reason, forced_down,
        last_seen, availability_zone, created_at, updated_at, reported_at, clock_skew,
        agent, attempt, routed, agent_version, agent_version_epoch FROM hosts"
    };
}

/// The epoch after the last one of a host that was deleted, or the first.
macro_rules! next_epoch {
    () => {
        "COALESCE((SELECT epoch FROM deleted_hosts WHERE host = ?2), 0) + 1"
    };
}

kilonova_store::statements! {
    /// The host names that equal a name, ignoring case.
    SPELLINGS = "SELECT host FROM hosts WHERE LOWER(host) = ?1";
    /// Every host, oldest first.
    ALL = concat!(select!(), " ORDER BY number");
    /// One host.
    BY_NAME = concat!(select!(), " WHERE host = ?1");
    /// The host whose compute service has this id.
    BY_ID = concat!(select!(), " WHERE id = ?1");
    /// The host with this number.
    BY_NUMBER = concat!(select!(), " WHERE number = ?1");
    /// The host with this root provider.
    BY_ROOT = concat!(select!(), " WHERE root_provider = ?1");
    /// Registers a host: inserts a row, or increments the epoch of the existing one. A host that was
    /// deleted continues after its last epoch, so that no session from before its deletion is valid.
    REGISTER = concat!("INSERT INTO hosts (id, host, root_provider, hypervisor_type, hypervisor_version,
        host_ip, vcpus, memory_mb, disk_gb, epoch, generation, status, forced_down, last_seen,
        reported_at, created_at, agent, attempt, agent_version, agent_version_epoch)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ", next_epoch!(), ", 1, 'enabled', 0, ?10, ?10, ?10, ?11, ?12, ?13, ", next_epoch!(), ")
        ON CONFLICT (host) DO UPDATE SET epoch = hosts.epoch + 1,
            revision = hosts.revision + 1,
            root_provider = excluded.root_provider,
            hypervisor_type = excluded.hypervisor_type,
            hypervisor_version = excluded.hypervisor_version, host_ip = excluded.host_ip,
            vcpus = excluded.vcpus, memory_mb = excluded.memory_mb, disk_gb = excluded.disk_gb,
            last_seen = excluded.last_seen, reported_at = excluded.reported_at,
            agent = excluded.agent, attempt = excluded.attempt, registers_at = 0,
            agent_version = excluded.agent_version, agent_version_epoch = hosts.epoch + 1
        RETURNING ", columns!());
    /// Sets the physical networks between which a host can route.
    SET_ROUTED = "UPDATE hosts SET routed = ?2 WHERE host = ?1";
    /// The hosts that can route.
    GATEWAYS_ALL = "SELECT host, routed, status, forced_down, last_seen FROM hosts
        WHERE routed IS NOT NULL ORDER BY number";
    /// One host, if it can route.
    GATEWAY = "SELECT host, routed, status, forced_down, last_seen FROM hosts
        WHERE host = ?1 AND routed IS NOT NULL";
    /// Keeps the epoch of a host that is about to be deleted.
    KEEP_EPOCH = "INSERT INTO deleted_hosts (host, epoch) SELECT host, epoch FROM hosts WHERE host = ?1
        ON CONFLICT (host) DO UPDATE SET epoch = excluded.epoch WHERE deleted_hosts.epoch < excluded.epoch";
    /// Deletes a host.
    DELETE = "DELETE FROM hosts WHERE host = ?1";
    /// Writes the operator's settings.
    SET_STATUS = "UPDATE hosts SET status = ?2, disabled_reason = ?3, forced_down = ?4,
        updated_at = ?5, revision = revision + 1 WHERE host = ?1";
    /// Records that something about a host has changed.
    TOUCH = "UPDATE hosts SET revision = revision + 1 WHERE host = ?1";
}

/// The host names that equal this name, ignoring case.
///
/// # Errors
/// Store errors only.
pub fn spellings(tx: &mut Tx<'_>, host: &HostName) -> Result<Vec<HostName>, kilonova_store::Error> {
    let rows = tx.rows(SPELLINGS, params![host.to_ascii_lowercase()])?;
    rows.iter().map(|row| row.host("host")).collect()
}

/// A compute host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Integer id for clients before 2.53; assigned by the database.
    pub number: i64,
    /// The number of changes to its row ([`super::fleet::Version`]).
    pub revision: i64,
    /// Id of its compute service.
    pub id: HostId,
    /// Name.
    pub host: HostName,
    /// Root of its provider tree; also the hypervisor's id, as in Nova.
    pub root_provider: ProviderId,
    /// `QEMU` or `simulated`.
    pub hypervisor_type: String,
    /// In Nova's numeric form.
    pub hypervisor_version: i64,
    /// IP address.
    pub host_ip: String,
    /// Logical processors.
    pub vcpus: i64,
    /// Memory in MiB.
    pub memory_mb: i64,
    /// Disk space for guests in GiB.
    pub disk_gb: i64,
    /// Number of registrations.
    pub epoch: i64,
    /// The newest document generation.
    pub generation: i64,
    /// True if its compute service is enabled.
    pub enabled: bool,
    /// The reason if it is disabled.
    pub disabled_reason: Option<String>,
    /// True if an operator forced it down.
    pub forced_down: bool,
    /// Its last heartbeat.
    pub last_seen: Timestamp,
    /// Availability zone.
    pub availability_zone: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// When it last sent a registration.
    pub reported_at: Timestamp,
    /// How far its clock is ahead of ours, if known.
    pub clock_skew: Option<SignedDuration>,
    /// The attempt that gave it its epoch, if its agent numbers them.
    pub attempt: Option<Attempt>,
    /// The physical networks between which it can route, as [`routed`] joins them; `None` if it cannot.
    pub routed: Option<String>,
    /// The version of its agent, if its last registration reported it.
    pub agent_version: Option<String>,
}

impl Host {
    /// True if its agent has already registered with this attempt or a later one.
    pub fn has_passed(&self, attempt: Attempt) -> bool {
        self.attempt
            .is_some_and(|last| last.agent == attempt.agent && last.number >= attempt.number)
    }
}

/// The data of a registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewHost {
    /// Used at the first registration only.
    pub id: HostId,
    /// Name.
    pub host: HostName,
    /// Used at the first registration only.
    pub root_provider: ProviderId,
    /// `QEMU` or `simulated`.
    pub hypervisor_type: String,
    /// In Nova's numeric form.
    pub hypervisor_version: i64,
    /// IP address.
    pub host_ip: String,
    /// Logical processors.
    pub vcpus: i64,
    /// Memory in MiB.
    pub memory_mb: i64,
    /// Disk space for guests in GiB.
    pub disk_gb: i64,
    /// The version of its agent.
    pub agent_version: Option<String>,
    /// The attempt of its agent.
    pub attempt: Option<Attempt>,
}

/// True if the compute service of a host is enabled, according to the column `status`.
pub(super) fn is_enabled(row: &Row) -> Result<bool, Error> {
    match row.text("status")? {
        "enabled" => Ok(true),
        "disabled" => Ok(false),
        other => Err(shape(format!("unknown status {other:?} of a host"))),
    }
}

fn attempt(row: &Row) -> Result<Option<Attempt>, Error> {
    let (Some(agent), Some(number)) = (row.text_opt("agent")?, row.int_opt("attempt")?) else {
        return Ok(None);
    };
    let agent = agent.parse().map_err(|_| shape(format!("invalid agent id {agent:?}")))?;
    Ok(Some(Attempt { agent, number }))
}

/// The version that the registration of the current epoch wrote.
fn agent_version(row: &Row) -> Result<Option<String>, Error> {
    let epoch = row.int("epoch")?;
    let is_present = row.int_opt("agent_version_epoch")? == Some(epoch);
    Ok(row.string_opt("agent_version")?.filter(|_| is_present))
}

fn host(row: &Row) -> Result<Host, Error> {
    Ok(Host {
        number: row.int("number")?,
        revision: row.int("revision")?,
        id: row.id("id")?,
        host: row.host("host")?,
        root_provider: row.id("root_provider")?,
        hypervisor_type: row.string("hypervisor_type")?,
        hypervisor_version: row.int("hypervisor_version")?,
        host_ip: row.string("host_ip")?,
        vcpus: row.int("vcpus")?,
        memory_mb: row.int("memory_mb")?,
        disk_gb: row.int("disk_gb")?,
        epoch: row.int("epoch")?,
        generation: row.int("generation")?,
        enabled: is_enabled(row)?,
        disabled_reason: row.string_opt("disabled_reason")?,
        forced_down: row.bool("forced_down")?,
        last_seen: row.time("last_seen")?,
        availability_zone: row.string("availability_zone")?,
        created_at: row.time("created_at")?,
        updated_at: row.time_opt("updated_at")?,
        reported_at: row.time("reported_at")?,
        clock_skew: row.duration_opt("clock_skew")?,
        attempt: attempt(row)?,
        routed: row.string_opt("routed")?,
        agent_version: agent_version(row)?,
    })
}

/// Every host, oldest first.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn all(tx: &mut Tx<'_>) -> Result<Vec<Host>, Error> {
    tx.rows(ALL, params![])?.iter().map(host).collect()
}

/// Announces [`by_name`].
pub fn expect_by_name(tx: &mut Tx<'_>, name: &HostName) -> Result<(), Error> {
    Ok(tx.expect(BY_NAME, params![name])?)
}

/// One host.
pub fn by_name(tx: &mut Tx<'_>, name: &HostName) -> Result<Option<Host>, Error> {
    tx.row(BY_NAME, params![name])?.as_ref().map(host).transpose()
}

/// The host whose compute service has this id.
pub fn by_id(tx: &mut Tx<'_>, id: HostId) -> Result<Option<Host>, Error> {
    tx.row(BY_ID, params![id])?.as_ref().map(host).transpose()
}

/// The host with this number ([`Host::number`]).
pub fn by_number(tx: &mut Tx<'_>, number: i64) -> Result<Option<Host>, Error> {
    tx.row(BY_NUMBER, params![number])?.as_ref().map(host).transpose()
}

/// The host with this root provider.
pub fn by_root(tx: &mut Tx<'_>, root: ProviderId) -> Result<Option<Host>, Error> {
    tx.row(BY_ROOT, params![root])?.as_ref().map(host).transpose()
}

/// Records a registration and returns the host's row with its new epoch.
pub fn register(tx: &mut Tx<'_>, new: &NewHost, now: Timestamp) -> Result<HostRow, Error> {
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
            new.attempt.map(|attempt| attempt.agent.to_string()),
            new.attempt.map(|attempt| attempt.number),
            new.agent_version.as_deref(),
        ],
    )?;
    changed(tx, &new.host)?;
    let row = row.ok_or_else(|| shape(format!("host {} was not registered", new.host)))?;
    fleet::host(&row)
}

/// Writes the operator's settings of a host that was read in this transaction: status, reason and
/// `forced_down`. Updates its revision.
pub fn set_status(tx: &mut Tx<'_>, host: &mut Host, now: Timestamp) -> Result<(), Error> {
    let status = if host.enabled { "enabled" } else { "disabled" };
    tx.defer(
        SET_STATUS,
        params![&host.host, status, host.disabled_reason.clone(), host.forced_down, now],
    )?;
    host.revision += 1;
    changed(tx, &host.host)?;
    Ok(())
}

/// Updates the revision of a host that was read in this transaction, so that open dashboard pages read the host again,
/// at every controller.
pub fn touch(tx: &mut Tx<'_>, host: &mut Host) -> Result<(), Error> {
    tx.defer(TOUCH, params![&host.host])?;
    host.revision += 1;
    changed(tx, &host.host)?;
    Ok(())
}

/// Deletes a host's row. Its epoch is kept.
pub fn delete(tx: &mut Tx<'_>, name: &HostName) -> Result<(), Error> {
    tx.defer(KEEP_EPOCH, params![name])?;
    tx.defer(DELETE, params![name])?;
    changed(tx, name)?;
    Ok(())
}

/// Notifies the other controllers that a host's row changed.
pub(super) fn changed(tx: &mut Tx<'_>, name: &HostName) -> Result<(), kilonova_store::Error> {
    kilonova_changes::append(tx, Topic::Host, name, 0)
}

/// A host that can route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    /// Its name.
    pub host: HostName,
    /// The physical networks between which it can route; `*` is any.
    pub physical_networks: BTreeSet<String>,
    /// True if its compute service is enabled.
    pub enabled: bool,
    /// True if an operator forced it down.
    pub forced_down: bool,
    /// The time since its last heartbeat, by the database's clock.
    pub silent: SignedDuration,
}

impl Gateway {
    /// True if it can route between these physical networks.
    pub fn reaches(&self, physical: &BTreeSet<String>) -> bool {
        self.physical_networks.contains("*") || physical.is_subset(&self.physical_networks)
    }
}

fn gateway(row: &Row, now: Timestamp) -> Result<Gateway, Error> {
    let names = row.text("routed")?.split(',').filter(|name| !name.is_empty());
    Ok(Gateway {
        host: row.host("host")?,
        physical_networks: names.map(str::to_owned).collect(),
        enabled: is_enabled(row)?,
        forced_down: row.bool("forced_down")?,
        silent: now.duration_since(row.time("last_seen")?),
    })
}

/// The physical networks between which a host can route, in the format of its row.
pub fn routed(physical: &[String]) -> String {
    physical.join(",")
}

/// Records the physical networks between which a host can route ([`routed`]); `None` if it cannot.
pub fn set_routed(tx: &mut Tx<'_>, host: &HostName, routed: Option<&str>) -> Result<(), Error> {
    Ok(tx.defer(SET_ROUTED, params![host, routed])?)
}

/// The hosts that can route.
pub fn gateways(tx: &mut Tx<'_>) -> Result<Vec<Gateway>, Error> {
    let now = tx.database_time()?;
    tx.rows(GATEWAYS_ALL, params![])?.iter().map(|row| gateway(row, now)).collect()
}

/// A host, if it can route.
pub fn one_gateway(tx: &mut Tx<'_>, host: &HostName) -> Result<Option<Gateway>, Error> {
    let now = tx.database_time()?;
    tx.row(GATEWAY, params![host])?.map(|row| gateway(&row, now)).transpose()
}

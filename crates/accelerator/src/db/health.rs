//! Devices by their health, and the servers that use them. Read-only.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kilonova_ids::{DeviceId, HostName, ServerId};
use kilonova_node_api::DeviceKind;
use kilonova_store::{Error, Row, Tx, Value, params, statements};

use crate::states::{DeviceStatus, HealthState, device_kind};

/// The filters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HealthFilter {
    /// This device, regardless of its health.
    pub device: Option<DeviceId>,
    /// Devices of this host.
    pub host: Option<HostName>,
    /// Devices in this state.
    pub health: Option<HealthState>,
}

/// A device and its health.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedDevice {
    /// The device.
    pub device: DeviceId,
    /// Its host.
    pub host: HostName,
    /// Its address there.
    pub address: String,
    /// Its kind.
    pub kind: DeviceKind,
    /// The administrative status.
    pub status: DeviceStatus,
    /// The health.
    pub health: HealthState,
    /// Why it is not healthy.
    pub reason: Option<String>,
    /// When the health changed.
    pub since: Option<Timestamp>,
    /// The servers that use it.
    pub servers: Vec<ServerId>,
}

/// The condition for a device to pass the filters; without filters, only unhealthy devices pass.
macro_rules! passes {
    () => {
        "(CAST(?1 AS TEXT) IS NULL OR d.uuid = ?1)
          AND (CAST(?2 AS TEXT) IS NULL OR d.host = ?2)
          AND ((CAST(?3 AS TEXT) IS NULL
              AND (d.health <> 'healthy' OR CAST(?1 AS TEXT) IS NOT NULL))
            OR d.health = ?3)"
    };
}

statements! {
    /// Devices that pass the filters.
    DEVICES = concat!(
        "SELECT d.id, d.uuid, d.host, d.address, d.kind, d.status, d.health, d.health_reason,
        d.health_since FROM devices d WHERE ",
        passes!(),
        " ORDER BY d.host, d.address"
    );
    /// The servers that use those devices.
    SERVERS = concat!(
        "SELECT DISTINCT p.device_id, a.server_id FROM devices d
        JOIN deployables p ON p.device_id = d.id
        JOIN attach_handles h ON h.deployable_id = p.id JOIN arqs a ON a.uuid = h.arq_id WHERE ",
        passes!(),
        " AND a.server_id IS NOT NULL ORDER BY a.server_id"
    );
    /// The number of handles that are not free, and of those with an owner, for each host with such handles.
    HELD = "SELECT d.host, COUNT(*) AS held, COUNT(CASE WHEN h.state = 'owned' THEN 1 END) AS owned
        FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id
        JOIN devices d ON d.id = p.device_id WHERE d.host IN ({}) AND h.state <> 'free'
        GROUP BY d.host";
    /// The devices of these hosts with a function that is not clean.
    UNCLEAN = "SELECT DISTINCT d.host, d.address, d.card FROM devices d
        JOIN deployables p ON p.device_id = d.id JOIN attach_handles h ON h.deployable_id = p.id
        WHERE d.host IN ({}) AND h.parked IS NOT NULL ORDER BY d.host, d.address";
}

/// A device with a function that is not clean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UncleanDevice {
    /// Its host.
    pub host: HostName,
    /// Its address.
    pub address: String,
    /// The card that it belongs to.
    pub card: String,
}

/// The devices of these hosts with a function that is not clean.
pub(crate) fn unclean_on(tx: &mut Tx<'_>, hosts: &[HostName]) -> Result<Vec<UncleanDevice>, Error> {
    let hosts: Vec<Value> = hosts.iter().map(Value::from).collect();
    let asked = tx.ask_list(UNCLEAN, &hosts)?;
    let read = |row: &Row| {
        Ok(UncleanDevice {
            host: row.host("host")?,
            address: row.string("address")?,
            card: row.string("card")?,
        })
    };
    tx.answers(asked)?.iter().map(read).collect()
}

/// The numbers of handles of a host that are not free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldHandles {
    /// Those with an owner.
    pub owned: i64,
    /// Those without an owner: dirty, or withdrawn by an operator.
    pub ownerless: i64,
}

impl HeldHandles {
    /// Their number.
    pub const fn all(self) -> i64 {
        self.owned + self.ownerless
    }
}

/// The handles that are not free, for each of these hosts with such handles.
pub(crate) fn held_on(
    tx: &mut Tx<'_>,
    hosts: &[HostName],
) -> Result<BTreeMap<HostName, HeldHandles>, Error> {
    let hosts: Vec<Value> = hosts.iter().map(Value::from).collect();
    let asked = tx.ask_list(HELD, &hosts)?;
    let read = |row: &Row| {
        let owned = row.int("owned")?;
        Ok((row.host("host")?, HeldHandles { owned, ownerless: row.int("held")? - owned }))
    };
    tx.answers(asked)?.iter().map(read).collect()
}

/// The devices that pass the filters.
pub(crate) fn devices(tx: &mut Tx<'_>, filter: &HealthFilter) -> Result<Vec<CheckedDevice>, Error> {
    let HealthFilter { device, host, health } = filter;
    let mut servers: BTreeMap<i64, Vec<ServerId>> = BTreeMap::new();
    for row in tx.rows(SERVERS, params![*device, host.as_ref(), *health])? {
        servers.entry(row.int("device_id")?).or_default().push(row.id("server_id")?);
    }
    let read = |row: &Row| {
        Ok(CheckedDevice {
            servers: servers.remove(&row.int("id")?).unwrap_or_default(),
            device: row.id("uuid")?,
            host: row.host("host")?,
            address: row.string("address")?,
            kind: device_kind(row, "kind")?,
            status: DeviceStatus::read(row, "status")?,
            health: HealthState::read(row, "health")?,
            reason: row.string_opt("health_reason")?,
            since: row.time_opt("health_since")?,
        })
    };
    tx.rows(DEVICES, params![*device, host.as_ref(), *health])?.iter().map(read).collect()
}

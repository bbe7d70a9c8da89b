//! Unhealthy devices and the servers that use them, for operators.
//!
//! Read-only. Servers stay where they are: their owners decide.

use std::collections::BTreeMap;

use kilonova_ids::{DeviceId, ServerId};
use kilonova_store::{Row, Tx, params, statements};

use crate::Error;

statements! {
    /// Devices that pass the filters; without filters, the unhealthy ones.
    DEVICES = "SELECT id, uuid, host, address, kind, status, health, health_reason, health_since
        FROM devices WHERE (CAST(?1 AS TEXT) IS NULL OR uuid = ?1)
          AND (CAST(?2 AS TEXT) IS NULL OR host = ?2)
          AND ((CAST(?3 AS TEXT) IS NULL AND (health <> 'healthy' OR CAST(?1 AS TEXT) IS NOT NULL))
            OR health = ?3)
        ORDER BY host, address";
    /// The servers that use those devices.
    SERVERS = "SELECT DISTINCT p.device_id, a.server_id FROM devices d
        JOIN deployables p ON p.device_id = d.id
        JOIN attach_handles h ON h.deployable_id = p.id JOIN arqs a ON a.uuid = h.arq_id
        WHERE (CAST(?1 AS TEXT) IS NULL OR d.uuid = ?1)
          AND (CAST(?2 AS TEXT) IS NULL OR d.host = ?2)
          AND ((CAST(?3 AS TEXT) IS NULL AND (d.health <> 'healthy' OR CAST(?1 AS TEXT) IS NOT NULL))
            OR d.health = ?3)
          AND a.server_id IS NOT NULL ORDER BY a.server_id";
    /// Number of handles of a host that are not free.
    HELD = "SELECT COUNT(*) FROM attach_handles h JOIN deployables p ON p.id = h.deployable_id
        JOIN devices d ON d.id = p.device_id WHERE d.host = ?1 AND h.state <> 'free'";
}

/// The filters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HealthFilter {
    /// This device, whatever its health.
    pub device: Option<DeviceId>,
    /// Devices of this host.
    pub host: Option<String>,
    /// Devices in this state: `healthy`, `degraded` or `failed`.
    pub health: Option<String>,
}

/// A device and its health.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedDevice {
    /// The device.
    pub device: DeviceId,
    /// Its host.
    pub host: String,
    /// Its address there.
    pub address: String,
    /// `GPU`, `FPGA`, …
    pub kind: String,
    /// `enabled` or `maintaining`.
    pub status: String,
    /// `healthy`, `degraded` or `failed`.
    pub health: String,
    /// Why it is not healthy.
    pub reason: Option<String>,
    /// The time of the change (microseconds since 1970).
    pub since: Option<i64>,
    /// The servers that use it.
    pub servers: Vec<ServerId>,
}

/// Number of handles of a host that are owned or dirty.
///
/// # Errors
/// Store errors only.
pub fn held_on(tx: &mut Tx<'_>, host: &str) -> Result<i64, Error> {
    Ok(tx.row(HELD, params![host])?.map_or(Ok(0), |row| row.int(0))?)
}

/// The devices that match; without filters, the unhealthy ones.
///
/// # Errors
/// Store errors only.
pub fn health(tx: &mut Tx<'_>, filter: &HealthFilter) -> Result<Vec<CheckedDevice>, Error> {
    let HealthFilter { device, host, health } = filter;
    let mut servers: BTreeMap<i64, Vec<ServerId>> = BTreeMap::new();
    for row in tx.rows(SERVERS, params![*device, host.as_deref(), health.as_deref()])? {
        servers.entry(row.int(0)?).or_default().push(row.id(1)?);
    }
    let checked = |row: &Row| {
        Ok(CheckedDevice {
            servers: servers.remove(&row.int(0)?).unwrap_or_default(),
            device: row.id(1)?,
            host: row.string(2)?,
            address: row.string(3)?,
            kind: row.string(4)?,
            status: row.string(5)?,
            health: row.string(6)?,
            reason: row.string_opt(7)?,
            since: row.int_opt(8)?,
        })
    };
    let rows = tx.rows(DEVICES, params![*device, host.as_deref(), health.as_deref()])?;
    Ok(rows.iter().map(checked).collect::<Result<_, kilonova_store::Error>>()?)
}

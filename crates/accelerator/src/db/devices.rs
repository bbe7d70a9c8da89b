//! Rows of `devices`.

use kilonova_ids::DeviceId;
use kilonova_node_api::Device;
use kilonova_store::{Error, Row, Tx, params, statements};

/// A row of `devices`.
#[derive(Debug, Clone)]
pub(crate) struct DeviceRow {
    pub id: i64,
    pub uuid: DeviceId,
    pub host: String,
    pub address: String,
    pub kind: String,
    pub vendor_id: String,
    pub product_id: String,
    pub model: String,
    pub numa_node: i64,
    pub status: String,
    pub present: bool,
    pub created_at: i64,
    pub updated_at: Option<i64>,
    pub card: String,
    pub mixed: bool,
    pub health: DeviceHealth,
    /// The time of the last health event that an administrator has acknowledged.
    pub acknowledged: Option<i64>,
}

/// The health of a device; a failed device is not scheduled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DeviceHealth {
    /// `healthy`, `degraded` or `failed`.
    pub state: String,
    pub reason: Option<String>,
    pub since: Option<i64>,
    /// The health event that caused it, in the node's time.
    pub event: Option<i64>,
}

/// The state of a device that is not scheduled.
pub(crate) const FAILED: &str = "failed";
/// The normal state.
pub(crate) const HEALTHY: &str = "healthy";

impl DeviceHealth {
    pub fn is_failed(&self) -> bool {
        self.state == FAILED
    }
}

/// The row that a report requests for a device.
pub(crate) struct DesiredDevice<'a> {
    pub device: &'a Device,
    pub card: &'a str,
    pub mixed: bool,
    pub health: DeviceHealth,
}

/// The status of a device that an administrator disabled.
pub(crate) const MAINTAINING: &str = "maintaining";
/// The normal status.
pub(crate) const ENABLED: &str = "enabled";

impl DeviceRow {
    /// True if an administrator disabled it.
    pub fn is_maintaining(&self) -> bool {
        self.status == MAINTAINING
    }
}

statements! {
    /// The devices of a host.
    OF_HOST = "SELECT id, uuid, host, address, kind, vendor_id, product_id, model, numa_node,
        status, present, created_at, updated_at, card, mixed, health, health_reason, health_since,
        health_event, health_dealt
        FROM devices WHERE host = ?1 ORDER BY id";
    /// By kind of row of a host: the count, the count that the next report must examine, the newest
    /// id, and the time of the last change. A handle's owner does not count as a change.
    SUMMARY = "SELECT 1, COUNT(*), COUNT(CASE WHEN d.present = 1 AND d.mixed = 0
            AND d.health = 'healthy' THEN NULL ELSE 1 END), MAX(d.id),
            MAX(COALESCE(d.updated_at, d.created_at)) FROM devices d WHERE d.host = ?1
        UNION ALL SELECT 2, COUNT(*), COUNT(CASE WHEN p.present = 1 AND p.function_id IS NULL
            AND p.bitstream_id IS NULL THEN NULL ELSE 1 END), MAX(p.id),
            MAX(COALESCE(p.updated_at, p.created_at))
            FROM deployables p JOIN devices d ON d.id = p.device_id WHERE d.host = ?1
        UNION ALL SELECT 3, COUNT(*), 0, MAX(a.id),
            MAX(COALESCE(a.updated_at, a.created_at)) FROM attributes a
            JOIN deployables p ON p.id = a.deployable_id
            JOIN devices d ON d.id = p.device_id WHERE d.host = ?1
        UNION ALL SELECT 4, COUNT(*), COUNT(CASE WHEN h.present = 1 AND h.parked IS NULL
            AND h.state IN ('free', 'owned') THEN NULL ELSE 1 END), MAX(h.id), MAX(h.created_at)
            FROM attach_handles h JOIN deployables p ON p.id = h.deployable_id
            JOIN devices d ON d.id = p.device_id WHERE d.host = ?1";
    /// The fingerprint of the report that a host's rows match.
    MARK = "SELECT mark FROM host_reports WHERE host = ?1";
    /// Sets that fingerprint.
    SET_MARK = "INSERT INTO host_reports (host, mark) VALUES (?1, ?2)
        ON CONFLICT (host) DO UPDATE SET mark = excluded.mark";
    /// All devices that pass the filters.
    LIST = "SELECT id, uuid, host, address, kind, vendor_id, product_id, model, numa_node,
        status, present, created_at, updated_at, card, mixed, health, health_reason, health_since,
        health_event, health_dealt
        FROM devices
        WHERE (CAST(?1 AS TEXT) IS NULL OR kind = ?1)
          AND (CAST(?2 AS TEXT) IS NULL OR vendor_id = ?2)
          AND (CAST(?3 AS TEXT) IS NULL OR host = ?3)
        ORDER BY id";
    /// One device.
    BY_UUID = "SELECT id, uuid, host, address, kind, vendor_id, product_id, model, numa_node,
        status, present, created_at, updated_at, card, mixed, health, health_reason, health_since,
        health_event, health_dealt
        FROM devices WHERE uuid = ?1";
    /// Inserts a device.
    INSERT = "INSERT INTO devices (uuid, host, address, kind, vendor_id, product_id, model,
        numa_node, status, present, created_at, card, mixed, health, health_reason, health_since,
        health_event)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'enabled', 1, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
        RETURNING id";
    /// Updates a device from the node's report.
    UPDATE = "UPDATE devices SET kind = ?2, vendor_id = ?3, product_id = ?4, model = ?5,
        numa_node = ?6, present = 1, updated_at = ?7, card = ?8, mixed = ?9, health = ?10,
        health_reason = ?11, health_since = ?12, health_event = ?13 WHERE id = ?1";
    /// Sets whether handles of its card exclude each other.
    MIXED = "UPDATE devices SET mixed = ?2, updated_at = ?3 WHERE id = ?1";
    /// Acknowledges the health event of a device.
    DEALT = "UPDATE devices SET health = 'healthy', health_reason = NULL, health_since = NULL,
        health_dealt = health_event WHERE id = ?1 AND health_event IS NOT NULL";
    /// Records a change of dependent rows.
    TOUCH = "UPDATE devices SET updated_at = ?2 WHERE id = ?1";
    /// Sets the administrative status.
    STATUS = "UPDATE devices SET status = ?2, updated_at = ?3 WHERE id = ?1";
    /// Marks a device as absent from its host.
    VANISH = "UPDATE devices SET present = 0, updated_at = ?2 WHERE id = ?1";
    /// Deletes a device.
    DELETE = "DELETE FROM devices WHERE id = ?1";
}

fn read(row: &Row) -> Result<DeviceRow, Error> {
    Ok(DeviceRow {
        id: row.int(0)?,
        uuid: row.id(1)?,
        host: row.string(2)?,
        address: row.string(3)?,
        kind: row.string(4)?,
        vendor_id: row.string(5)?,
        product_id: row.string(6)?,
        model: row.string(7)?,
        numa_node: row.int(8)?,
        status: row.string(9)?,
        present: row.bool(10)?,
        created_at: row.int(11)?,
        updated_at: row.int_opt(12)?,
        card: row.string(13)?,
        mixed: row.bool(14)?,
        health: DeviceHealth {
            state: row.string(15)?,
            reason: row.string_opt(16)?,
            since: row.int_opt(17)?,
            event: row.int_opt(18)?,
        },
        acknowledged: row.int_opt(19)?,
    })
}

/// The filters of a list.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeviceFilter {
    pub kind: Option<String>,
    pub vendor: Option<String>,
    pub host: Option<String>,
}

pub(crate) fn of_host(tx: &mut Tx<'_>, host: &str) -> Result<Vec<DeviceRow>, Error> {
    tx.rows(OF_HOST, params![host])?.iter().map(read).collect()
}

/// The summary of a host's rows; `None` if the next report must examine one of them.
pub(crate) fn summary(tx: &mut Tx<'_>, host: &str) -> Result<Option<Vec<[i64; 4]>>, Error> {
    let mut kinds = Vec::new();
    for row in tx.rows(SUMMARY, params![host])? {
        if row.int(2)? > 0 {
            return Ok(None);
        }
        let or_none = |at: usize| Ok::<_, Error>(row.int_opt(at)?.unwrap_or(0));
        kinds.push([row.int(0)?, row.int(1)?, or_none(3)?, or_none(4)?]);
    }
    kinds.sort_unstable();
    Ok(Some(kinds))
}

/// The fingerprint of the report that the host's rows match.
pub(crate) fn fingerprint(tx: &mut Tx<'_>, host: &str) -> Result<Option<String>, Error> {
    tx.row(MARK, params![host])?.map(|row| row.string(0)).transpose()
}

/// Sets that fingerprint.
pub(crate) fn set_fingerprint(tx: &mut Tx<'_>, host: &str, mark: &str) -> Result<(), Error> {
    tx.execute(SET_MARK, params![host, mark])?;
    Ok(())
}

pub(crate) fn list(tx: &mut Tx<'_>, filter: &DeviceFilter) -> Result<Vec<DeviceRow>, Error> {
    let given = params![filter.kind.clone(), filter.vendor.clone(), filter.host.clone()];
    tx.rows(LIST, given)?.iter().map(read).collect()
}

pub(crate) fn by_uuid(tx: &mut Tx<'_>, uuid: DeviceId) -> Result<Option<DeviceRow>, Error> {
    tx.row(BY_UUID, params![uuid])?.as_ref().map(read).transpose()
}

pub(crate) fn insert(
    tx: &mut Tx<'_>,
    host: &str,
    wanted: &DesiredDevice<'_>,
    now: i64,
) -> Result<i64, Error> {
    let DesiredDevice { device, card, mixed, health } = wanted;
    let row = tx.row(
        INSERT,
        params![
            DeviceId::new_v4(),
            host,
            &device.address,
            device.kind.as_str(),
            &device.vendor_id,
            &device.product_id,
            &device.model,
            device.numa_node,
            now,
            *card,
            *mixed,
            &health.state,
            health.reason.as_deref(),
            health.since,
            health.event
        ],
    )?;
    row.ok_or_else(|| Error::Shape("INSERT returned no row".into()))?.int(0)
}

/// Updates a device from the node's report.
pub(crate) fn update(
    tx: &mut Tx<'_>,
    id: i64,
    wanted: &DesiredDevice<'_>,
    now: i64,
) -> Result<(), Error> {
    let DesiredDevice { device, card, mixed, health } = wanted;
    tx.execute(
        UPDATE,
        params![
            id,
            device.kind.as_str(),
            &device.vendor_id,
            &device.product_id,
            &device.model,
            device.numa_node,
            now,
            *card,
            *mixed,
            &health.state,
            health.reason.as_deref(),
            health.since,
            health.event
        ],
    )?;
    Ok(())
}

//! Rows of `devices`.

use std::collections::HashMap;

use jiff::Timestamp;
use kilonova_ids::{DeviceId, HostName};
use kilonova_node_api::{Device, DeviceKind};
use kilonova_store::{Asked, Error, Row, Tx, Value, params, statements};

use super::consecutive;
use crate::states::{DeviceStatus, HealthState, device_kind};

/// A row of `devices`.
#[derive(Debug, Clone)]
pub(crate) struct DeviceRow {
    pub id: i64,
    pub uuid: DeviceId,
    pub host: HostName,
    pub address: String,
    pub kind: DeviceKind,
    pub vendor_id: String,
    pub product_id: String,
    pub model: String,
    pub numa_node: i64,
    pub status: DeviceStatus,
    pub present: bool,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
    pub card: String,
    pub mixed: bool,
    pub one_type: bool,
    /// The geometry of a GPU in MIG mode.
    pub mig: Option<String>,
    pub switch: Option<String>,
    pub island: Option<String>,
    pub health: DeviceHealth,
    /// The time of the last health event that an administrator has acknowledged.
    pub acknowledged: Option<Timestamp>,
}

/// The health of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeviceHealth {
    pub state: HealthState,
    pub reason: Option<String>,
    pub since: Option<Timestamp>,
    /// The time of the health event that caused it, by the host's clock.
    pub event: Option<Timestamp>,
}

/// The row that a device should have according to its host's report.
pub(crate) struct DesiredDevice<'a> {
    pub device: &'a Device,
    pub card: &'a str,
    pub mixed: bool,
    pub one_type: bool,
    pub mig: Option<&'a str>,
    pub switch: Option<&'a str>,
    pub island: Option<&'a str>,
    pub health: DeviceHealth,
}

impl DeviceRow {
    /// True if an administrator disabled it.
    pub fn is_maintaining(&self) -> bool {
        match self.status {
            DeviceStatus::Maintaining => true,
            DeviceStatus::Enabled => false,
        }
    }
}

/// Selects a [`DeviceRow`].
macro_rules! select {
    ($condition:literal) => {
        concat!(
            "SELECT id, uuid, host, address, kind, vendor_id, product_id, model, numa_node, status,
            present, created_at, updated_at, card, mixed, one_type, mig, pcie_switch, island, health,
            health_reason, health_since, health_event, health_dealt FROM devices ",
            $condition
        )
    };
}

statements! {
    /// The devices of a host.
    OF_HOST = select!("WHERE host = ?1 ORDER BY id");
    /// For each kind of row of a host: the count, the number that the next report must examine, the newest id, and the
    /// time of the last change. A new owner of a handle does not count as a change. Free handles are present and not
    /// parked (the audit verifies this), so all handles are counted in an index, and only rows that are not free are
    /// read.
    SUMMARY = "SELECT 1 AS kind, COUNT(*) AS count, COUNT(CASE WHEN d.present = 1 AND d.mixed = 0
            AND d.health = 'healthy' THEN NULL ELSE 1 END) AS to_examine, MAX(d.id) AS newest,
            MAX(COALESCE(d.updated_at, d.created_at)) AS changed_at
            FROM devices d WHERE d.host = ?1
        UNION ALL SELECT 2, COUNT(*), COUNT(CASE WHEN p.present = 1 AND p.function_id IS NULL
            AND p.bitstream_id IS NULL AND NOT EXISTS (SELECT 1 FROM device_orders b
              WHERE b.open_key = d.uuid) THEN NULL ELSE 1 END), MAX(p.id),
            MAX(COALESCE(p.updated_at, p.created_at))
            FROM deployables p JOIN devices d ON d.id = p.device_id WHERE d.host = ?1
        UNION ALL SELECT 3, COUNT(*), 0, MAX(a.id),
            MAX(COALESCE(a.updated_at, a.created_at)) FROM attributes a
            JOIN deployables p ON p.id = a.deployable_id
            JOIN devices d ON d.id = p.device_id WHERE d.host = ?1
        UNION ALL SELECT 4, COUNT(*), (SELECT COUNT(*) FROM attach_handles t
              JOIN deployables q ON q.id = t.deployable_id JOIN devices e ON e.id = q.device_id
              WHERE e.host = ?1 AND t.state <> 'free' AND (t.present = 0 OR t.parked IS NOT NULL
                OR t.state <> 'owned' OR t.island_arq_id = t.arq_id)), MAX(h.id), 0
            FROM attach_handles h JOIN deployables p ON p.id = h.deployable_id
            JOIN devices d ON d.id = p.device_id WHERE d.host = ?1";
    /// The fingerprint of the report that a host's rows match.
    FINGERPRINT = "SELECT mark FROM host_reports WHERE host = ?1";
    /// Sets the fingerprint of the report that a host's rows match.
    SET_FINGERPRINT = "INSERT INTO host_reports (host, mark) VALUES (?1, ?2)
        ON CONFLICT (host) DO UPDATE SET mark = excluded.mark";
    /// All devices.
    LIST = select!("ORDER BY id");
    /// The devices that pass the filters, newest first.
    LIST_FILTERED = select!("WHERE (CAST(?1 AS TEXT) IS NULL OR kind = ?1)
          AND (CAST(?2 AS TEXT) IS NULL OR vendor_id = ?2)
          AND (CAST(?3 AS TEXT) IS NULL OR host = ?3)
        ORDER BY created_at DESC, id DESC");
    /// One device.
    BY_UUID = select!("WHERE uuid = ?1");
    /// Inserts devices.
    INSERT = "INSERT INTO devices (uuid, host, address, kind, vendor_id, product_id, model,
        numa_node, status, present, created_at, card, mixed, one_type, mig, pcie_switch, island, health,
        health_reason, health_since, health_event)
        VALUES ({}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
        RETURNING id, address";
    /// Updates a device from the host's report.
    UPDATE = "UPDATE devices SET kind = ?2, vendor_id = ?3, product_id = ?4, model = ?5,
        numa_node = ?6, present = 1, updated_at = ?7, card = ?8, mixed = ?9, health = ?10,
        health_reason = ?11, health_since = ?12, health_event = ?13, one_type = ?14,
        mig = ?15, pcie_switch = ?16, island = ?17 WHERE id = ?1";
    /// Sets how the handles of a device's card exclude each other.
    SET_EXCLUSIONS = "UPDATE devices SET mixed = ?2, one_type = ?3, updated_at = ?4 WHERE id = ?1";
    /// Acknowledges the health event of a device.
    ACKNOWLEDGE_HEALTH = "UPDATE devices SET health = 'healthy', health_reason = NULL, health_since = NULL,
        health_dealt = health_event WHERE id = ?1 AND health_event IS NOT NULL";
    /// Records a change to dependent rows.
    TOUCH = "UPDATE devices SET updated_at = ?2 WHERE id = ?1";
    /// Sets the administrative status.
    SET_STATUS = "UPDATE devices SET status = ?2, updated_at = ?3 WHERE id = ?1";
    /// Marks a device as absent from its host.
    MARK_ABSENT = "UPDATE devices SET present = 0, updated_at = ?2 WHERE id = ?1";
    /// Deletes a device.
    DELETE = "DELETE FROM devices WHERE id = ?1";
}

fn read(row: &Row) -> Result<DeviceRow, Error> {
    Ok(DeviceRow {
        id: row.int("id")?,
        uuid: row.id("uuid")?,
        host: row.host("host")?,
        address: row.string("address")?,
        kind: device_kind(row, "kind")?,
        vendor_id: row.string("vendor_id")?,
        product_id: row.string("product_id")?,
        model: row.string("model")?,
        numa_node: row.int("numa_node")?,
        status: DeviceStatus::read(row, "status")?,
        present: row.bool("present")?,
        created_at: row.time("created_at")?,
        updated_at: row.time_opt("updated_at")?,
        card: row.string("card")?,
        mixed: row.bool("mixed")?,
        one_type: row.bool("one_type")?,
        mig: row.string_opt("mig")?,
        switch: row.string_opt("pcie_switch")?,
        island: row.string_opt("island")?,
        health: DeviceHealth {
            state: HealthState::read(row, "health")?,
            reason: row.string_opt("health_reason")?,
            since: row.time_opt("health_since")?,
            event: row.time_opt("health_event")?,
        },
        acknowledged: row.time_opt("health_dealt")?,
    })
}

/// The filters of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DeviceFilter {
    pub kind: Option<DeviceKind>,
    pub vendor: Option<String>,
    pub host: Option<HostName>,
}

/// Announces [`of_host`].
pub(crate) fn expect_of_host(tx: &mut Tx<'_>, host: &HostName) -> Result<(), Error> {
    tx.expect(OF_HOST, params![host])
}

pub(crate) fn of_host(tx: &mut Tx<'_>, host: &HostName) -> Result<Vec<DeviceRow>, Error> {
    tx.rows(OF_HOST, params![host])?.iter().map(read).collect()
}

/// Announces [`fingerprint`] and [`summary`].
pub(crate) fn expect_fingerprint(tx: &mut Tx<'_>, host: &HostName) -> Result<(), Error> {
    tx.expect(FINGERPRINT, params![host])?;
    tx.expect(SUMMARY, params![host])
}

/// The summary of a host's rows; `None` if the next report must examine one of them.
pub(crate) fn summary(tx: &mut Tx<'_>, host: &HostName) -> Result<Option<Vec<[i64; 4]>>, Error> {
    let mut kinds = Vec::new();
    for row in tx.rows(SUMMARY, params![host])? {
        if row.int("to_examine")? > 0 {
            return Ok(None);
        }
        let newest = row.int_opt("newest")?.unwrap_or(0);
        let changed_at = row.int_opt("changed_at")?.unwrap_or(0);
        kinds.push([row.int("kind")?, row.int("count")?, newest, changed_at]);
    }
    kinds.sort_unstable();
    Ok(Some(kinds))
}

/// The fingerprint of the report that the host's rows match.
pub(crate) fn fingerprint(tx: &mut Tx<'_>, host: &HostName) -> Result<Option<String>, Error> {
    tx.row(FINGERPRINT, params![host])?.map(|row| row.string("mark")).transpose()
}

/// Sets the fingerprint of the report that a host's rows match.
pub(crate) fn set_fingerprint(tx: &mut Tx<'_>, host: &HostName, mark: &str) -> Result<(), Error> {
    tx.defer(SET_FINGERPRINT, params![host, mark])?;
    Ok(())
}

/// The devices in upstream's order (`objects/device.py`): by id, or newest first if there is a filter.
pub(crate) fn list(tx: &mut Tx<'_>, filter: &DeviceFilter) -> Result<Vec<DeviceRow>, Error> {
    if *filter == DeviceFilter::default() {
        return tx.rows(LIST, params![])?.iter().map(read).collect();
    }
    let DeviceFilter { kind, vendor, host } = filter;
    let given = params![kind.map(DeviceKind::as_str), vendor.as_deref(), host.as_deref()];
    tx.rows(LIST_FILTERED, given)?.iter().map(read).collect()
}

pub(crate) fn by_uuid(tx: &mut Tx<'_>, uuid: DeviceId) -> Result<Option<DeviceRow>, Error> {
    tx.row(BY_UUID, params![uuid])?.as_ref().map(read).transpose()
}

/// Inserts enabled devices; [`inserted`] returns their row ids.
pub(crate) fn ask_insert(
    tx: &mut Tx<'_>,
    host: &HostName,
    desired: &[DesiredDevice<'_>],
    now: Timestamp,
) -> Result<Vec<Asked>, Error> {
    let row = |(id, desired): (DeviceId, &DesiredDevice<'_>)| -> [Value; 21] {
        let DesiredDevice { device, card, mixed, one_type, mig, switch, island, health } = desired;
        [
            id.into(),
            host.into(),
            (&device.address).into(),
            device.kind.as_str().into(),
            (&device.vendor_id).into(),
            (&device.product_id).into(),
            (&device.model).into(),
            device.numa_node.into(),
            DeviceStatus::Enabled.into(),
            true.into(),
            now.into(),
            (*card).into(),
            (*mixed).into(),
            (*one_type).into(),
            (*mig).into(),
            (*switch).into(),
            (*island).into(),
            health.state.into(),
            health.reason.as_deref().into(),
            health.since.into(),
            health.event.into(),
        ]
    };
    let rows: Vec<_> = consecutive().zip(desired).map(row).collect();
    tx.ask_rows(INSERT, &rows)
}

/// The ids of the rows that [`ask_insert`] inserted, by address.
pub(crate) fn inserted(tx: &mut Tx<'_>, asked: Vec<Asked>) -> Result<HashMap<String, i64>, Error> {
    let rows = tx.answers(asked)?;
    rows.iter().map(|row| Ok((row.string("address")?, row.int("id")?))).collect()
}

/// Updates a device from the host's report.
pub(crate) fn update(
    tx: &mut Tx<'_>,
    id: i64,
    desired: &DesiredDevice<'_>,
    now: Timestamp,
) -> Result<(), Error> {
    let DesiredDevice { device, card, mixed, one_type, mig, switch, island, health } = desired;
    tx.defer(
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
            health.state,
            health.reason.as_deref(),
            health.since,
            health.event,
            *one_type,
            *mig,
            *switch,
            *island
        ],
    )?;
    Ok(())
}

/// Sets how the handles of a device's card exclude each other.
pub(crate) fn set_exclusions(
    tx: &mut Tx<'_>,
    id: i64,
    mixed: bool,
    one_type: bool,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(SET_EXCLUSIONS, params![id, mixed, one_type, now])?;
    Ok(())
}

/// Acknowledges the health event of a device, which makes it healthy; `false` if it has none.
pub(crate) fn acknowledge_health(tx: &mut Tx<'_>, id: i64) -> Result<bool, Error> {
    Ok(tx.execute(ACKNOWLEDGE_HEALTH, params![id])? > 0)
}

/// Records a change to dependent rows.
pub(crate) fn touch(tx: &mut Tx<'_>, id: i64, now: Timestamp) -> Result<(), Error> {
    tx.defer(TOUCH, params![id, now])?;
    Ok(())
}

/// Sets the administrative status.
pub(crate) fn set_status(
    tx: &mut Tx<'_>,
    id: i64,
    status: DeviceStatus,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(SET_STATUS, params![id, status, now])?;
    Ok(())
}

/// Marks a device as absent from its host.
pub(crate) fn mark_absent(tx: &mut Tx<'_>, id: i64, now: Timestamp) -> Result<(), Error> {
    tx.defer(MARK_ABSENT, params![id, now])?;
    Ok(())
}

pub(crate) fn delete(tx: &mut Tx<'_>, id: i64) -> Result<(), Error> {
    tx.defer(DELETE, params![id])?;
    Ok(())
}

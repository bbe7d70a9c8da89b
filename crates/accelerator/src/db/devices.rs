//! Rows of `devices`.

use kilonova_ids::DeviceId;
use kilonova_node_api::Device;
use kilonova_store::{Error, Row, Tx, params, statements};

/// A device as it is kept.
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
    pub health: Verdict,
    /// Up to which event of the node's an administrator has dealt with what was wrong.
    pub dealt: Option<i64>,
}

/// Whether a device is given out, as far as its health goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// `healthy`, `degraded` or `failed`.
    pub state: String,
    pub reason: Option<String>,
    pub since: Option<i64>,
    /// The event that it comes from, in the node's time.
    pub event: Option<i64>,
}

/// What a device must not be to be given out.
pub(crate) const FAILED: &str = "failed";
/// What it should be.
pub(crate) const HEALTHY: &str = "healthy";

impl Verdict {
    pub fn is_failed(&self) -> bool {
        self.state == FAILED
    }
}

/// A device as a report wants its row.
pub(crate) struct Wanted<'a> {
    pub device: &'a Device,
    pub card: &'a str,
    pub mixed: bool,
    pub health: Verdict,
}

/// Nothing more of it is given out; an administrator said so.
pub(crate) const MAINTAINING: &str = "maintaining";
/// Its normal state.
pub(crate) const ENABLED: &str = "enabled";

impl DeviceRow {
    /// Whether it is being drained.
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
    /// Of each kind of row of a host: how many, how many that the next report has to look at, the
    /// youngest, the last change. Who holds a handle is no change.
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
    /// What the ledger of a host is as.
    MARK = "SELECT mark FROM host_reports WHERE host = ?1";
    /// From now on it is as this.
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
    /// A new device.
    INSERT = "INSERT INTO devices (uuid, host, address, kind, vendor_id, product_id, model,
        numa_node, status, present, created_at, card, mixed, health, health_reason, health_since,
        health_event)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'enabled', 1, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
        RETURNING id";
    /// What the node says of a known device.
    UPDATE = "UPDATE devices SET kind = ?2, vendor_id = ?3, product_id = ?4, model = ?5,
        numa_node = ?6, present = 1, updated_at = ?7, card = ?8, mixed = ?9, health = ?10,
        health_reason = ?11, health_since = ?12, health_event = ?13 WHERE id = ?1";
    /// Whether handles of its card exclude each other.
    MIXED = "UPDATE devices SET mixed = ?2, updated_at = ?3 WHERE id = ?1";
    /// An administrator has dealt with the event that made it unhealthy.
    DEALT = "UPDATE devices SET health = 'healthy', health_reason = NULL, health_since = NULL,
        health_dealt = health_event WHERE id = ?1 AND health_event IS NOT NULL";
    /// What hangs on it changed.
    TOUCH = "UPDATE devices SET updated_at = ?2 WHERE id = ?1";
    /// Whether it is given out.
    STATUS = "UPDATE devices SET status = ?2, updated_at = ?3 WHERE id = ?1";
    /// The host no longer has it.
    VANISH = "UPDATE devices SET present = 0, updated_at = ?2 WHERE id = ?1";
    /// Nothing hangs on it any more.
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
        health: Verdict {
            state: row.string(15)?,
            reason: row.string_opt(16)?,
            since: row.int_opt(17)?,
            event: row.int_opt(18)?,
        },
        dealt: row.int_opt(19)?,
    })
}

/// What a listing may be narrowed to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    pub kind: Option<String>,
    pub vendor: Option<String>,
    pub host: Option<String>,
}

pub(crate) fn of_host(tx: &mut Tx<'_>, host: &str) -> Result<Vec<DeviceRow>, Error> {
    tx.rows(OF_HOST, params![host])?.iter().map(read).collect()
}

/// The rows of a host in short; `None` when a report has to look at one of them again.
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

/// What the ledger of the host is as.
pub(crate) fn mark(tx: &mut Tx<'_>, host: &str) -> Result<Option<String>, Error> {
    tx.row(MARK, params![host])?.map(|row| row.string(0)).transpose()
}

/// From now on it is as this.
pub(crate) fn set_mark(tx: &mut Tx<'_>, host: &str, mark: &str) -> Result<(), Error> {
    tx.execute(SET_MARK, params![host, mark])?;
    Ok(())
}

pub(crate) fn list(tx: &mut Tx<'_>, filter: &Filter) -> Result<Vec<DeviceRow>, Error> {
    let given = params![filter.kind.clone(), filter.vendor.clone(), filter.host.clone()];
    tx.rows(LIST, given)?.iter().map(read).collect()
}

pub(crate) fn by_uuid(tx: &mut Tx<'_>, uuid: DeviceId) -> Result<Option<DeviceRow>, Error> {
    tx.row(BY_UUID, params![uuid])?.as_ref().map(read).transpose()
}

pub(crate) fn insert(
    tx: &mut Tx<'_>,
    host: &str,
    wanted: &Wanted<'_>,
    now: i64,
) -> Result<i64, Error> {
    let Wanted { device, card, mixed, health } = wanted;
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

/// What the node says of a known device.
pub(crate) fn update(tx: &mut Tx<'_>, id: i64, wanted: &Wanted<'_>, now: i64) -> Result<(), Error> {
    let Wanted { device, card, mixed, health } = wanted;
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

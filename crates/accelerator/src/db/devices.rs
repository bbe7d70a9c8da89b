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
        status, present, created_at, updated_at
        FROM devices WHERE host = ?1 ORDER BY id";
    /// All devices that pass the filters.
    LIST = "SELECT id, uuid, host, address, kind, vendor_id, product_id, model, numa_node,
        status, present, created_at, updated_at
        FROM devices
        WHERE (CAST(?1 AS TEXT) IS NULL OR kind = ?1)
          AND (CAST(?2 AS TEXT) IS NULL OR vendor_id = ?2)
          AND (CAST(?3 AS TEXT) IS NULL OR host = ?3)
        ORDER BY id";
    /// One device.
    BY_UUID = "SELECT id, uuid, host, address, kind, vendor_id, product_id, model, numa_node,
        status, present, created_at, updated_at
        FROM devices WHERE uuid = ?1";
    /// A new device.
    INSERT = "INSERT INTO devices (uuid, host, address, kind, vendor_id, product_id, model,
        numa_node, status, present, created_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'enabled', 1, ?9) RETURNING id";
    /// What the node says of a known device.
    UPDATE = "UPDATE devices SET kind = ?2, vendor_id = ?3, product_id = ?4, model = ?5,
        numa_node = ?6, present = 1, updated_at = ?7 WHERE id = ?1";
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

pub(crate) fn list(tx: &mut Tx<'_>, filter: &Filter) -> Result<Vec<DeviceRow>, Error> {
    let given = params![filter.kind.clone(), filter.vendor.clone(), filter.host.clone()];
    tx.rows(LIST, given)?.iter().map(read).collect()
}

pub(crate) fn by_uuid(tx: &mut Tx<'_>, uuid: DeviceId) -> Result<Option<DeviceRow>, Error> {
    tx.row(BY_UUID, params![uuid])?.as_ref().map(read).transpose()
}

pub(crate) fn insert(tx: &mut Tx<'_>, host: &str, device: &Device, now: i64) -> Result<i64, Error> {
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
            now
        ],
    )?;
    row.ok_or_else(|| Error::Shape("INSERT returned no row".into()))?.int(0)
}

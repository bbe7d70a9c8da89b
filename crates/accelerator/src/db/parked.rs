//! Parked handles: rows of `attach_handles` that wait to be cleaned.

use kilonova_ids::{AttachHandleId, DeployableId, DeviceId, ProviderId};
use kilonova_store::{Error, Row, Tx, params, statements};

statements! {
    /// Parks the handles of a consumer that must be cleaned.
    PARK_OF_CONSUMER = "UPDATE attach_handles SET state = 'dirty', arq_id = NULL,
        parked = 'to be cleaned', updated_at = ?2
        WHERE arq_id IN (SELECT uuid FROM arqs WHERE consumer_id = ?1)
          AND EXISTS (SELECT 1 FROM attributes t
            WHERE t.deployable_id = attach_handles.deployable_id AND t.name = 'on_release'
              AND t.reported = 1) RETURNING uuid";
    /// Parks the handle of one request.
    PARK_OF_ARQ = "UPDATE attach_handles SET state = 'dirty', arq_id = NULL,
        parked = 'to be cleaned', updated_at = ?2
        WHERE arq_id = ?1 AND EXISTS (SELECT 1 FROM attributes t
            WHERE t.deployable_id = attach_handles.deployable_id AND t.name = 'on_release'
              AND t.reported = 1) RETURNING uuid";
    /// Marks handles that a consumer left dirty for cleaning after its host has dropped them.
    PARK_DIRTY = "UPDATE attach_handles SET parked = 'to be cleaned'
        WHERE dirty_of = ?1 AND EXISTS (SELECT 1 FROM attributes t
            WHERE t.deployable_id = attach_handles.deployable_id AND t.name = 'on_release'
              AND t.reported = 1)";
    /// Parks the marked handles after the host has dropped them.
    DROPPED = "UPDATE attach_handles SET dirty_of = NULL, updated_at = ?2
        WHERE dirty_of = ?1 AND parked IS NOT NULL RETURNING uuid";
    /// A parked handle, and who cleans it.
    PARKED = "SELECT h.uuid, h.address, p.uuid, p.provider_id, p.resource_class, d.uuid, d.address,
        d.host, (SELECT MIN(t.value) FROM attributes t WHERE t.deployable_id = p.id
            AND t.name = 'on_release' AND t.reported = 1)
        FROM attach_handles h JOIN deployables p ON p.id = h.deployable_id
        JOIN devices d ON d.id = p.device_id WHERE h.uuid = ?1 AND h.parked IS NOT NULL";
    /// Parked handles without an open order, with the end of the last attempt.
    IDLE = "SELECT h.uuid, p.provider_id, (SELECT MAX(o.updated_at) FROM device_orders o
          WHERE o.handle_id = h.uuid),
        (SELECT MIN(t.value) FROM attributes t WHERE t.deployable_id = p.id
            AND t.name = 'on_release' AND t.reported = 1)
        FROM attach_handles h JOIN deployables p ON p.id = h.deployable_id
        WHERE h.parked IS NOT NULL AND h.dirty_of IS NULL
          AND NOT EXISTS (SELECT 1 FROM device_orders o WHERE o.open_key = h.uuid)
        ORDER BY p.provider_id, h.id";
    /// Deletes a cleaned handle if it is absent.
    DROP_PARKED = "DELETE FROM attach_handles WHERE uuid = ?1 AND parked IS NOT NULL
        AND dirty_of IS NULL AND present = 0";
    /// Frees a cleaned handle.
    UNPARK = "UPDATE attach_handles SET state = 'free', parked = NULL, updated_at = ?2
        WHERE uuid = ?1 AND parked IS NOT NULL AND dirty_of IS NULL";
}

/// A parked handle.
pub(crate) struct Parked {
    pub handle: AttachHandleId,
    pub address: String,
    pub deployable: DeployableId,
    pub provider: ProviderId,
    pub resource_class: String,
    pub device: DeviceId,
    pub device_address: String,
    pub host: String,
    /// The cleaner, according to the host's report.
    pub by: Option<String>,
}

/// A parked handle without an open order.
pub(crate) struct Idle {
    pub handle: AttachHandleId,
    pub provider: ProviderId,
    /// When the last attempt to clean it ended.
    pub tried_at: Option<i64>,
    pub by: Option<String>,
}

/// Runs one of the statements that park handles, and returns those handles.
pub(crate) fn park(
    tx: &mut Tx<'_>,
    sql: &'static str,
    whose: String,
    now: i64,
) -> Result<Vec<AttachHandleId>, Error> {
    tx.rows(sql, params![whose, now])?.iter().map(|row| row.id(0)).collect()
}

pub(crate) fn parked(tx: &mut Tx<'_>, handle: AttachHandleId) -> Result<Option<Parked>, Error> {
    let read = |row: &Row| {
        Ok(Parked {
            handle: row.id(0)?,
            address: row.string(1)?,
            deployable: row.id(2)?,
            provider: row.id(3)?,
            resource_class: row.string(4)?,
            device: row.id(5)?,
            device_address: row.string(6)?,
            host: row.string(7)?,
            by: row.string_opt(8)?,
        })
    };
    tx.row(PARKED, params![handle])?.as_ref().map(read).transpose()
}

pub(crate) fn idle(tx: &mut Tx<'_>) -> Result<Vec<Idle>, Error> {
    let read = |row: &Row| {
        Ok(Idle {
            handle: row.id(0)?,
            provider: row.id(1)?,
            tried_at: row.int_opt(2)?,
            by: row.string_opt(3)?,
        })
    };
    tx.rows(IDLE, params![])?.iter().map(read).collect()
}

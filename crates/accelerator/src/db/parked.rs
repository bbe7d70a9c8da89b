//! Parked handles: rows of `attach_handles` that wait to be cleaned.

use jiff::Timestamp;
use kilonova_ids::{
    ArqId, AttachHandleId, ConsumerId, DeployableId, DeviceId, HostName, ProviderId, ResourceClass,
};
use kilonova_store::{Error, Row, Tx, params, statements};

use super::handles::{MixedCard, mixed_card};

statements! {
    /// Parks the handles of a consumer that must be cleaned.
    PARK_OF_CONSUMER = "UPDATE attach_handles SET state = 'dirty', arq_id = NULL, island_arq_id = NULL,
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
    /// Marks the handles that a consumer left dirty and that must be cleaned once its host has
    /// dropped them.
    MARK_DIRTY = "UPDATE attach_handles SET parked = 'to be cleaned'
        WHERE dirty_of = ?1 AND EXISTS (SELECT 1 FROM attributes t
            WHERE t.deployable_id = attach_handles.deployable_id AND t.name = 'on_release'
              AND t.reported = 1)";
    /// Parks the marked handles after the host has dropped them.
    PARK_DROPPED = "UPDATE attach_handles SET dirty_of = NULL, island_arq_id = NULL, updated_at = ?2
        WHERE dirty_of = ?1 AND parked IS NOT NULL RETURNING uuid";
    /// A parked handle and its cleaner.
    PARKED = "SELECT h.uuid, h.address, p.uuid AS deployable_id, p.provider_id, p.resource_class,
        d.uuid AS device_id, d.address AS device_address, d.host, d.card, d.mixed, (SELECT MIN(t.value) FROM attributes t WHERE t.deployable_id = p.id
            AND t.name = 'on_release' AND t.reported = 1) AS cleaner
        FROM attach_handles h JOIN deployables p ON p.id = h.deployable_id
        JOIN devices d ON d.id = p.device_id WHERE h.uuid = ?1 AND h.parked IS NOT NULL";
    /// Parked handles without an open order, with the end of the last attempt.
    IDLE = "SELECT h.uuid, p.provider_id, (SELECT MAX(o.updated_at) FROM device_orders o
          WHERE o.handle_id = h.uuid) AS tried_at,
        (SELECT MIN(t.value) FROM attributes t WHERE t.deployable_id = p.id
            AND t.name = 'on_release' AND t.reported = 1) AS cleaner
        FROM attach_handles h JOIN deployables p ON p.id = h.deployable_id
        WHERE h.parked IS NOT NULL AND h.dirty_of IS NULL
          AND NOT EXISTS (SELECT 1 FROM device_orders o WHERE o.open_key = h.uuid)
        ORDER BY p.provider_id, h.id";
    /// Deletes a cleaned handle if it is absent.
    DELETE_ABSENT = "DELETE FROM attach_handles WHERE uuid = ?1 AND parked IS NOT NULL
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
    pub resource_class: ResourceClass,
    pub device: DeviceId,
    pub device_address: String,
    pub host: HostName,
    /// The card, if its handles exclude each other.
    pub mixed_card: Option<MixedCard>,
    /// The cleaner, according to the host's report.
    pub cleaner: Option<String>,
}

/// A parked handle without an open order.
pub(crate) struct Idle {
    pub handle: AttachHandleId,
    pub provider: ProviderId,
    /// When the last attempt to clean it ended.
    pub tried_at: Option<Timestamp>,
    /// The cleaner, according to the host's report.
    pub cleaner: Option<String>,
}

fn handles(rows: &[Row]) -> Result<Vec<AttachHandleId>, Error> {
    rows.iter().map(|row| row.id("uuid")).collect()
}

/// Parks the handles of a consumer that must be cleaned, and returns them.
pub(crate) fn park_of_consumer(
    tx: &mut Tx<'_>,
    consumer: ConsumerId,
    now: Timestamp,
) -> Result<Vec<AttachHandleId>, Error> {
    handles(&tx.rows(PARK_OF_CONSUMER, params![consumer, now])?)
}

/// Parks the handle of a request if it must be cleaned, and returns it.
pub(crate) fn park_of_arq(
    tx: &mut Tx<'_>,
    arq: ArqId,
    now: Timestamp,
) -> Result<Vec<AttachHandleId>, Error> {
    handles(&tx.rows(PARK_OF_ARQ, params![arq, now])?)
}

/// Marks the handles that a consumer left dirty and that must be cleaned once its host has dropped
/// them; returns whether there are any.
pub(crate) fn mark_dirty(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<bool, Error> {
    Ok(tx.execute(MARK_DIRTY, params![consumer])? > 0)
}

/// Parks the marked handles of a consumer after its host has dropped them, and returns them.
pub(crate) fn park_dropped(
    tx: &mut Tx<'_>,
    consumer: ConsumerId,
    now: Timestamp,
) -> Result<Vec<AttachHandleId>, Error> {
    handles(&tx.rows(PARK_DROPPED, params![consumer, now])?)
}

/// Frees a cleaned handle, or deletes it if it is absent.
pub(crate) fn unpark(tx: &mut Tx<'_>, handle: AttachHandleId, now: Timestamp) -> Result<(), Error> {
    tx.defer(DELETE_ABSENT, params![handle])?;
    tx.defer(UNPARK, params![handle, now])?;
    Ok(())
}

/// One parked handle.
pub(crate) fn parked(tx: &mut Tx<'_>, handle: AttachHandleId) -> Result<Option<Parked>, Error> {
    let read = |row: &Row| {
        Ok(Parked {
            handle: row.id("uuid")?,
            address: row.string("address")?,
            deployable: row.id("deployable_id")?,
            provider: row.id("provider_id")?,
            resource_class: row.class("resource_class")?,
            device: row.id("device_id")?,
            device_address: row.string("device_address")?,
            host: row.host("host")?,
            mixed_card: row.bool("mixed")?.then(|| mixed_card(row)).transpose()?,
            cleaner: row.string_opt("cleaner")?,
        })
    };
    tx.row(PARKED, params![handle])?.as_ref().map(read).transpose()
}

/// The parked handles without an open order, by provider.
pub(crate) fn idle(tx: &mut Tx<'_>) -> Result<Vec<Idle>, Error> {
    let read = |row: &Row| {
        Ok(Idle {
            handle: row.id("uuid")?,
            provider: row.id("provider_id")?,
            tried_at: row.time_opt("tried_at")?,
            cleaner: row.string_opt("cleaner")?,
        })
    };
    tx.rows(IDLE, params![])?.iter().map(read).collect()
}

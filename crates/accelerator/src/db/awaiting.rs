//! Handles that external instances released and that wait until their host acknowledges a
//! generation of its documents: rows of `attach_handles` with `awaits_host` and, for the
//! generation, `awaits_word`.

use jiff::Timestamp;
use kilonova_ids::{ArqId, DeviceId, HostName, ProviderId};
use kilonova_store::{Error, Row, Tx, params, statements};

use super::handles::{MixedCard, mixed_card};

/// A handle that waits for its host's acknowledgement.
pub(crate) struct Awaiting {
    pub id: i64,
    pub provider: ProviderId,
    pub mixed_card: Option<MixedCard>,
}

/// Handles of a device that wait for their host's acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingRelease {
    /// The host.
    pub host: HostName,
    /// The device's address there.
    pub address: String,
    /// The device.
    pub device: DeviceId,
    /// Number of handles.
    pub handles: i64,
    /// Time of the oldest release.
    pub since: Timestamp,
}

/// Selects an [`Awaiting`].
macro_rules! select {
    ($condition:literal) => {
        concat!(
            "SELECT h.id, p.provider_id, d.host, d.card, d.mixed FROM attach_handles h
            JOIN deployables p ON p.id = h.deployable_id JOIN devices d ON d.id = p.device_id ",
            $condition
        )
    };
}

statements! {
    /// Makes the handle of a request dirty until its host acknowledges the release.
    AWAIT = "UPDATE attach_handles SET state = 'dirty', arq_id = NULL, awaits_word = ?2,
        awaits_host = ?4, updated_at = ?3 WHERE arq_id = ?1";
    /// Handles of a host that wait for its acknowledgement of a generation, or of an earlier one.
    ON_HOST = select!("WHERE h.awaits_host = ?1 AND h.awaits_word <= ?2");
    /// The hosts for whose acknowledgement handles wait.
    HOSTS = "SELECT DISTINCT awaits_host FROM attach_handles
        WHERE awaits_word IS NOT NULL AND awaits_host IS NOT NULL";
    /// Handles of a device that wait for an acknowledgement.
    ON_DEVICE = select!("WHERE h.awaits_word IS NOT NULL AND d.uuid = ?1");
    /// Number and age of the waiting handles, by device.
    BY_DEVICE = "SELECT d.host, d.address, d.uuid, COUNT(*) AS handles,
            MIN(COALESCE(h.updated_at, h.created_at)) AS since
        FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id JOIN devices d ON d.id = p.device_id
        WHERE h.awaits_word IS NOT NULL GROUP BY d.host, d.address, d.uuid
        ORDER BY d.host, d.address";
    /// Deletes an acknowledged handle if it is absent.
    DELETE_ABSENT = "DELETE FROM attach_handles
        WHERE id = ?1 AND awaits_word IS NOT NULL AND present = 0";
    /// Frees an acknowledged handle.
    FREE = "UPDATE attach_handles SET state = 'free', awaits_word = NULL, awaits_host = NULL,
        updated_at = ?2 WHERE id = ?1 AND awaits_word IS NOT NULL";
}

fn read(row: &Row) -> Result<Awaiting, Error> {
    let card = mixed_card(row)?;
    Ok(Awaiting {
        id: row.int("id")?,
        provider: row.id("provider_id")?,
        mixed_card: row.bool("mixed")?.then_some(card),
    })
}

/// Makes the handle of a request dirty until the host acknowledges the generation.
pub(crate) fn release_after(
    tx: &mut Tx<'_>,
    arq: ArqId,
    host: &HostName,
    generation: i64,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(AWAIT, params![arq, generation, now, host])?;
    Ok(())
}

/// Announces [`on_host`].
pub(crate) fn expect_on_host(
    tx: &mut Tx<'_>,
    host: &HostName,
    generation: i64,
) -> Result<(), Error> {
    tx.expect(ON_HOST, params![host, generation])
}

/// The hosts for whose acknowledgement handles wait.
pub(crate) fn hosts(tx: &mut Tx<'_>) -> Result<Vec<HostName>, Error> {
    tx.rows(HOSTS, params![])?.iter().map(|row| row.host("awaits_host")).collect()
}

/// The handles of a host that wait for its acknowledgement of a generation, or of an earlier one.
pub(crate) fn on_host(
    tx: &mut Tx<'_>,
    host: &HostName,
    generation: i64,
) -> Result<Vec<Awaiting>, Error> {
    tx.rows(ON_HOST, params![host, generation])?.iter().map(read).collect()
}

/// The handles of a device that wait for an acknowledgement.
pub(crate) fn on_device(tx: &mut Tx<'_>, device: DeviceId) -> Result<Vec<Awaiting>, Error> {
    tx.rows(ON_DEVICE, params![device])?.iter().map(read).collect()
}

/// The waiting handles, by device.
pub(crate) fn by_device(tx: &mut Tx<'_>) -> Result<Vec<PendingRelease>, Error> {
    let read = |row: &Row| {
        Ok(PendingRelease {
            host: row.host("host")?,
            address: row.string("address")?,
            device: row.id("uuid")?,
            handles: row.int("handles")?,
            since: row.time("since")?,
        })
    };
    tx.rows(BY_DEVICE, params![])?.iter().map(read).collect()
}

/// Frees an acknowledged handle, or deletes it if it is absent.
pub(crate) fn free(tx: &mut Tx<'_>, handle: i64, now: Timestamp) -> Result<(), Error> {
    tx.defer(DELETE_ABSENT, params![handle])?;
    tx.defer(FREE, params![handle, now])?;
    Ok(())
}

//! Rows of `attach_handles`. The unique column `arq_id` names the owner.

use std::collections::BTreeMap;

use kilonova_ids::{ArqId, AttachHandleId, ConsumerId, DeviceId, ProviderId, ascending};
use kilonova_store::{Error, Row, Tx, params, statements};

/// A row of `attach_handles`.
#[derive(Debug, Clone)]
pub(crate) struct HandleRow {
    pub id: i64,
    pub deployable_id: i64,
    pub key: HandleKey,
    pub slot: i64,
    pub state: String,
    pub present: bool,
}

/// Identifies a kind of slot of a deployable; slots with equal keys are interchangeable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HandleKey {
    /// `PCI`, `MDEV`, `TEST_PCI`, or `VFIO` for a function that keeps its driver.
    pub attach_type: String,
    pub address: String,
    /// The type of an `MDEV` or of a `VFIO` function; otherwise empty.
    pub mdev_type: String,
}

statements! {
    /// The handles of a host.
    OF_HOST = "SELECT h.id, h.deployable_id, h.attach_type, h.address, h.mdev_type, h.slot,
        h.state, h.present FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id JOIN devices d ON d.id = p.device_id
        WHERE d.host = ?1 ORDER BY h.id";
    /// The lowest free handles of a provider. On a mixed card a handle is not free while one that
    /// excludes it is assigned: the card's own function excludes its virtual functions, and a
    /// function that is passed through excludes everything else on it.
    FREE = "SELECT h.id, h.uuid, h.attach_type, h.address, h.mdev_type, d.card, d.mixed, d.host
        FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id JOIN devices d ON d.id = p.device_id
        WHERE p.provider_id = ?1 AND h.state = 'free' AND h.present = 1 AND d.health <> 'failed'
          AND NOT EXISTS (SELECT 1 FROM device_orders b WHERE b.open_key = d.uuid)
          AND (d.mixed = 0 OR NOT EXISTS (
            SELECT 1 FROM attach_handles o JOIN deployables q ON q.id = o.deployable_id
            JOIN devices e ON e.id = q.device_id
            WHERE e.host = d.host AND e.card = d.card AND o.id <> h.id AND o.state <> 'free'
              AND h.attach_type <> 'TEST_PCI' AND o.attach_type <> 'TEST_PCI'
              AND ((h.address = d.card) <> (o.address = d.card) OR (h.address = o.address
                AND (h.attach_type <> 'MDEV' OR o.attach_type <> 'MDEV')))))
        ORDER BY h.id LIMIT ?2";
    /// Writes all devices of a mixed card, so that two transactions that assign parts of it
    /// conflict instead of both finding the other part free.
    TOUCH_CARD = "UPDATE devices SET present = present WHERE host = ?1 AND card = ?2";
    /// The mixed card of a request's handle.
    CARD_OF_ARQ = "SELECT DISTINCT d.host, d.card FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id JOIN devices d ON d.id = p.device_id
        WHERE h.arq_id = ?1 AND d.mixed = 1";
    /// The mixed cards with handles that a consumer holds or left dirty.
    CARDS_OF_CONSUMER = "SELECT DISTINCT d.host, d.card FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id JOIN devices d ON d.id = p.device_id
        WHERE d.mixed = 1 AND h.id IN (SELECT id FROM attach_handles WHERE dirty_of = ?1
          UNION SELECT o.id FROM arqs a JOIN attach_handles o ON o.arq_id = a.uuid
            WHERE a.consumer_id = ?1)";
    /// The providers of a card.
    OF_CARD = "SELECT p.provider_id FROM deployables p JOIN devices d ON d.id = p.device_id
        WHERE d.host = ?1 AND d.card = ?2 ORDER BY p.provider_id";
    /// Assigns a handle if it is still free.
    TAKE = "UPDATE attach_handles SET state = 'owned', arq_id = ?2, uuid = ?3, updated_at = ?4
        WHERE id = ?1 AND state = 'free' AND arq_id IS NULL";
    /// Deletes the absent handles of a consumer.
    DROP_OF_CONSUMER = "DELETE FROM attach_handles WHERE present = 0
        AND arq_id IN (SELECT uuid FROM arqs WHERE consumer_id = ?1)";
    /// Frees the handles of a consumer.
    FREE_OF_CONSUMER = "UPDATE attach_handles SET state = 'free', arq_id = NULL, updated_at = ?2
        WHERE arq_id IN (SELECT uuid FROM arqs WHERE consumer_id = ?1)";
    /// Makes the handles of a consumer dirty until its host has dropped them.
    SOIL_OF_CONSUMER = "UPDATE attach_handles SET state = 'dirty', arq_id = NULL, dirty_of = ?1,
        updated_at = ?2 WHERE arq_id IN (SELECT uuid FROM arqs WHERE consumer_id = ?1)";
    /// Providers with handles that a consumer left dirty.
    DIRTY_PROVIDERS_OF = "SELECT DISTINCT p.provider_id FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id WHERE h.dirty_of = ?1";
    /// Deletes the absent handles that a consumer left dirty, after its host has dropped them.
    DROP_DIRTY = "DELETE FROM attach_handles WHERE dirty_of = ?1 AND parked IS NULL AND present = 0";
    /// Frees the handles that a consumer left dirty, after its host has dropped them.
    CLEAN = "UPDATE attach_handles SET state = 'free', dirty_of = NULL, updated_at = ?2
        WHERE dirty_of = ?1 AND parked IS NULL";
    /// The unavailable part of a provider: whether its device is present and not failed, and the
    /// number of dirty or excluded handles.
    WITHHELD_ON = "SELECT d.health, p.present, (SELECT COUNT(*) FROM attach_handles h
          WHERE h.deployable_id = p.id AND (h.state = 'dirty'
            OR (h.state = 'free' AND h.present = 1 AND d.mixed = 1 AND EXISTS (
            SELECT 1 FROM attach_handles o JOIN deployables q ON q.id = o.deployable_id
            JOIN devices e ON e.id = q.device_id
            WHERE e.host = d.host AND e.card = d.card AND o.id <> h.id AND o.state <> 'free'
              AND h.attach_type <> 'TEST_PCI' AND o.attach_type <> 'TEST_PCI'
              AND ((h.address = d.card) <> (o.address = d.card) OR (h.address = o.address
                AND (h.attach_type <> 'MDEV' OR o.attach_type <> 'MDEV')))))))
        FROM deployables p JOIN devices d ON d.id = p.device_id WHERE p.provider_id = ?1";
    /// Number of dirty or excluded handles, for all providers of a host that have any.
    WITHHELD_OF_HOST = "SELECT p.provider_id, COUNT(*) FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id JOIN devices d ON d.id = p.device_id
        WHERE d.host = ?1 AND (h.state = 'dirty'
          OR (h.state = 'free' AND h.present = 1 AND d.mixed = 1 AND EXISTS (
            SELECT 1 FROM attach_handles o JOIN deployables q ON q.id = o.deployable_id
            JOIN devices e ON e.id = q.device_id
            WHERE e.host = d.host AND e.card = d.card AND o.id <> h.id AND o.state <> 'free'
              AND h.attach_type <> 'TEST_PCI' AND o.attach_type <> 'TEST_PCI'
              AND ((h.address = d.card) <> (o.address = d.card) OR (h.address = o.address
                AND (h.attach_type <> 'MDEV' OR o.attach_type <> 'MDEV'))))))
        GROUP BY p.provider_id";
    /// Deletes the handle of a request if it is absent.
    DROP_OF_ARQ = "DELETE FROM attach_handles WHERE present = 0 AND arq_id = ?1";
    /// Frees the handle of a request.
    FREE_OF_ARQ = "UPDATE attach_handles SET state = 'free', arq_id = NULL, updated_at = ?2
        WHERE arq_id = ?1";
    /// Provider and host of a request's handle.
    HELD_BY_ARQ = "SELECT p.provider_id, d.host FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id JOIN devices d ON d.id = p.device_id
        WHERE h.arq_id = ?1";
    /// Makes the handle of a request dirty until its host acknowledges the release.
    AWAIT_WORD = "UPDATE attach_handles SET state = 'dirty', arq_id = NULL, awaits_word = ?2,
        awaits_host = ?4, updated_at = ?3 WHERE arq_id = ?1";
    /// Handles of a host that wait for its acknowledgement of a generation, or of an earlier one.
    AWAITING = "SELECT h.id, p.provider_id, d.host, d.card, d.mixed FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id JOIN devices d ON d.id = p.device_id
        WHERE h.awaits_host = ?1 AND h.awaits_word <= ?2";
    /// Handles of a device that wait for an acknowledgement.
    AWAITING_OF_DEVICE = "SELECT h.id, p.provider_id, d.host, d.card, d.mixed FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id JOIN devices d ON d.id = p.device_id
        WHERE h.awaits_word IS NOT NULL AND d.uuid = ?1";
    /// Number and age of the waiting handles, by device.
    AWAITED = "SELECT d.host, d.address, d.uuid, COUNT(*), MIN(COALESCE(h.updated_at, h.created_at))
        FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id JOIN devices d ON d.id = p.device_id
        WHERE h.awaits_word IS NOT NULL GROUP BY d.host, d.address, d.uuid
        ORDER BY d.host, d.address";
    /// Deletes an acknowledged handle if it is absent.
    DROP_ACKNOWLEDGED = "DELETE FROM attach_handles WHERE id = ?1 AND awaits_word IS NOT NULL AND present = 0";
    /// Frees an acknowledged handle.
    ACKNOWLEDGED = "UPDATE attach_handles SET state = 'free', awaits_word = NULL,
        awaits_host = NULL, updated_at = ?2
        WHERE id = ?1 AND awaits_word IS NOT NULL";
    /// Inserts a free handle.
    INSERT = "INSERT INTO attach_handles (uuid, deployable_id, attach_type, address, mdev_type,
        slot, state, present, created_at) VALUES (?6, ?1, ?2, ?3, ?4, ?7, 'free', 1, ?5)";
    /// Inserts eight free handles. This registers a host with many vGPUs in a third of the time.
    INSERT_EIGHT = "INSERT INTO attach_handles (uuid, deployable_id, attach_type, address,
        mdev_type, slot, state, present, created_at) VALUES
        (?6, ?1, ?2, ?3, ?4, ?7, 'free', 1, ?5), (?8, ?1, ?2, ?3, ?4, ?9, 'free', 1, ?5),
        (?10, ?1, ?2, ?3, ?4, ?11, 'free', 1, ?5), (?12, ?1, ?2, ?3, ?4, ?13, 'free', 1, ?5),
        (?14, ?1, ?2, ?3, ?4, ?15, 'free', 1, ?5), (?16, ?1, ?2, ?3, ?4, ?17, 'free', 1, ?5),
        (?18, ?1, ?2, ?3, ?4, ?19, 'free', 1, ?5), (?20, ?1, ?2, ?3, ?4, ?21, 'free', 1, ?5)";
    /// Sets whether the host has the handle.
    PRESENT = "UPDATE attach_handles SET present = ?2, updated_at = ?3 WHERE id = ?1";
    /// Deletes a handle without an owner.
    DELETE = "DELETE FROM attach_handles WHERE id = ?1 AND arq_id IS NULL";
}

/// A free handle.
pub(crate) struct FreeHandle {
    pub id: i64,
    pub uuid: AttachHandleId,
    pub key: HandleKey,
    /// The card, if assigning this handle excludes others.
    pub mixed_card: Option<String>,
    /// The host.
    pub host: String,
}

/// A card of a host whose handles exclude each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MixedCard {
    pub host: String,
    pub card: String,
}

/// The whole provider, whatever its size.
pub(crate) const ALL: i64 = i64::MAX;

fn key(row: &Row, from: usize) -> Result<HandleKey, Error> {
    Ok(HandleKey {
        attach_type: row.string(from)?,
        address: row.string(from + 1)?,
        mdev_type: row.string(from + 2)?,
    })
}

pub(crate) fn of_host(tx: &mut Tx<'_>, host: &str) -> Result<Vec<HandleRow>, Error> {
    tx.rows(OF_HOST, params![host])?
        .iter()
        .map(|row| {
            Ok(HandleRow {
                id: row.int(0)?,
                deployable_id: row.int(1)?,
                key: key(row, 2)?,
                slot: row.int(5)?,
                state: row.string(6)?,
                present: row.bool(7)?,
            })
        })
        .collect()
}

pub(crate) fn free(
    tx: &mut Tx<'_>,
    provider: ProviderId,
    count: i64,
) -> Result<Vec<FreeHandle>, Error> {
    tx.rows(FREE, params![provider, count])?
        .iter()
        .map(|row| {
            let card = row.string(5)?;
            Ok(FreeHandle {
                id: row.int(0)?,
                uuid: row.id(1)?,
                key: key(row, 2)?,
                mixed_card: row.bool(6)?.then_some(card),
                host: row.string(7)?,
            })
        })
        .collect()
}

/// Providers with handles that a consumer left dirty.
pub(crate) fn dirty_providers_of(
    tx: &mut Tx<'_>,
    consumer: ConsumerId,
) -> Result<Vec<ProviderId>, Error> {
    tx.rows(DIRTY_PROVIDERS_OF, params![consumer])?.iter().map(|row| row.id(0)).collect()
}

/// The number of handles of a provider that cannot be assigned.
pub(crate) fn withheld_on(tx: &mut Tx<'_>, provider: ProviderId) -> Result<i64, Error> {
    let Some(row) = tx.row(WITHHELD_ON, params![provider])? else { return Ok(0) };
    let nothing = row.text(0)? == super::devices::FAILED || !row.bool(1)?;
    if nothing { Ok(ALL) } else { row.int(2) }
}

/// Number of dirty or excluded handles, by provider of a host.
pub(crate) fn withheld_of_host(
    tx: &mut Tx<'_>,
    host: &str,
) -> Result<BTreeMap<ProviderId, i64>, Error> {
    let rows = tx.rows(WITHHELD_OF_HOST, params![host])?;
    rows.iter().map(|row| Ok((row.id(0)?, row.int(1)?))).collect()
}

fn mixed_card(row: &Row) -> Result<MixedCard, Error> {
    Ok(MixedCard { host: row.string(0)?, card: row.string(1)? })
}

/// The mixed card of a request's handle.
pub(crate) fn card_of_arq(tx: &mut Tx<'_>, arq: ArqId) -> Result<Option<MixedCard>, Error> {
    tx.row(CARD_OF_ARQ, params![arq])?.as_ref().map(mixed_card).transpose()
}

/// The mixed cards with handles that a consumer holds or left dirty.
pub(crate) fn cards_of_consumer(
    tx: &mut Tx<'_>,
    consumer: ConsumerId,
) -> Result<Vec<MixedCard>, Error> {
    tx.rows(CARDS_OF_CONSUMER, params![consumer])?.iter().map(mixed_card).collect()
}

/// The providers of a card.
pub(crate) fn of_card(tx: &mut Tx<'_>, card: &MixedCard) -> Result<Vec<ProviderId>, Error> {
    let rows = tx.rows(OF_CARD, params![&card.host, &card.card])?;
    rows.iter().map(|row| row.id(0)).collect()
}

/// Assigns the handle; returns whether it was still free.
pub(crate) fn take(
    tx: &mut Tx<'_>,
    id: i64,
    arq: ArqId,
    uuid: AttachHandleId,
    now: i64,
) -> Result<bool, Error> {
    Ok(tx.execute(TAKE, params![id, arq, uuid, now])? == 1)
}

pub(crate) fn free_of_arq(tx: &mut Tx<'_>, arq: ArqId, now: i64) -> Result<(), Error> {
    tx.execute(DROP_OF_ARQ, params![arq])?;
    tx.execute(FREE_OF_ARQ, params![arq, now])?;
    Ok(())
}

/// Provider and host of a request's handle.
pub(crate) fn held_by(tx: &mut Tx<'_>, arq: ArqId) -> Result<Option<(ProviderId, String)>, Error> {
    let row = tx.row(HELD_BY_ARQ, params![arq])?;
    row.map(|row| Ok((row.id(0)?, row.string(1)?))).transpose()
}

/// A handle that waits for its host's acknowledgement.
pub(crate) struct Awaiting {
    pub id: i64,
    pub provider: ProviderId,
    pub mixed_card: Option<MixedCard>,
}

fn awaiting(row: &Row) -> Result<Awaiting, Error> {
    let card = MixedCard { host: row.string(2)?, card: row.string(3)? };
    Ok(Awaiting { id: row.int(0)?, provider: row.id(1)?, mixed_card: row.bool(4)?.then_some(card) })
}

/// The handles of a host that wait for its acknowledgement of a generation, or of an earlier one.
pub(crate) fn awaiting_host(
    tx: &mut Tx<'_>,
    host: &str,
    generation: i64,
) -> Result<Vec<Awaiting>, Error> {
    tx.rows(AWAITING, params![host, generation])?.iter().map(awaiting).collect()
}

/// The handles of a device that wait for an acknowledgement.
pub(crate) fn awaiting_on(tx: &mut Tx<'_>, device: DeviceId) -> Result<Vec<Awaiting>, Error> {
    tx.rows(AWAITING_OF_DEVICE, params![device])?.iter().map(awaiting).collect()
}

/// Inserts handles of one kind. Their ids ascend with time, so that among millions of handles a new
/// one is next to the last one in the index and not on a page of its own.
pub(crate) fn insert(
    tx: &mut Tx<'_>,
    deployable_id: i64,
    key: &HandleKey,
    slots: &[i64],
    now: i64,
) -> Result<(), Error> {
    let (eights, rest) = slots.as_chunks::<8>();
    let eights = eights.iter().map(|slots| (INSERT_EIGHT, slots.as_slice()));
    let rest = rest.iter().map(|slot| (INSERT, std::slice::from_ref(slot)));
    for (statement, slots) in eights.chain(rest) {
        let mut params =
            params![deployable_id, &key.attach_type, &key.address, &key.mdev_type, now].to_vec();
        for slot in slots {
            params.push(ascending::<AttachHandleId>().into());
            params.push((*slot).into());
        }
        tx.execute(statement, &params)?;
    }
    Ok(())
}

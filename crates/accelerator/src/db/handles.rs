//! Rows of `attach_handles`. The unique column `arq_id` names the owner.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kilonova_ids::{ArqId, AttachHandleId, ConsumerId, HostName, ProviderId};
use kilonova_node_api::{GpuInstance, MigPlacement};
use kilonova_store::{Asked, Error, Row, Tx, Value, params, statements};

use super::consecutive;
use super::islands::{self, Island, is_closed};
use super::withheld::is_excluded;
use crate::states::{AttachType, HandleState};

/// A row of `attach_handles`.
#[derive(Debug, Clone)]
pub(crate) struct HandleRow {
    pub id: i64,
    pub deployable_id: i64,
    pub key: HandleKey,
    pub slot: i64,
    pub state: HandleState,
    pub present: bool,
}

impl HandleRow {
    /// True if the handle must survive a report that does not contain it.
    pub fn is_held(&self) -> bool {
        match self.state {
            HandleState::Owned | HandleState::Dirty => true,
            HandleState::Free | HandleState::Failed => false,
        }
    }
}

/// Identifies a kind of handle of a deployable; handles with equal keys are interchangeable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HandleKey {
    pub attach_type: AttachType,
    pub address: String,
    /// The type of an `MDEV` or of a `VFIO` function; otherwise empty.
    pub mdev_type: String,
}

/// A free handle.
pub(crate) struct FreeHandle {
    pub id: i64,
    pub uuid: AttachHandleId,
    pub key: HandleKey,
    /// The card, if assigning this handle excludes others.
    pub mixed_card: Option<String>,
    /// The host.
    pub host: HostName,
    /// True if it needs a GPU instance.
    pub is_mig: bool,
    /// Its GPU instance, once it is chosen.
    pub instance: Option<GpuInstance>,
}

/// A card with handles that exclude each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MixedCard {
    pub host: HostName,
    pub card: String,
}

statements! {
    /// The handles of a host.
    OF_HOST = "SELECT h.id, h.deployable_id, h.attach_type, h.address, h.mdev_type, h.slot,
        h.state, h.present FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id JOIN devices d ON d.id = p.device_id
        WHERE d.host = ?1 ORDER BY h.id";
    /// A provider's free handles with the lowest ids. A handle of a mixed card does not count as
    /// free while a handle that excludes it is assigned. No handle counts as free while an order
    /// programs the device or while its island is closed. The statement looks the device up once,
    /// not once per handle.
    FREE = concat!(
        "SELECT h.id, h.uuid, h.attach_type, h.address, h.mdev_type, d.card, d.mixed, d.host,
        d.is_mig FROM (WITH one AS MATERIALIZED (
            SELECT p.id AS deployable_id, d.host, d.card, d.mixed, d.one_type,
              CASE WHEN d.mig IS NULL THEN 0 ELSE 1 END AS is_mig
            FROM deployables p JOIN devices d ON d.id = p.device_id
            WHERE p.provider_id = ?1 AND d.health <> 'failed'
              AND NOT EXISTS (SELECT 1 FROM device_orders b WHERE b.open_key = d.uuid)
              AND NOT ",
        is_closed!(),
        ") SELECT * FROM one) d
        JOIN attach_handles h ON h.deployable_id = d.deployable_id
        WHERE h.state = 'free' AND h.present = 1
          AND (d.mixed = 0 OR NOT ",
        is_excluded!(),
        ") ORDER BY h.id LIMIT ?2"
    );
    /// Writes all devices of a mixed card, so that two transactions that assign parts of it
    /// conflict instead of each finding the other's part free.
    TOUCH_CARD = "UPDATE devices SET present = present WHERE host = ?1 AND card = ?2";
    /// The mixed card of a request's handle.
    CARD_OF_ARQ = "SELECT DISTINCT d.host, d.card FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id JOIN devices d ON d.id = p.device_id
        WHERE h.arq_id = ?1 AND d.mixed = 1";
    /// The mixed cards with handles that a consumer owns or has left dirty, and the islands that
    /// are closed for this consumer.
    SHARED_OF_CONSUMER = "SELECT DISTINCT d.host, d.card, d.mixed,
        CASE WHEN h.island_arq_id = h.arq_id OR (h.island_arq_id IS NOT NULL AND h.dirty_of IS NOT NULL)
          THEN d.island END AS island FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id JOIN devices d ON d.id = p.device_id
        WHERE (d.mixed = 1 OR h.island_arq_id IS NOT NULL) AND h.id IN (SELECT id FROM attach_handles WHERE dirty_of = ?1
          UNION SELECT o.id FROM arqs a JOIN attach_handles o ON o.arq_id = a.uuid
            WHERE a.consumer_id = ?1)";
    /// Assigns a handle if it is still free.
    TAKE = "UPDATE attach_handles SET state = 'owned', arq_id = ?2, uuid = ?3, updated_at = ?4,
        mig_start = ?5, mig_size = ?6, island_arq_id = NULL WHERE id = ?1 AND state = 'free' AND arq_id IS NULL RETURNING id";
    /// Deletes the absent handles of a consumer.
    DELETE_ABSENT_OF_CONSUMER = "DELETE FROM attach_handles WHERE present = 0
        AND arq_id IN (SELECT uuid FROM arqs WHERE consumer_id = ?1)";
    /// Frees the handles of a consumer.
    FREE_OF_CONSUMER = "UPDATE attach_handles SET state = 'free', arq_id = NULL, island_arq_id = NULL, updated_at = ?2
        WHERE arq_id IN (SELECT uuid FROM arqs WHERE consumer_id = ?1)";
    /// Makes the handles of a consumer dirty, because the host may still use them.
    LEAVE_DIRTY = "UPDATE attach_handles SET state = 'dirty', arq_id = NULL, dirty_of = ?1,
        island_arq_id = CASE WHEN island_arq_id = arq_id THEN island_arq_id END, updated_at = ?2 WHERE arq_id IN (SELECT uuid FROM arqs WHERE consumer_id = ?1)";
    /// Providers with handles that a consumer left dirty.
    DIRTY_PROVIDERS_OF = "SELECT DISTINCT p.provider_id FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id WHERE h.dirty_of = ?1";
    /// Providers of a host with handles that a consumer left dirty.
    DIRTY_PROVIDERS_ON = "SELECT DISTINCT p.provider_id FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id JOIN devices d ON d.id = p.device_id
        WHERE h.dirty_of = ?1 AND d.host = ?2";
    /// Deletes the absent handles that a consumer left dirty, after its host has dropped them.
    DELETE_ABSENT_DIRTY = "DELETE FROM attach_handles
        WHERE dirty_of = ?1 AND parked IS NULL AND present = 0";
    /// Frees the handles that a consumer left dirty, after its host has dropped them.
    FREE_DIRTY = "UPDATE attach_handles SET state = 'free', dirty_of = NULL, island_arq_id = NULL, updated_at = ?2
        WHERE dirty_of = ?1 AND parked IS NULL";
    /// Deletes the handle of a request if it is absent.
    DELETE_ABSENT_OF_ARQ = "DELETE FROM attach_handles WHERE present = 0 AND arq_id = ?1";
    /// Frees the handle of a request.
    FREE_OF_ARQ = "UPDATE attach_handles SET state = 'free', arq_id = NULL, updated_at = ?2
        WHERE arq_id = ?1";
    /// The provider and host of a request's handle.
    HELD_BY_ARQ = "SELECT p.provider_id, d.host FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id JOIN devices d ON d.id = p.device_id
        WHERE h.arq_id = ?1";
    /// Inserts handles.
    INSERT = "INSERT INTO attach_handles (uuid, deployable_id, attach_type, address, mdev_type,
        slot, state, present, created_at) VALUES ({}, {}, {}, {}, {}, {}, {}, {}, {})";
    /// Sets whether the host has the handle.
    SET_PRESENT = "UPDATE attach_handles SET present = ?2, updated_at = ?3 WHERE id = ?1";
    /// Deletes a handle without an owner.
    DELETE = "DELETE FROM attach_handles WHERE id = ?1 AND arq_id IS NULL";
}

/// Reads the columns `attach_type`, `address` and `mdev_type`.
pub(super) fn key(row: &Row) -> Result<HandleKey, Error> {
    Ok(HandleKey {
        attach_type: AttachType::read(row, "attach_type")?,
        address: row.string("address")?,
        mdev_type: row.string("mdev_type")?,
    })
}

/// Announces [`of_host`].
pub(crate) fn expect_of_host(tx: &mut Tx<'_>, host: &HostName) -> Result<(), Error> {
    tx.expect(OF_HOST, params![host])
}

pub(crate) fn of_host(tx: &mut Tx<'_>, host: &HostName) -> Result<Vec<HandleRow>, Error> {
    let read = |row: &Row| {
        Ok(HandleRow {
            id: row.int("id")?,
            deployable_id: row.int("deployable_id")?,
            key: key(row)?,
            slot: row.int("slot")?,
            state: HandleState::read(row, "state")?,
            present: row.bool("present")?,
        })
    };
    tx.rows(OF_HOST, params![host])?.iter().map(read).collect()
}

/// Announces [`free`].
pub(crate) fn expect_free(tx: &mut Tx<'_>, provider: ProviderId, count: i64) -> Result<(), Error> {
    tx.expect(FREE, params![provider, count])
}

/// At most `count` free handles of a provider, those with the lowest ids.
pub(crate) fn free(
    tx: &mut Tx<'_>,
    provider: ProviderId,
    count: i64,
) -> Result<Vec<FreeHandle>, Error> {
    let read = |row: &Row| {
        let card = row.string("card")?;
        Ok(FreeHandle {
            id: row.int("id")?,
            uuid: row.id("uuid")?,
            key: key(row)?,
            mixed_card: row.bool("mixed")?.then_some(card),
            host: row.host("host")?,
            is_mig: row.bool("is_mig")?,
            instance: None,
        })
    };
    tx.rows(FREE, params![provider, count])?.iter().map(read).collect()
}

/// Makes transactions conflict if both assign parts of a mixed card.
pub(crate) fn touch_card(tx: &mut Tx<'_>, host: &HostName, card: &str) -> Result<(), Error> {
    tx.defer(TOUCH_CARD, params![host, card])?;
    Ok(())
}

/// Makes a transaction that frees handles of mixed cards conflict with one that assigns parts of
/// them. Otherwise each would compute the reserved amounts from exclusions that the other changes.
pub(crate) fn touch_cards<'a>(
    tx: &mut Tx<'_>,
    cards: impl IntoIterator<Item = &'a MixedCard>,
) -> Result<(), Error> {
    cards.into_iter().try_for_each(|one| touch_card(tx, &one.host, &one.card))
}

pub(super) fn mixed_card(row: &Row) -> Result<MixedCard, Error> {
    Ok(MixedCard { host: row.host("host")?, card: row.string("card")? })
}

/// The mixed card of a request's handle.
pub(crate) fn card_of_arq(tx: &mut Tx<'_>, arq: ArqId) -> Result<Option<MixedCard>, Error> {
    tx.row(CARD_OF_ARQ, params![arq])?.as_ref().map(mixed_card).transpose()
}

/// The cards and islands on which the handles of a consumer exclude others.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The mixed cards.
    pub cards: Vec<MixedCard>,
    /// The islands that are closed for this consumer.
    pub islands: BTreeSet<Island>,
}

/// Announces [`shared_of_consumer`].
pub(crate) fn expect_shared_of_consumer(
    tx: &mut Tx<'_>,
    consumer: ConsumerId,
) -> Result<(), Error> {
    tx.expect(SHARED_OF_CONSUMER, params![consumer])
}

/// The mixed cards with handles that a consumer owns or has left dirty, and the islands that are
/// closed for this consumer.
pub(crate) fn shared_of_consumer(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<Shared, Error> {
    let mut shared = Shared::default();
    for row in tx.rows(SHARED_OF_CONSUMER, params![consumer])? {
        if row.bool("mixed")? {
            shared.cards.push(mixed_card(&row)?);
        }
        shared.islands.extend(islands::read(&row)?);
    }
    Ok(shared)
}

pub(super) fn providers(rows: &[Row]) -> Result<Vec<ProviderId>, Error> {
    rows.iter().map(|row| row.id("provider_id")).collect()
}

/// Asks the store to assign a handle; [`taken`] reads the result.
pub(crate) fn ask_take(
    tx: &mut Tx<'_>,
    id: i64,
    arq: ArqId,
    uuid: AttachHandleId,
    place: Option<MigPlacement>,
    now: Timestamp,
) -> Result<Asked, Error> {
    let (start, size) =
        (place.map(|one| i64::from(one.start)), place.map(|one| i64::from(one.size)));
    tx.ask(TAKE, params![id, arq, uuid, now, start, size])
}

/// True if the handle was still free and is assigned now.
pub(crate) fn taken(tx: &mut Tx<'_>, asked: Asked) -> Result<bool, Error> {
    Ok(tx.answer_row(asked)?.is_some())
}

/// Frees the handle of a request, or deletes it if it is absent.
pub(crate) fn free_of_arq(tx: &mut Tx<'_>, arq: ArqId, now: Timestamp) -> Result<(), Error> {
    tx.defer(DELETE_ABSENT_OF_ARQ, params![arq])?;
    tx.defer(FREE_OF_ARQ, params![arq, now])?;
    Ok(())
}

/// Frees the handles of a consumer's requests, and deletes absent ones.
pub(crate) fn free_of_consumer(
    tx: &mut Tx<'_>,
    consumer: ConsumerId,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(DELETE_ABSENT_OF_CONSUMER, params![consumer])?;
    tx.defer(FREE_OF_CONSUMER, params![consumer, now])?;
    Ok(())
}

/// Makes the handles of a consumer's requests dirty, and deletes absent ones.
pub(crate) fn leave_dirty(
    tx: &mut Tx<'_>,
    consumer: ConsumerId,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(DELETE_ABSENT_OF_CONSUMER, params![consumer])?;
    tx.defer(LEAVE_DIRTY, params![consumer, now])?;
    Ok(())
}

/// Frees the handles that a consumer left dirty, unless they are parked, and deletes absent ones.
pub(crate) fn free_dirty(
    tx: &mut Tx<'_>,
    consumer: ConsumerId,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(DELETE_ABSENT_DIRTY, params![consumer])?;
    tx.defer(FREE_DIRTY, params![consumer, now])?;
    Ok(())
}

/// Announces [`dirty_providers_of`].
pub(crate) fn expect_dirty_providers_of(
    tx: &mut Tx<'_>,
    consumer: ConsumerId,
) -> Result<(), Error> {
    tx.expect(DIRTY_PROVIDERS_OF, params![consumer])
}

/// Providers with handles that a consumer left dirty.
pub(crate) fn dirty_providers_of(
    tx: &mut Tx<'_>,
    consumer: ConsumerId,
) -> Result<Vec<ProviderId>, Error> {
    providers(&tx.rows(DIRTY_PROVIDERS_OF, params![consumer])?)
}

/// Providers of a host with handles that a consumer left dirty.
pub(crate) fn dirty_providers_on(
    tx: &mut Tx<'_>,
    host: &HostName,
    consumer: ConsumerId,
) -> Result<Vec<ProviderId>, Error> {
    providers(&tx.rows(DIRTY_PROVIDERS_ON, params![consumer, host])?)
}

/// Provider and host of a request's handle.
pub(crate) fn held_by(
    tx: &mut Tx<'_>,
    arq: ArqId,
) -> Result<Option<(ProviderId, HostName)>, Error> {
    let row = tx.row(HELD_BY_ARQ, params![arq])?;
    row.map(|row| Ok((row.id("provider_id")?, row.host("host")?))).transpose()
}

/// A free handle to insert.
pub(crate) struct NewHandle<'a> {
    pub deployable_id: i64,
    pub key: &'a HandleKey,
    pub slot: i64,
}

/// Inserts free handles. Their ids ascend with time. In an index of millions of handles, new rows
/// are therefore adjacent instead of each on a page of its own.
pub(crate) fn insert(tx: &mut Tx<'_>, new: &[NewHandle<'_>], now: Timestamp) -> Result<(), Error> {
    let row = |(id, new): (AttachHandleId, &NewHandle<'_>)| -> [Value; 9] {
        [
            id.into(),
            new.deployable_id.into(),
            new.key.attach_type.into(),
            (&new.key.address).into(),
            (&new.key.mdev_type).into(),
            new.slot.into(),
            HandleState::Free.into(),
            true.into(),
            now.into(),
        ]
    };
    let rows: Vec<_> = consecutive().zip(new).map(row).collect();
    tx.defer_rows(INSERT, &rows)
}

/// Sets whether the host has the handle.
pub(crate) fn set_present(
    tx: &mut Tx<'_>,
    id: i64,
    present: bool,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(SET_PRESENT, params![id, present, now])?;
    Ok(())
}

/// Deletes a handle, unless it has an owner.
pub(crate) fn delete(tx: &mut Tx<'_>, id: i64) -> Result<(), Error> {
    tx.defer(DELETE, params![id])?;
    Ok(())
}

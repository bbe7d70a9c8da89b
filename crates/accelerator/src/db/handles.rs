//! Rows of `attach_handles`. `arq_id` names the owner and is unique.

use std::collections::BTreeMap;

use kilonova_ids::{ArqId, AttachHandleId, ConsumerId, ProviderId};
use kilonova_store::{Error, Row, Tx, params, statements};

/// A handle as it is kept.
#[derive(Debug, Clone)]
pub(crate) struct HandleRow {
    pub id: i64,
    pub deployable_id: i64,
    pub key: HandleKey,
    pub slot: i64,
    pub state: String,
    pub present: bool,
}

/// What tells the kinds of slots of a deployable apart; slots of one key are interchangeable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HandleKey {
    /// `PCI`, `MDEV`, `TEST_PCI`, and `VFIO` for a function that keeps its driver.
    pub attach_type: String,
    pub address: String,
    /// Type of an `MDEV`, or that a `VFIO` function is given; else empty.
    pub mdev_type: String,
}

statements! {
    /// The handles of a host.
    OF_HOST = "SELECT h.id, h.deployable_id, h.attach_type, h.address, h.mdev_type, h.slot,
        h.state, h.present FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id JOIN devices d ON d.id = p.device_id
        WHERE d.host = ?1 ORDER BY h.id";
    /// The lowest free handles of a provider. A PCI handle with its device's own address is the
    /// whole device: it is not free while a part of the device is taken, nor a part while it is.
    FREE = "SELECT h.id, h.uuid, h.attach_type, h.address, h.mdev_type FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id JOIN devices d ON d.id = p.device_id
        WHERE p.provider_id = ?1 AND h.state = 'free' AND h.present = 1
          AND (h.attach_type NOT IN ('PCI', 'VFIO') OR NOT EXISTS (
            SELECT 1 FROM attach_handles o JOIN deployables q ON q.id = o.deployable_id
            WHERE q.device_id = p.device_id AND o.id <> h.id AND o.state <> 'free'
              AND (h.address = d.address
                OR (o.address = d.address AND o.attach_type IN ('PCI', 'VFIO')))))
        ORDER BY h.id LIMIT ?2";
    /// Whoever takes a part of a device touches the device: two at once must not both find that the
    /// other has taken nothing.
    TOUCH_DEVICE = "UPDATE devices SET present = present WHERE id = (SELECT p.device_id
        FROM attach_handles h JOIN deployables p ON p.id = h.deployable_id WHERE h.id = ?1)";
    /// Takes a handle, if it is still free.
    TAKE = "UPDATE attach_handles SET state = 'owned', arq_id = ?2, uuid = ?3, updated_at = ?4
        WHERE id = ?1 AND state = 'free' AND arq_id IS NULL";
    /// Drops the vanished handles of a consumer.
    DROP_OF_CONSUMER = "DELETE FROM attach_handles WHERE present = 0
        AND arq_id IN (SELECT uuid FROM arqs WHERE consumer_id = ?1)";
    /// Frees the handles of a consumer.
    FREE_OF_CONSUMER = "UPDATE attach_handles SET state = 'free', arq_id = NULL, updated_at = ?2
        WHERE arq_id IN (SELECT uuid FROM arqs WHERE consumer_id = ?1)";
    /// The handles of a consumer are nobody's, and not free before its host has dropped them.
    SOIL_OF_CONSUMER = "UPDATE attach_handles SET state = 'dirty', arq_id = NULL, dirty_of = ?1,
        updated_at = ?2 WHERE arq_id IN (SELECT uuid FROM arqs WHERE consumer_id = ?1)";
    /// Providers on which a consumer left handles dirty.
    SOILED_BY = "SELECT DISTINCT p.provider_id FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id WHERE h.dirty_of = ?1";
    /// The host has dropped what a consumer left dirty.
    CLEAN = "UPDATE attach_handles SET state = 'free', dirty_of = NULL, updated_at = ?2
        WHERE dirty_of = ?1";
    /// How many handles of a provider are dirty.
    DIRTY_ON = "SELECT COUNT(*) FROM attach_handles h JOIN deployables p ON p.id = h.deployable_id
        WHERE p.provider_id = ?1 AND h.state = 'dirty'";
    /// The same for all providers of a host that have any.
    DIRTY_OF_HOST = "SELECT p.provider_id, COUNT(*) FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id JOIN devices d ON d.id = p.device_id
        WHERE d.host = ?1 AND h.state = 'dirty' GROUP BY p.provider_id";
    /// Drops the handle of a request if it has vanished.
    DROP_OF_ARQ = "DELETE FROM attach_handles WHERE present = 0 AND arq_id = ?1";
    /// Frees the handle of a request.
    FREE_OF_ARQ = "UPDATE attach_handles SET state = 'free', arq_id = NULL, updated_at = ?2
        WHERE arq_id = ?1";
    /// A new, free handle.
    INSERT = "INSERT INTO attach_handles (uuid, deployable_id, attach_type, address, mdev_type,
        slot, state, present, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'free', 1, ?7)";
    /// The host has it, or no longer.
    PRESENT = "UPDATE attach_handles SET present = ?2, updated_at = ?3 WHERE id = ?1";
    /// Removes a handle that nobody owns.
    DELETE = "DELETE FROM attach_handles WHERE id = ?1 AND arq_id IS NULL";
}

/// A handle that may be taken.
pub(crate) struct FreeHandle {
    pub id: i64,
    pub uuid: AttachHandleId,
    pub key: HandleKey,
}

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
        .map(|row| Ok(FreeHandle { id: row.int(0)?, uuid: row.id(1)?, key: key(row, 2)? }))
        .collect()
}

/// Providers on which a consumer left handles dirty.
pub(crate) fn soiled_by(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<Vec<ProviderId>, Error> {
    tx.rows(SOILED_BY, params![consumer])?.iter().map(|row| row.id(0)).collect()
}

/// How many handles of a provider are dirty.
pub(crate) fn dirty_on(tx: &mut Tx<'_>, provider: ProviderId) -> Result<i64, Error> {
    tx.row(DIRTY_ON, params![provider])?.map_or(Ok(0), |row| row.int(0))
}

/// How many handles are dirty, by provider of a host.
pub(crate) fn dirty_of_host(
    tx: &mut Tx<'_>,
    host: &str,
) -> Result<BTreeMap<ProviderId, i64>, Error> {
    tx.rows(DIRTY_OF_HOST, params![host])?.iter().map(|row| Ok((row.id(0)?, row.int(1)?))).collect()
}

/// Takes the handle and says whether it was still free.
pub(crate) fn take(
    tx: &mut Tx<'_>,
    id: i64,
    arq: ArqId,
    uuid: AttachHandleId,
    now: i64,
) -> Result<bool, Error> {
    Ok(tx.execute(TAKE, params![id, arq, uuid, now])? == 1)
}

pub(crate) fn give_back(tx: &mut Tx<'_>, arq: ArqId, now: i64) -> Result<(), Error> {
    tx.execute(DROP_OF_ARQ, params![arq])?;
    tx.execute(FREE_OF_ARQ, params![arq, now])?;
    Ok(())
}

pub(crate) fn insert(
    tx: &mut Tx<'_>,
    deployable_id: i64,
    key: &HandleKey,
    slot: i64,
    now: i64,
) -> Result<(), Error> {
    tx.execute(
        INSERT,
        params![
            AttachHandleId::new_v4(),
            deployable_id,
            &key.attach_type,
            &key.address,
            &key.mdev_type,
            slot,
            now
        ],
    )?;
    Ok(())
}

//! Closed islands: one consumer has all of an island to itself.
//!
//! The mark is `attach_handles.island_arq_id`, the request to which the island of the handle's device belongs. It
//! counts only while that request owns the handle, or while a host that is down may still use the handle. Assigning the handle
//! to another request therefore opens the island, regardless of how the first request was released.

use kilonova_ids::{ConsumerId, HostName, ProviderId};
use kilonova_store::{Error, Row, Tx, params, statements};

/// The devices `x` with a handle that closes their island.
macro_rules! closing {
    () => {
        " FROM devices x JOIN deployables y ON y.device_id = x.id
            JOIN attach_handles z ON z.deployable_id = y.id
            WHERE z.island_arq_id IS NOT NULL AND (z.island_arq_id = z.arq_id OR z.dirty_of IS NOT NULL)"
    };
}

/// True for a device `d` in a closed island.
macro_rules! is_closed {
    () => {
        concat!(
            "(d.island IS NOT NULL AND EXISTS (SELECT 1",
            $crate::db::islands::closing!(),
            " AND x.host = d.host AND x.island = d.island))"
        )
    };
}
pub(super) use is_closed;

/// The closed islands of host `?1`.
macro_rules! closed_of_host {
    () => {
        concat!(
            "SELECT DISTINCT x.island",
            $crate::db::islands::closing!(),
            " AND x.host = ?1 AND x.island IS NOT NULL"
        )
    };
}
pub(super) use {closed_of_host, closing};

/// An island of a host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Island {
    pub host: HostName,
    /// The address of its first card.
    pub first: String,
}

statements! {
    /// The island of a provider's device.
    OF_PROVIDER = "SELECT d.host, d.island FROM deployables p JOIN devices d ON d.id = p.device_id
        WHERE p.provider_id = ?1";
    /// The providers of an island, whether present or absent.
    PROVIDERS = "SELECT p.provider_id FROM devices d JOIN deployables p ON p.device_id = d.id
        WHERE d.host = ?1 AND d.island = ?2";
    /// A handle that another consumer owns or may still use, in an island.
    OF_ANOTHER = "SELECT h.id FROM devices d JOIN deployables p ON p.device_id = d.id
        JOIN attach_handles h ON h.deployable_id = p.id
        WHERE d.host = ?1 AND d.island = ?2 AND h.state IN ('owned', 'dirty')
          AND NOT EXISTS (SELECT 1 FROM arqs a WHERE a.uuid = h.arq_id AND a.consumer_id = ?3)
        LIMIT 1";
    /// Closes an island for the requests of a consumer.
    CLOSE = "UPDATE attach_handles SET island_arq_id = arq_id
        WHERE arq_id IN (SELECT uuid FROM arqs WHERE consumer_id = ?3)
          AND deployable_id IN (SELECT p.id FROM devices d JOIN deployables p ON p.device_id = d.id
            WHERE d.host = ?1 AND d.island = ?2)";
    /// Writes the devices of an island. Transactions that close or open it or assign parts of it therefore conflict,
    /// and the second reads what the first has written.
    TOUCH = "UPDATE devices SET present = present WHERE host = ?1 AND island = ?2";
}

/// The island of a provider's device, if it is in one.
pub(crate) fn of_provider(tx: &mut Tx<'_>, provider: ProviderId) -> Result<Option<Island>, Error> {
    let row = tx.row(OF_PROVIDER, params![provider])?;
    Ok(row.as_ref().map(read).transpose()?.flatten())
}

/// Reads the columns `host` and `island`.
pub(super) fn read(row: &Row) -> Result<Option<Island>, Error> {
    let Some(first) = row.string_opt("island")? else { return Ok(None) };
    Ok(Some(Island { host: row.host("host")?, first }))
}

/// The providers of an island.
pub(crate) fn providers(tx: &mut Tx<'_>, island: &Island) -> Result<Vec<ProviderId>, Error> {
    super::handles::providers(&tx.rows(PROVIDERS, params![&island.host, &island.first])?)
}

/// True if another consumer owns a handle of an island or may still use one.
pub(crate) fn is_of_another(
    tx: &mut Tx<'_>,
    island: &Island,
    consumer: ConsumerId,
) -> Result<bool, Error> {
    Ok(tx.row(OF_ANOTHER, params![&island.host, &island.first, consumer])?.is_some())
}

/// Closes an island for a consumer.
pub(crate) fn close(tx: &mut Tx<'_>, island: &Island, consumer: ConsumerId) -> Result<(), Error> {
    tx.defer(CLOSE, params![&island.host, &island.first, consumer])?;
    Ok(())
}

/// Makes transactions conflict if both close or open an island.
pub(crate) fn touch(tx: &mut Tx<'_>, island: &Island) -> Result<(), Error> {
    tx.defer(TOUCH, params![&island.host, &island.first])?;
    Ok(())
}

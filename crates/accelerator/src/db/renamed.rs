//! Moves the rows of a deleted host to the host under which its machine has registered.

use kilonova_ids::HostName;
use kilonova_store::{Error, Tx, params, statements};

statements! {
    /// Devices of a host whose address another host has as well: its own row, and the other host's.
    AT_BOTH = "SELECT d.id AS former, o.id AS own FROM devices d
        JOIN devices o ON o.host = ?2 AND o.address = d.address WHERE d.host = ?1";
    /// Moves the deployables of a device to another one.
    MOVE_DEPLOYABLES = "UPDATE deployables SET device_id = ?2 WHERE device_id = ?1";
    /// Deletes a device.
    DELETE = "DELETE FROM devices WHERE id = ?1";
    /// Moves the devices of a host.
    MOVE_DEVICES = "UPDATE devices SET host = ?2 WHERE host = ?1";
    /// Moves the open orders of a host. They are not in any generation of the other one yet.
    MOVE_ORDERS = "UPDATE device_orders SET host = ?2, generation = NULL
        WHERE host = ?1 AND state = 'open' RETURNING uuid";
}

/// Moves the devices, deployables, handles and open orders of a host to another. Returns true if there is an open
/// order.
pub(crate) fn rename(tx: &mut Tx<'_>, from: &HostName, to: &HostName) -> Result<bool, Error> {
    for row in tx.rows(AT_BOTH, params![from, to])? {
        let (former, own) = (row.int("former")?, row.int("own")?);
        tx.defer(MOVE_DEPLOYABLES, params![former, own])?;
        tx.defer(DELETE, params![former])?;
    }
    tx.defer(MOVE_DEVICES, params![from, to])?;
    Ok(!tx.rows(MOVE_ORDERS, params![from, to])?.is_empty())
}

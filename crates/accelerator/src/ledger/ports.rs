//! Accelerator requests of ports. This service knows nothing of networks: it stores the port of a
//! request, and finds the request again by server and host.

use kilonova_ids::{ArqId, PortId, ServerId};
use kilonova_node_api::Attachment;
use kilonova_store::{Tx, params};

use super::bind::attachment;
use crate::Error;
use crate::db::arqs;
use crate::db::handles::HandleKey;

/// The device of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortDevice {
    /// The port.
    pub port: PortId,
    /// The request.
    pub arq: ArqId,
    /// The description for the node.
    pub attachment: Attachment,
}

/// Records that a request belongs to a port.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn is_port(tx: &mut Tx<'_>, arq: ArqId, port: PortId) -> Result<(), Error> {
    tx.execute(arqs::SET_PORT, params![arq, port])?;
    Ok(())
}

/// The devices of a server's ports on a host, one per port. A request of the server itself takes
/// precedence over one of its migration.
pub fn of_ports(tx: &mut Tx<'_>, server: ServerId, host: &str) -> Result<Vec<PortDevice>, Error> {
    let mut found: Vec<PortDevice> = Vec::new();
    for row in tx.rows(arqs::OF_PORTS, params![server, host])? {
        let port = row.id(0)?;
        if found.iter().any(|device| device.port == port) {
            continue;
        }
        let key = HandleKey {
            attach_type: row.string(3)?,
            address: row.string(4)?,
            mdev_type: row.string(5)?,
        };
        let attachment = attachment(&key, row.id(2)?);
        found.push(PortDevice { port, arq: row.id(1)?, attachment });
    }
    Ok(found)
}

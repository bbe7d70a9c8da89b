//! Accelerator requests of ports. This service does not handle networks: it stores the port of a
//! request, and finds the request by server and host.

use kilonova_ids::{ArqId, HostName, PortId, ServerId};
use kilonova_node_api::Attachment;
use kilonova_store::Tx;

use super::bind::attachment;
use crate::Error;
use crate::db::arqs;

/// The device of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortDevice {
    /// The port.
    pub port: PortId,
    /// The request.
    pub arq: ArqId,
    /// The description for the host.
    pub attachment: Attachment,
}

/// Records that a request belongs to a port.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn set_port(tx: &mut Tx<'_>, arq: ArqId, port: PortId) -> Result<(), Error> {
    Ok(arqs::set_port(tx, arq, port)?)
}

/// The devices of a server's ports on a host, one per port. A request of the server itself takes
/// precedence over a request of its migration.
pub fn of_ports(
    tx: &mut Tx<'_>,
    server: ServerId,
    host: &HostName,
) -> Result<Vec<PortDevice>, Error> {
    let mut found: Vec<PortDevice> = Vec::new();
    for row in arqs::of_ports(tx, server, host)? {
        if found.iter().any(|device| device.port == row.port) {
            continue;
        }
        let attachment = attachment(&row.key, row.handle, None);
        found.push(PortDevice { port: row.port, arq: row.arq, attachment });
    }
    Ok(found)
}

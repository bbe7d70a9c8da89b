//! Events from Neutron. They only signal a change; the worker reads the details.

use jiff::Timestamp;
use kilonova_compute_db::external_ports;
use kilonova_ids::{PortId, ServerId, parse_uuid_like};
use kilonova_store::Tx;

use crate::{Compute, Error, flows};

/// An event about a server's network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkEvent {
    /// The server.
    pub server: ServerId,
    /// Its kind.
    pub kind: NetworkEventKind,
    /// The port; some events from older senders do not name one.
    pub port: Option<PortId>,
}

/// The kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkEventKind {
    /// The host has connected a port.
    Plugged,
    /// The host could not connect a port.
    PlugFailed,
    /// Anything else: the ports must be read again.
    Changed,
}

impl NetworkEvent {
    /// The event with this name and status; `None` if it is not a network event.
    pub fn read(server: ServerId, name: &str, status: &str, tag: Option<&str>) -> Option<Self> {
        let kind = match (name, status) {
            ("network-vif-plugged", "failed") => NetworkEventKind::PlugFailed,
            ("network-vif-plugged", _) => NetworkEventKind::Plugged,
            ("network-changed" | "network-vif-unplugged" | "network-vif-deleted", _) => {
                NetworkEventKind::Changed
            }
            _ => return None,
        };
        Some(Self { server, kind, port: tag.and_then(parse_uuid_like) })
    }
}

/// Applies an event.
///
/// # Errors
/// Store errors only.
pub fn observe(
    tx: &mut Tx<'_>,
    compute: &Compute,
    event: &NetworkEvent,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(cloud) = &compute.neutron else { return Ok(()) };
    match (event.kind, event.port) {
        (NetworkEventKind::Plugged, Some(port)) => {
            external_ports::plug(tx, event.server, port)?;
            flows::ports_plugged(tx, compute, event.server, now)
        }
        (NetworkEventKind::PlugFailed, _) => {
            tracing::warn!(server = %event.server, port = ?event.port, "Neutron could not connect a port on its host");
            if cloud.options.vif_plugging_is_fatal {
                flows::ports_not_plugged(tx, compute, event.server, now)?;
            }
            Ok(())
        }
        (NetworkEventKind::Plugged, None) | (NetworkEventKind::Changed, _) => {
            external_ports::refresh(tx, event.server, now)?;
            cloud.queue.push_on_commit(tx, event.server);
            Ok(())
        }
    }
}

//! Neutron's ports within transactions, which write the goal and read the last views.

use std::collections::{BTreeSet, HashMap, HashSet};

use jiff::Timestamp;
use kilonova_compute_db::external_ports;
use kilonova_ids::{ArqId, HostName, PortId, SecurityGroupId, ServerId};
use kilonova_network::ledger::{GroupFacts, NetworkChange, NewPorts, ServerPort};
use kilonova_node_api::{Filters, Interface};
use kilonova_store::Tx;
use kilonova_wire::{Refusal, time};

use super::journal::{self, PortRow, Request, ServerFacts};
use super::requests::{External, SeenNetworks};
use super::view::{GroupView, PortView};
use super::{CloudNeutron, OWN_TIME};
use crate::Error;
use crate::boot::PortResources;
use crate::ports::AddressChange;
use crate::ports::networks::{
    GuestPorts, Networks, PortOwner, Requested, ResolvedPort, ServerPorts,
};
use crate::ports::neutron::{Connection, Source, Wish};
use crate::ports::profile::of_port;
use crate::ports::request::{NetworkRequest, PortRequest};

impl CloudNeutron {
    /// The ports of a server's guest on a host. Calls `change` if the goal does not include that host yet.
    fn guest_on(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        host: &HostName,
        change: fn(
            &mut Tx<'_>,
            ServerId,
            &HostName,
            Timestamp,
        ) -> Result<(), kilonova_compute_db::Error>,
    ) -> Result<GuestPorts, Error> {
        let Some(row) = external_ports::find(tx, server)? else {
            return Ok(GuestPorts::default());
        };
        let ports = journal::ports(tx, server)?;
        if row.host.as_ref() == Some(host) && row.is_bound {
            let are_awaited = self.waits_for_plugs() && !are_plugged(&ports);
            return Ok(GuestPorts::now(present(&ports)).awaited(are_awaited));
        }
        if row.next_host.as_ref() == Some(host) && row.is_prepared {
            return Ok(GuestPorts::now(prepared(&ports)));
        }
        if row.host.as_ref() != Some(host) && row.next_host.as_ref() != Some(host) {
            change(tx, server, host, time::now())?;
        } else {
            // Writes the row, so that this transaction conflicts with a worker that is settling the goal: otherwise the
            // worker would not see the document that it must deliver.
            external_ports::refresh(tx, server, time::now())?;
        }
        self.queue.push_on_commit(tx, server);
        Ok(GuestPorts::later().awaited(self.waits_for_plugs()))
    }

    /// Queues a server whose goal has changed.
    fn changed(&self, tx: &mut Tx<'_>, server: ServerId) {
        self.queue.push_on_commit(tx, server);
    }

    /// Adds the row of a server that had no connections before.
    fn begin(
        tx: &mut Tx<'_>,
        server: PortOwner<'_>,
        groups: &[SecurityGroupId],
        now: Timestamp,
    ) -> Result<(), Error> {
        let facts = ServerFacts {
            zone: server.zone().to_owned(),
            hostname: server.spec.hostname.clone(),
            groups: groups.to_vec(),
        };
        let (body, due) = (journal::to_text(&facts)?, time::after(now, OWN_TIME));
        external_ports::add(tx, server.id, server.project, &body, server.host, now, due)?;
        Ok(())
    }

    /// Adds a connection. The port must not be another server's.
    fn connect(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        ordinal: i64,
        connection: &Connection,
    ) -> Result<(), Error> {
        let supplied = match &connection.source {
            Source::Existing(port) => Some(port.id),
            Source::New { .. } | Source::Allocated => None,
        };
        if let Some(port) = supplied
            && external_ports::owner_of_port(tx, port)?.is_some()
        {
            return Err(Refusal::conflict(format!("Port {port} is still in use.")).into());
        }
        let device_profile = match &connection.source {
            Source::Existing(port) if is_accelerator(&port.vnic_type) => {
                port.device_profile.clone()
            }
            Source::Existing(_) | Source::New { .. } | Source::Allocated => None,
        };
        let (wish, tag) = (Wish::from(connection), connection.tag.clone());
        let resources = connection.resources().map(|found| found.request).unwrap_or_default();
        let request = journal::to_text(&Request { wish, tag, device_profile, resources })?;
        Ok(external_ports::add_port(tx, server, ordinal, supplied, &request)?)
    }
}

/// True if every port of a server is plugged or is being detached.
pub(crate) fn is_plugged(tx: &mut Tx<'_>, server: ServerId) -> Result<bool, Error> {
    let rows = external_ports::of_server(tx, server)?;
    Ok(rows.iter().all(|row| row.is_plugged || row.is_detaching))
}

/// True if a live migration waits until a host has plugged ports of the server.
pub(crate) fn is_awaited_on(
    tx: &mut Tx<'_>,
    server: ServerId,
    host: &HostName,
) -> Result<bool, Error> {
    Ok(journal::ports(tx, server)?.iter().any(|port| port.is_awaited_on(host)))
}

/// [`is_plugged`] for rows that have been read.
pub(super) fn are_plugged(ports: &[PortRow]) -> bool {
    ports.iter().all(|port| port.is_plugged || port.is_detaching)
}

fn is_accelerator(vnic_type: &str) -> bool {
    vnic_type == "accelerator-direct"
}

/// The interfaces of ports on their current host.
pub(super) fn present(ports: &[PortRow]) -> Vec<Interface> {
    interfaces(ports, |port| port.view.as_ref())
}

/// The interfaces of ports on the host that is being prepared.
pub(super) fn prepared(ports: &[PortRow]) -> Vec<Interface> {
    interfaces(ports, |port| port.next_view.as_ref().or(port.view.as_ref()))
}

/// The names of the security groups of ports, in the order of the ports; each group once.
pub(super) fn group_names(ports: &[PortRow]) -> Vec<String> {
    let staying = ports.iter().filter(|port| !port.is_detaching);
    let mut groups: Vec<&GroupView> = Vec::new();
    for group in staying.filter_map(|port| port.view.as_ref()).flat_map(|view| &view.groups) {
        if groups.iter().all(|known| known.id != group.id) {
            groups.push(group);
        }
    }
    groups.into_iter().map(|group| group.name.clone()).collect()
}

fn interfaces(ports: &[PortRow], view: fn(&PortRow) -> Option<&PortView>) -> Vec<Interface> {
    let staying = ports.iter().filter(|port| !port.is_detaching);
    staying.filter_map(view).map(|view| view.interface.clone()).collect()
}

impl Networks for CloudNeutron {
    fn is_external(&self) -> bool {
        true
    }

    fn expect_resolve(&self, _: &mut Tx<'_>, _: &str, _: &NetworkRequest) -> Result<(), Error> {
        Ok(())
    }

    fn resolve(
        &self,
        tx: &mut Tx<'_>,
        _: Requested<'_>,
        _: &NetworkRequest,
        groups: &[String],
        count: usize,
        seen: &SeenNetworks,
    ) -> Result<ServerPorts, Error> {
        let SeenNetworks::Read(resolved, token) = seen else { return Err(unseen()) };
        let mut connections = Vec::with_capacity(resolved.connections.len());
        for connection in &resolved.connections {
            let profile = match &connection.source {
                Source::Existing(port) if is_accelerator(&port.vnic_type) => {
                    let found = of_port(tx, port.id, port.device_profile.as_deref())?;
                    Some(found.map_err(Refusal::bad_request)?)
                }
                Source::Existing(_) | Source::New { .. } | Source::Allocated => None,
            };
            connections.push((connection.clone(), profile));
        }
        let external =
            External { connections, groups: resolved.groups.clone(), token: token.clone() };
        Ok(ServerPorts {
            near_quota: false,
            list: Vec::new(),
            groups: groups.to_vec(),
            most: resolved.servers.min(count),
            external: Some(external),
        })
    }

    fn resolve_one(
        &self,
        _: &mut Tx<'_>,
        _: Requested<'_>,
        _: &PortRequest,
    ) -> Result<ResolvedPort, Error> {
        Err(unseen())
    }

    fn ask_new(
        &self,
        _: &mut Tx<'_>,
        _: &str,
        _: &ServerPorts,
        _: usize,
    ) -> Result<NewPorts, Error> {
        Ok(NewPorts::default())
    }

    fn attach(
        &self,
        tx: &mut Tx<'_>,
        server: PortOwner<'_>,
        ports: &ServerPorts,
        _: &mut NewPorts,
        now: Timestamp,
    ) -> Result<GuestPorts, Error> {
        let Some(external) = ports.external.as_ref().filter(|ports| !ports.connections.is_empty())
        else {
            return Ok(GuestPorts::default());
        };
        Self::begin(tx, server, &external.groups, now)?;
        for (ordinal, (connection, _)) in (0..).zip(&external.connections) {
            self.connect(tx, server.id, ordinal, connection)?;
        }
        let (tokens, queue) = (self.tokens.clone(), self.queue.clone());
        let (id, token) = (server.id, external.token.clone());
        tx.on_commit(move || {
            tokens.keep(id, Some(&token));
            queue.push(id);
        });
        Ok(GuestPorts::later().awaited(self.waits_for_plugs()))
    }

    fn attach_one(
        &self,
        _: &mut Tx<'_>,
        _: PortOwner<'_>,
        _: &ResolvedPort,
        _: Timestamp,
    ) -> Result<PortId, Error> {
        Err(unseen())
    }

    fn attach_later(
        &self,
        tx: &mut Tx<'_>,
        server: PortOwner<'_>,
        seen: &SeenNetworks,
        now: Timestamp,
    ) -> Result<Option<i64>, Error> {
        let SeenNetworks::Read(resolved, token) = seen else { return Err(unseen()) };
        let Some(connection) = resolved.connections.first() else { return Err(unseen()) };
        let ordinal = match external_ports::find(tx, server.id)? {
            Some(_) => {
                let has = external_ports::of_server(tx, server.id)?;
                external_ports::change(tx, server.id, now, time::after(now, OWN_TIME))?;
                has.iter().map(|port| port.ordinal + 1).max().unwrap_or(0)
            }
            None => {
                Self::begin(tx, server, &[], now)?;
                0
            }
        };
        self.connect(tx, server.id, ordinal, connection)?;
        // The handler of this request makes the calls itself, and waits for them.
        let (tokens, id, token) = (self.tokens.clone(), server.id, token.clone());
        tx.on_commit(move || tokens.keep(id, Some(&token)));
        Ok(Some(ordinal))
    }

    fn detach(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        port: PortId,
        now: Timestamp,
    ) -> Result<(), Error> {
        external_ports::drop_port(tx, server, port)?;
        external_ports::change(tx, server, now, now)?;
        self.changed(tx, server);
        Ok(())
    }

    fn detach_all(&self, tx: &mut Tx<'_>, server: ServerId, now: Timestamp) -> Result<bool, Error> {
        let has_ports = external_ports::end(tx, server, now)?;
        self.changed(tx, server);
        Ok(has_ports)
    }

    fn interfaces(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        host: &HostName,
    ) -> Result<Vec<Interface>, Error> {
        let Some(row) = external_ports::find(tx, server)? else { return Ok(Vec::new()) };
        let ports = journal::ports(tx, server)?;
        let is_next = row.next_host.as_ref() == Some(host);
        Ok(if is_next { prepared(&ports) } else { present(&ports) })
    }

    fn move_to(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        host: &HostName,
    ) -> Result<GuestPorts, Error> {
        self.guest_on(tx, server, host, external_ports::set_host)
    }

    fn prepare(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        host: &HostName,
    ) -> Result<GuestPorts, Error> {
        self.guest_on(tx, server, host, external_ports::prepare)
    }

    fn leave(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        host: &HostName,
        now: Timestamp,
    ) -> Result<(), Error> {
        external_ports::leave(tx, server, host, now)?;
        self.changed(tx, server);
        Ok(())
    }

    fn bind(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        host: Option<&HostName>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let Some(row) = external_ports::find(tx, server)? else { return Ok(()) };
        let Some(host) = host else {
            external_ports::clear_host(tx, server, now)?;
            self.changed(tx, server);
            return Ok(());
        };
        if row.host.as_ref() == Some(host) {
            return Ok(());
        }
        if row.next_host.as_ref() == Some(host) && row.is_prepared {
            external_ports::switch(tx, server, host, now)?;
        } else {
            external_ports::set_host(tx, server, host, now)?;
        }
        self.changed(tx, server);
        Ok(())
    }

    fn set_device(
        &self,
        _: &mut Tx<'_>,
        _: ServerId,
        _: PortId,
        _: ArqId,
        _: &str,
    ) -> Result<(), Error> {
        // The worker reads the devices when it binds the ports.
        Ok(())
    }

    fn set_group(
        &self,
        _: &mut Tx<'_>,
        _: &str,
        _: ServerId,
        _: &str,
        _: bool,
        _: Timestamp,
    ) -> Result<usize, Error> {
        Err(unseen())
    }

    fn change_address(
        &self,
        _: &mut Tx<'_>,
        _: ServerId,
        _: AddressChange,
        _: Timestamp,
    ) -> Result<(), Error> {
        Err(unseen())
    }

    fn expect_ports(&self, _: &mut Tx<'_>, _: &[ServerId]) -> Result<(), Error> {
        Ok(())
    }

    fn ports(&self, tx: &mut Tx<'_>, servers: &[ServerId]) -> Result<Vec<ServerPort>, Error> {
        let rows = journal::ports_of(tx, servers)?;
        let shown = rows.iter().filter(|(_, row)| !row.is_detaching);
        let port = |(server, row): &(ServerId, PortRow)| {
            row.view.as_ref().map(|view| view.server_port(*server, row))
        };
        Ok(shown.filter_map(port).collect())
    }

    fn device_profiles(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
    ) -> Result<Vec<(PortId, Option<String>)>, Error> {
        let rows = journal::ports(tx, server)?;
        let with = rows.into_iter().filter(|row| row.device_profile.is_some() && !row.is_detaching);
        Ok(with.filter_map(|row| Some((row.port?, row.device_profile))).collect())
    }

    fn resources(&self, tx: &mut Tx<'_>, server: ServerId) -> Result<Vec<PortResources>, Error> {
        let rows = journal::ports(tx, server)?;
        let with = rows.iter().filter(|row| !row.is_detaching && !row.requested().is_empty());
        let of = |row: &PortRow| {
            Some(PortResources { port: row.port?, request: row.requested().clone() })
        };
        Ok(with.filter_map(of).collect())
    }

    fn group_names(
        &self,
        tx: &mut Tx<'_>,
        servers: &[ServerId],
    ) -> Result<HashMap<String, String>, Error> {
        let rows = journal::ports_of(tx, servers)?;
        let views = rows.into_iter().filter_map(|(_, row)| row.view);
        let groups = views.flat_map(|view| view.groups);
        Ok(groups.map(|group| (group.id, group.name)).collect())
    }

    fn groups(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        ids: &[String],
    ) -> Result<Vec<GroupFacts>, Error> {
        let rows = journal::ports(tx, server)?;
        let views = rows.iter().filter_map(|row| row.view.as_ref());
        let all: Vec<GroupFacts> = views.flat_map(PortView::group_facts).collect();
        let of = |id: &String| all.iter().find(|group| group.id.to_string() == *id).cloned();
        Ok(ids.iter().filter_map(of).collect())
    }

    fn servers_at(&self, tx: &mut Tx<'_>, text: &str) -> Result<HashSet<ServerId>, Error> {
        let text = text.to_lowercase();
        if !text.chars().all(|c| c.is_ascii_hexdigit() || matches!(c, '.' | ':')) {
            return Ok(HashSet::new());
        }
        Ok(external_ports::servers_at(tx, &text)?)
    }

    fn filters(&self, _: &mut Tx<'_>, _: &[ServerId]) -> Result<Filters, Error> {
        // Neutron's agents apply the packet filters.
        Ok(Filters::default())
    }

    fn has_changed(&self, _: &mut Tx<'_>) -> Result<bool, Error> {
        Ok(false)
    }

    fn take_changes(&self, _: &mut Tx<'_>) -> Result<Vec<NetworkChange>, Error> {
        Ok(Vec::new())
    }

    fn put_back(&self, _: &mut Tx<'_>, _: NetworkChange) -> Result<(), Error> {
        Ok(())
    }

    fn record_guest_change(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        now: Timestamp,
    ) -> Result<(), Error> {
        external_ports::refresh(tx, server, now)?;
        self.changed(tx, server);
        Ok(())
    }

    fn servers_to_reconnect(
        &self,
        _: &mut Tx<'_>,
        _: NetworkChange,
    ) -> Result<BTreeSet<ServerId>, Error> {
        Ok(BTreeSet::new())
    }

    fn servers_to_filter(
        &self,
        _: &mut Tx<'_>,
        _: &[NetworkChange],
    ) -> Result<BTreeSet<ServerId>, Error> {
        Ok(BTreeSet::new())
    }
}

/// The error if a caller did not query Neutron before its transaction.
fn unseen() -> Error {
    Refusal::internal("the request was not resolved at the external Neutron").into()
}

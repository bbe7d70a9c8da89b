//! The networks of servers: compute's only interface to them.
//!
//! Its implementations differ in where ports are stored. Our own network service keeps them in the
//! same database, so they change in the server's transaction ([`Own`](super::Own)). A cloud's
//! Neutron keeps them elsewhere, so the transaction only writes a goal ([`super::external`]). The
//! flows must never know the implementation.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use jiff::Timestamp;
use kilonova_access::Enforcer;
use kilonova_compute_db::documents::Delivery;
use kilonova_compute_db::servers::Spec;
use kilonova_ids::{ArqId, HostName, PortId, RouterId, ServerId};
use kilonova_network::ledger::{
    GroupFacts, NetworkChange, NewPorts, Place, PortSource, RouterFacts, ServerPort,
};
use kilonova_node_api::{Filters, Interface, Router};
use kilonova_store::Tx;
use kilonova_wire::Context;

use super::addresses::AddressChange;
use super::external::{External, SeenNetworks};
use super::request::{NetworkRequest, PortRequest};
use crate::Error;
use crate::boot::{PortResources, ProfileGroups};

/// The ports to attach to the servers of a request.
#[derive(Debug, Clone)]
pub struct ServerPorts {
    /// The requested ports in order, if our own service manages them.
    pub list: Vec<ResolvedPort>,
    /// Security groups by name or id; the project's default if none is named.
    pub groups: Vec<String>,
    /// True if the project is near its port quota: the transaction that creates the ports checks it again.
    pub near_quota: bool,
    /// Maximum number of servers for which the project's port quota has room.
    pub most: usize,
    /// The requested ports, if an external Neutron manages them.
    pub external: Option<External>,
}

impl Default for ServerPorts {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            groups: Vec::new(),
            near_quota: false,
            most: usize::MAX,
            external: None,
        }
    }
}

/// The interfaces of a guest on a host, and when its document may be delivered.
#[derive(Debug, Clone)]
pub struct GuestPorts {
    /// The interfaces; empty while the document is held back.
    pub interfaces: Vec<Interface>,
    /// When the host may receive the guest's document.
    pub delivery: Delivery,
    /// True if a guest that starts must be paused until its ports are plugged. If its document is held back, this
    /// is determined again when the document is delivered.
    pub are_awaited: bool,
}

impl Default for GuestPorts {
    fn default() -> Self {
        Self::now(Vec::new())
    }
}

impl GuestPorts {
    /// Ports that are ready.
    pub fn now(interfaces: Vec<Interface>) -> Self {
        Self { interfaces, delivery: Delivery::Now, are_awaited: false }
    }

    /// Ports that are not ready yet. The worker that completes them delivers the document.
    pub fn later() -> Self {
        Self { interfaces: Vec::new(), delivery: Delivery::Held, are_awaited: false }
    }

    /// Sets [`Self::are_awaited`].
    #[must_use]
    pub fn awaited(self, are_awaited: bool) -> Self {
        Self { are_awaited, ..self }
    }
}

/// One requested port, resolved.
#[derive(Debug, Clone)]
pub struct ResolvedPort {
    /// An existing port, or a new one.
    pub source: PortSource,
    /// The tag shown to the guest.
    pub tag: Option<String>,
    /// The device profile, if the port is a device.
    pub profile: Option<ProfileGroups>,
}

impl ResolvedPort {
    /// True if it is a new port to which security groups apply.
    pub(super) fn is_secure(&self) -> bool {
        matches!(self.source, PortSource::New { has_port_security: true, .. })
    }
}

impl ServerPorts {
    /// The device profiles of the ports.
    pub fn profiles(&self) -> Vec<ProfileGroups> {
        let own = self.list.iter().filter_map(|resolved| resolved.profile.clone());
        let external = self.external.iter().flat_map(|external| &external.connections);
        own.chain(external.filter_map(|(_, profile)| profile.clone())).collect()
    }

    /// The resources that the ports request from resource providers.
    pub fn resources(&self) -> Vec<PortResources> {
        let external = self.external.iter().flat_map(|external| &external.connections);
        external.filter_map(|(connection, _)| connection.resources()).collect()
    }

    /// True if the servers get no ports.
    pub fn is_empty(&self) -> bool {
        let external = self.external.as_ref();
        self.list.is_empty() && external.is_none_or(|external| external.connections.is_empty())
    }

    /// The ids of the rows on which two concurrent boots conflict.
    pub fn rows(&self) -> Vec<String> {
        let row = |resolved: &ResolvedPort| match resolved.source {
            PortSource::New { network, .. } => network.to_string(),
            PortSource::Existing(port) => port.to_string(),
        };
        let own = self.list.iter().map(row);
        let external = self.external.iter().flat_map(|external| &external.connections);
        let supplied = external.filter_map(|(connection, _)| connection.supplied());
        own.chain(supplied.map(|port| port.to_string())).collect()
    }
}

/// The server to which ports are attached.
#[derive(Debug, Clone, Copy)]
pub struct PortOwner<'a> {
    /// Its id.
    pub id: ServerId,
    /// Its project.
    pub project: &'a str,
    /// Its requested properties.
    pub spec: &'a Spec,
    /// Its host.
    pub host: &'a HostName,
}

impl PortOwner<'_> {
    /// Its availability zone, as the `device_owner` of its ports names it.
    pub fn zone(&self) -> &str {
        self.spec.availability_zone.as_deref().unwrap_or("nova")
    }
}

/// The caller of a request for ports, and the policy that applies.
#[derive(Clone, Copy)]
pub struct Requested<'a> {
    /// The compute service's policy.
    pub policy: &'a Enforcer,
    /// The caller; its project is the server's.
    pub context: &'a Context,
}

/// The networks of the cloud. Each function runs within the caller's transaction and waits only for the database. All
/// of them may fail with store errors; other errors are named.
pub trait Networks: Send + Sync {
    /// True if another service manages the ports, so that documents may be held back.
    fn is_external(&self) -> bool;

    /// Announces what [`Networks::resolve`] reads.
    fn expect_resolve(
        &self,
        tx: &mut Tx<'_>,
        project: &str,
        request: &NetworkRequest,
    ) -> Result<(), Error>;

    /// Resolves the networks and the security groups of a request for `count` servers, as far as the
    /// caller may use them: 400, 403 and 409 with Nova's messages.
    fn resolve(
        &self,
        tx: &mut Tx<'_>,
        by: Requested<'_>,
        request: &NetworkRequest,
        groups: &[String],
        count: usize,
        seen: &SeenNetworks,
    ) -> Result<ServerPorts, Error>;

    /// Resolves one more port of an existing server: 400, 403 and 409 with Nova's messages.
    fn resolve_one(
        &self,
        tx: &mut Tx<'_>,
        by: Requested<'_>,
        line: &PortRequest,
    ) -> Result<ResolvedPort, Error>;

    /// Asks for the rows that [`Networks::attach`] needs for new ports of this many servers, and checks the port quota
    /// again if the project is near it. Call it before the transaction's first round trip.
    fn ask_new(
        &self,
        tx: &mut Tx<'_>,
        project: &str,
        ports: &ServerPorts,
        servers: usize,
    ) -> Result<NewPorts, Error>;

    /// Attaches the ports of a new server. Errors have Nova's messages.
    fn attach(
        &self,
        tx: &mut Tx<'_>,
        server: PortOwner<'_>,
        ports: &ServerPorts,
        new: &mut NewPorts,
        now: Timestamp,
    ) -> Result<GuestPorts, Error>;

    /// Attaches one more port to an existing server. Errors have Nova's messages.
    fn attach_one(
        &self,
        tx: &mut Tx<'_>,
        server: PortOwner<'_>,
        port: &ResolvedPort,
        now: Timestamp,
    ) -> Result<PortId, Error>;

    /// Records one more port of an existing server if another service manages the ports, and returns its ordinal;
    /// `None` if [`Networks::attach_one`] does everything.
    fn attach_later(
        &self,
        tx: &mut Tx<'_>,
        server: PortOwner<'_>,
        seen: &SeenNetworks,
        now: Timestamp,
    ) -> Result<Option<i64>, Error>;

    /// Removes one port from a server: deletes it if it was created for the server, otherwise detaches it.
    fn detach(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        port: PortId,
        now: Timestamp,
    ) -> Result<(), Error>;

    /// Applies [`Networks::detach`] to all ports of a server. Returns true if another service must release some of them
    /// after the commit; [`crate::flows::released`] is called once it has.
    fn detach_all(&self, tx: &mut Tx<'_>, server: ServerId, now: Timestamp) -> Result<bool, Error>;

    /// The interfaces of a server's guest on a host where the server has already claimed its devices.
    fn interfaces(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        host: &HostName,
    ) -> Result<Vec<Interface>, Error>;

    /// [`Networks::interfaces`] of a guest that is created on the host. Ports that another service manages are bound
    /// to that host from now on.
    fn move_to(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        host: &HostName,
    ) -> Result<GuestPorts, Error>;

    /// [`Networks::interfaces`] of a guest that the host receives while it runs on another one. Ports that another
    /// service manages are also prepared there.
    fn prepare(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        host: &HostName,
    ) -> Result<GuestPorts, Error>;

    /// Undoes [`Networks::prepare`].
    fn leave(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        host: &HostName,
        now: Timestamp,
    ) -> Result<(), Error>;

    /// Binds the ports of a server to a host, or to none. They have no devices before
    /// [`Networks::set_device`].
    fn bind(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        host: Option<&HostName>,
        now: Timestamp,
    ) -> Result<(), Error>;

    /// Records the accelerator request and the PCI address of a port's device.
    fn set_device(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        port: PortId,
        arq: ArqId,
        slot: &str,
    ) -> Result<(), Error>;

    /// Adds a security group of a project to all ports of a server, or removes it: 404 if there is no
    /// such group or the server has no ports, 400 if a port cannot have groups. Returns the number of ports that
    /// changed.
    fn set_group(
        &self,
        tx: &mut Tx<'_>,
        project: &str,
        server: ServerId,
        name: &str,
        add: bool,
        now: Timestamp,
    ) -> Result<usize, Error>;

    /// Adds an address to a port of a server, or removes one: 400 and 404 with Nova's messages.
    fn change_address(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        change: AddressChange,
        now: Timestamp,
    ) -> Result<(), Error>;

    /// Announces [`Networks::ports`] and [`Networks::group_names`].
    fn expect_ports(&self, tx: &mut Tx<'_>, servers: &[ServerId]) -> Result<(), Error>;

    /// The ports of servers, grouped by server and in order.
    fn ports(&self, tx: &mut Tx<'_>, servers: &[ServerId]) -> Result<Vec<ServerPort>, Error>;

    /// The ports of a server that are accelerators, with their device profiles.
    fn device_profiles(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
    ) -> Result<Vec<(PortId, Option<String>)>, Error>;

    /// The resources that the ports of a server request from resource providers.
    fn resources(&self, _tx: &mut Tx<'_>, _server: ServerId) -> Result<Vec<PortResources>, Error> {
        Ok(Vec::new())
    }

    /// The names of the security groups of servers' ports, by id.
    fn group_names(
        &self,
        tx: &mut Tx<'_>,
        servers: &[ServerId],
    ) -> Result<HashMap<String, String>, Error>;

    /// Security groups of a server's ports by id.
    fn groups(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        ids: &[String],
    ) -> Result<Vec<GroupFacts>, Error>;

    /// The servers with an address that contains this text.
    fn servers_at(&self, tx: &mut Tx<'_>, text: &str) -> Result<HashSet<ServerId>, Error>;

    /// The packet filters that hosts apply to the ports of these servers.
    fn filters(&self, tx: &mut Tx<'_>, servers: &[ServerId]) -> Result<Filters, Error>;

    /// True if a change awaits delivery to hosts.
    fn has_changed(&self, tx: &mut Tx<'_>) -> Result<bool, Error>;

    /// Removes and returns the changes that await delivery; the caller must deliver them.
    fn take_changes(&self, tx: &mut Tx<'_>) -> Result<Vec<NetworkChange>, Error>;

    /// Records a change again for later delivery.
    fn put_back(&self, tx: &mut Tx<'_>, change: NetworkChange) -> Result<(), Error>;

    /// Records a change to a guest's metadata, for later delivery.
    fn record_guest_change(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        now: Timestamp,
    ) -> Result<(), Error>;

    /// The servers whose interfaces a change may affect.
    fn servers_to_reconnect(
        &self,
        tx: &mut Tx<'_>,
        change: NetworkChange,
    ) -> Result<BTreeSet<ServerId>, Error>;

    /// The servers whose hosts need new packet filters after these changes.
    fn servers_to_filter(
        &self,
        tx: &mut Tx<'_>,
        changes: &[NetworkChange],
    ) -> Result<BTreeSet<ServerId>, Error>;

    /// Announces [`Networks::routers`].
    fn expect_routers(&self, _tx: &mut Tx<'_>, _host: &HostName) -> Result<(), Error> {
        Ok(())
    }

    /// The routers of a host; empty if another service manages the routers.
    fn routers(&self, _tx: &mut Tx<'_>, _host: &HostName) -> Result<Vec<Router>, Error> {
        Ok(Vec::new())
    }

    /// The routers that a change concerns.
    fn routers_of(
        &self,
        _tx: &mut Tx<'_>,
        _change: NetworkChange,
    ) -> Result<BTreeSet<RouterId>, Error> {
        Ok(BTreeSet::new())
    }

    /// Makes the transaction conflict with every other change to the router.
    fn lock_router(&self, _tx: &mut Tx<'_>, _router: RouterId) -> Result<(), Error> {
        Ok(())
    }

    /// The gateway host of a router and the networks that it needs.
    fn router_facts(&self, _tx: &mut Tx<'_>, _router: RouterId) -> Result<RouterFacts, Error> {
        Ok(RouterFacts { place: Place::Nowhere, physical_networks: BTreeSet::new() })
    }

    /// Sets the place of a router, and binds its ports there.
    fn place_router(
        &self,
        _tx: &mut Tx<'_>,
        _router: RouterId,
        _place: &Place,
        _now: Timestamp,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// The next routers, by id, that wait for a host or are on one of these hosts.
    fn next_routers(
        &self,
        _tx: &mut Tx<'_>,
        _hosts: &[HostName],
        _after: Option<RouterId>,
    ) -> Result<Vec<RouterId>, Error> {
        Ok(Vec::new())
    }

    /// The physical networks of these routers. Omits routers without ports.
    fn router_needs(
        &self,
        _tx: &mut Tx<'_>,
        _routers: &[RouterId],
    ) -> Result<BTreeMap<RouterId, BTreeSet<String>>, Error> {
        Ok(BTreeMap::new())
    }

    /// Makes the routers of a host that is being deleted wait for another host.
    fn unplace_routers_of(
        &self,
        _tx: &mut Tx<'_>,
        _host: &HostName,
        _now: Timestamp,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Schedules a check of each router of a host whose physical networks have changed.
    fn record_host_networks_change(&self, _tx: &mut Tx<'_>, _host: &HostName) -> Result<(), Error> {
        Ok(())
    }

    /// The number of routers on each host that has any.
    fn router_load(&self, _tx: &mut Tx<'_>) -> Result<BTreeMap<HostName, i64>, Error> {
        Ok(BTreeMap::new())
    }
}

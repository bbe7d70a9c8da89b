//! Our own networks: ports are rows of the same database, and change in the transaction that creates,
//! moves or deletes their server. No port is left behind, or bound to a host other than its server's.
//!
//! The module turns calls into those of the network service's ledger, and errors into Nova's.

mod resolve;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use jiff::Timestamp;
use kilonova_ids::{ArqId, HostName, PortId, RouterId, SecurityGroupId, ServerId};
use kilonova_network::ledger::{
    self as ledger, Attach, GroupChange, GroupFacts, NetworkChange, NewPorts, PendingAddresses,
    Place, PortSource, RouterFacts, ServerPort,
};
use kilonova_node_api::{Filters, Interface, Router};
use kilonova_store::Tx;
use kilonova_wire::Refusal;
use kilonova_wire::refusal::Kind;

use super::addresses::AddressChange;
use super::attach::{cannot_apply, without_ports};
use super::external::SeenNetworks;
use super::networks::{GuestPorts, Networks, PortOwner, Requested, ResolvedPort, ServerPorts};
use super::request::{NetworkRequest, PortRequest, address_in_use, no_port};
use super::{bind, interfaces_of};
use crate::Error;

/// The network service of this process and this database.
#[derive(Debug, Clone, Copy, Default)]
pub struct Own;

impl Networks for Own {
    fn is_external(&self) -> bool {
        false
    }

    fn expect_resolve(
        &self,
        tx: &mut Tx<'_>,
        project: &str,
        request: &NetworkRequest,
    ) -> Result<(), Error> {
        resolve::expect(tx, project, request)
    }

    fn resolve(
        &self,
        tx: &mut Tx<'_>,
        by: Requested<'_>,
        request: &NetworkRequest,
        groups: &[String],
        count: usize,
        _: &SeenNetworks,
    ) -> Result<ServerPorts, Error> {
        resolve::resolve(tx, by, request, groups, count)
    }

    fn resolve_one(
        &self,
        tx: &mut Tx<'_>,
        by: Requested<'_>,
        line: &PortRequest,
    ) -> Result<ResolvedPort, Error> {
        if line.network.is_some() || line.port.is_some() {
            return resolve::resolve_one(tx, by, line);
        }
        let only = resolve::automatic_network(tx, by, |_| true)?.pop();
        let only = only.ok_or_else(|| {
            Refusal::bad_request(format!(
                "No specific network was requested and none are available for project '{}'.",
                by.context.project_id
            ))
        })?;
        Ok(ResolvedPort { tag: line.tag.clone(), ..only })
    }

    fn ask_new(
        &self,
        tx: &mut Tx<'_>,
        project: &str,
        ports: &ServerPorts,
        servers: usize,
    ) -> Result<NewPorts, Error> {
        if ports.near_quota {
            let is_new = |port: &&ResolvedPort| matches!(port.source, PortSource::New { .. });
            let more = ports.list.iter().filter(is_new).count().saturating_mul(servers);
            let more = i64::try_from(more).unwrap_or(i64::MAX);
            ledger::expect_quota(tx, project)?;
            ledger::check_quota(tx, project, more).map_err(resolve::over_quota)?;
        }
        let with_default =
            ports.groups.is_empty() && ports.list.iter().any(ResolvedPort::is_secure);
        let networks = ports.list.iter().filter_map(|resolved| match resolved.source {
            PortSource::New { network, .. } => Some(network),
            PortSource::Existing(_) => None,
        });
        Ok(NewPorts::ask(tx, project, with_default, networks)?)
    }

    fn attach(
        &self,
        tx: &mut Tx<'_>,
        server: PortOwner<'_>,
        ports: &ServerPorts,
        new: &mut NewPorts,
        now: Timestamp,
    ) -> Result<GuestPorts, Error> {
        if ports.list.is_empty() {
            return Ok(GuestPorts::default());
        }
        let groups = if !ports.list.iter().any(ResolvedPort::is_secure) {
            Vec::new()
        } else if ports.groups.is_empty() {
            vec![new.default_group(tx, server.project, now)?]
        } else {
            ledger::groups_by_name(tx, server.project, &ports.groups, now)
                .map_err(resolve::no_group)?
        };
        let mut pending = Vec::with_capacity(ports.list.len());
        for (ordinal, resolved) in ports.list.iter().enumerate() {
            let ordinal = i64::try_from(ordinal).unwrap_or(i64::MAX);
            let (_, addresses) = plug(tx, server, resolved, ordinal, &groups, new, now)?;
            pending.push((resolved.source, addresses));
        }
        if ports.list.iter().any(|resolved| resolved.profile.is_some()) {
            bind(tx, self, server.id, Some(server.host), now)?;
        }
        let interfaces = self.interfaces(tx, server.id, server.host)?;
        for (source, addresses) in pending {
            addresses.check(tx).map_err(|error| upstream_error(error, source))?;
        }
        Ok(GuestPorts::now(interfaces))
    }

    fn attach_later(
        &self,
        _: &mut Tx<'_>,
        _: PortOwner<'_>,
        _: &SeenNetworks,
        _: Timestamp,
    ) -> Result<Option<i64>, Error> {
        Ok(None)
    }

    fn interfaces(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        host: &HostName,
    ) -> Result<Vec<Interface>, Error> {
        let ports = self.ports(tx, &[server])?;
        interfaces_of(tx, ports, server, host)
    }

    fn move_to(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        host: &HostName,
    ) -> Result<GuestPorts, Error> {
        Ok(GuestPorts::now(self.interfaces(tx, server, host)?))
    }

    fn prepare(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        host: &HostName,
    ) -> Result<GuestPorts, Error> {
        self.move_to(tx, server, host)
    }

    fn leave(&self, _: &mut Tx<'_>, _: ServerId, _: &HostName, _: Timestamp) -> Result<(), Error> {
        Ok(())
    }

    fn attach_one(
        &self,
        tx: &mut Tx<'_>,
        server: PortOwner<'_>,
        port: &ResolvedPort,
        now: Timestamp,
    ) -> Result<PortId, Error> {
        if matches!(port.source, PortSource::New { .. }) {
            ledger::expect_quota(tx, server.project)?;
            ledger::check_quota(tx, server.project, 1).map_err(resolve::over_quota)?;
        }
        let groups = if port.is_secure() {
            ledger::groups_by_name(tx, server.project, &[], now).map_err(resolve::no_group)?
        } else {
            Vec::new()
        };
        let has = ledger::of_servers(tx, &[server.id])?;
        let ordinal = i64::try_from(has.len()).unwrap_or(i64::MAX);
        let new = &mut NewPorts::default();
        let (id, addresses) = plug(tx, server, port, ordinal, &groups, new, now)?;
        addresses.check(tx).map_err(|error| upstream_error(error, port.source))?;
        Ok(id)
    }

    fn detach(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        port: PortId,
        now: Timestamp,
    ) -> Result<(), Error> {
        Ok(ledger::detach(tx, server, port, now)?)
    }

    fn detach_all(&self, tx: &mut Tx<'_>, server: ServerId, now: Timestamp) -> Result<bool, Error> {
        ledger::detach_all(tx, server, now)?;
        Ok(false)
    }

    fn bind(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        host: Option<&HostName>,
        now: Timestamp,
    ) -> Result<(), Error> {
        Ok(ledger::bind(tx, server, host, now)?)
    }

    fn set_device(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        port: PortId,
        arq: ArqId,
        slot: &str,
    ) -> Result<(), Error> {
        Ok(ledger::set_device(tx, server, port, arq, slot)?)
    }

    fn set_group(
        &self,
        tx: &mut Tx<'_>,
        project: &str,
        server: ServerId,
        name: &str,
        add: bool,
        now: Timestamp,
    ) -> Result<usize, Error> {
        let missing =
            || Refusal::not_found(format!("Security group {} not found.", name.escape_debug()));
        let found = ledger::groups_by_name(tx, project, &[name.to_owned()], now);
        let found = found.map_err(|error| match error {
            kilonova_network::Error::Refused(refusal) if refusal.kind == Kind::NotFound => {
                missing().into()
            }
            other => Error::from(other),
        })?;
        let Some(group) = found.first() else { return Err(missing().into()) };
        match ledger::set_groups(tx, server, *group, add, now)? {
            GroupChange::NoPorts => Err(without_ports(server).into()),
            GroupChange::CannotApply => Err(cannot_apply().into()),
            GroupChange::Done(changed) => Ok(changed),
        }
    }

    fn change_address(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        change: AddressChange,
        now: Timestamp,
    ) -> Result<(), Error> {
        let changed = match change {
            AddressChange::Add(network) => {
                let source = PortSource::New { network, fixed_ip: None, has_port_security: false };
                ledger::add_address(tx, server, network, now)
                    .map_err(|error| upstream_error(error, source))?
            }
            AddressChange::Remove(address) => ledger::remove_address(tx, server, address, now)?,
        };
        if changed { Ok(()) } else { Err(change.no_port(server).into()) }
    }

    fn expect_ports(&self, tx: &mut Tx<'_>, servers: &[ServerId]) -> Result<(), Error> {
        Ok(ledger::expect_of_servers(tx, servers)?)
    }

    fn ports(&self, tx: &mut Tx<'_>, servers: &[ServerId]) -> Result<Vec<ServerPort>, Error> {
        Ok(ledger::of_servers(tx, servers)?)
    }

    fn device_profiles(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
    ) -> Result<Vec<(PortId, Option<String>)>, Error> {
        let ports = self.ports(tx, &[server])?;
        let accelerators = ports.into_iter().filter(ServerPort::is_accelerator);
        Ok(accelerators.map(|port| (port.id, port.device_profile)).collect())
    }

    fn group_names(
        &self,
        tx: &mut Tx<'_>,
        servers: &[ServerId],
    ) -> Result<HashMap<String, String>, Error> {
        Ok(ledger::group_names(tx, servers)?)
    }

    fn groups(
        &self,
        tx: &mut Tx<'_>,
        _: ServerId,
        ids: &[String],
    ) -> Result<Vec<GroupFacts>, Error> {
        Ok(ledger::group_views(tx, ids)?)
    }

    fn servers_at(&self, tx: &mut Tx<'_>, text: &str) -> Result<HashSet<ServerId>, Error> {
        Ok(ledger::at_address(tx, text)?)
    }

    fn filters(&self, tx: &mut Tx<'_>, servers: &[ServerId]) -> Result<Filters, Error> {
        Ok(ledger::filters(tx, servers)?)
    }

    fn has_changed(&self, tx: &mut Tx<'_>) -> Result<bool, Error> {
        Ok(ledger::has_changed(tx)?)
    }

    fn take_changes(&self, tx: &mut Tx<'_>) -> Result<Vec<NetworkChange>, Error> {
        Ok(ledger::take_changes(tx)?)
    }

    fn put_back(&self, tx: &mut Tx<'_>, change: NetworkChange) -> Result<(), Error> {
        Ok(ledger::record_change(tx, change)?)
    }

    fn record_guest_change(
        &self,
        tx: &mut Tx<'_>,
        server: ServerId,
        _: Timestamp,
    ) -> Result<(), Error> {
        match self.ports(tx, &[server])?.first() {
            Some(port) => self.put_back(tx, NetworkChange::Port(port.id)),
            None => Ok(()),
        }
    }

    fn servers_to_reconnect(
        &self,
        tx: &mut Tx<'_>,
        change: NetworkChange,
    ) -> Result<BTreeSet<ServerId>, Error> {
        Ok(ledger::servers_to_reconnect(tx, change)?)
    }

    fn servers_to_filter(
        &self,
        tx: &mut Tx<'_>,
        changes: &[NetworkChange],
    ) -> Result<BTreeSet<ServerId>, Error> {
        Ok(ledger::servers_to_filter(tx, changes)?)
    }

    fn expect_routers(&self, tx: &mut Tx<'_>, host: &HostName) -> Result<(), Error> {
        Ok(ledger::expect_routers(tx, host)?)
    }

    fn routers(&self, tx: &mut Tx<'_>, host: &HostName) -> Result<Vec<Router>, Error> {
        Ok(ledger::routers(tx, host)?)
    }

    fn routers_of(
        &self,
        tx: &mut Tx<'_>,
        change: NetworkChange,
    ) -> Result<BTreeSet<RouterId>, Error> {
        Ok(ledger::routers_of(tx, change)?)
    }

    fn lock_router(&self, tx: &mut Tx<'_>, router: RouterId) -> Result<(), Error> {
        Ok(ledger::lock_router(tx, router)?)
    }

    fn router_facts(&self, tx: &mut Tx<'_>, router: RouterId) -> Result<RouterFacts, Error> {
        Ok(ledger::router_facts(tx, router)?)
    }

    fn place_router(
        &self,
        tx: &mut Tx<'_>,
        router: RouterId,
        place: &Place,
        now: Timestamp,
    ) -> Result<(), Error> {
        Ok(ledger::place_router(tx, router, place, now)?)
    }

    fn next_routers(
        &self,
        tx: &mut Tx<'_>,
        hosts: &[HostName],
        after: Option<RouterId>,
    ) -> Result<Vec<RouterId>, Error> {
        Ok(ledger::next_routers(tx, hosts, after)?)
    }

    fn router_needs(
        &self,
        tx: &mut Tx<'_>,
        routers: &[RouterId],
    ) -> Result<BTreeMap<RouterId, BTreeSet<String>>, Error> {
        Ok(ledger::router_needs(tx, routers)?)
    }

    fn unplace_routers_of(
        &self,
        tx: &mut Tx<'_>,
        host: &HostName,
        now: Timestamp,
    ) -> Result<(), Error> {
        Ok(ledger::unplace_routers_of(tx, host, now)?)
    }

    fn record_host_networks_change(&self, tx: &mut Tx<'_>, host: &HostName) -> Result<(), Error> {
        Ok(ledger::record_host_networks_change(tx, host)?)
    }

    fn router_load(&self, tx: &mut Tx<'_>) -> Result<BTreeMap<HostName, i64>, Error> {
        Ok(ledger::router_load(tx)?)
    }
}

fn plug(
    tx: &mut Tx<'_>,
    server: PortOwner<'_>,
    resolved: &ResolvedPort,
    ordinal: i64,
    groups: &[SecurityGroupId],
    new: &mut NewPorts,
    now: Timestamp,
) -> Result<(PortId, PendingAddresses), Error> {
    let owner = format!("compute:{}", server.zone());
    let attach = Attach {
        server: server.id,
        project: server.project,
        host: Some(server.host),
        owner: &owner,
        hostname: &server.spec.hostname,
        source: resolved.source,
        tag: resolved.tag.as_deref(),
        ordinal,
        groups,
    };
    ledger::attach(tx, &attach, new, now).map_err(|error| upstream_error(error, resolved.source))
}

fn upstream_error(error: kilonova_network::Error, source: PortSource) -> Error {
    let kilonova_network::Error::Refused(fault) = error else { return error.into() };
    let words = match (fault.code, source) {
        ("PortInUse", _) => return Refusal::conflict(fault.message).into(),
        ("PortNotFound", PortSource::Existing(id)) => return no_port(id).into(),
        ("IpAddressGenerationFailure", PortSource::New { network, .. }) => {
            format!("No fixed IP addresses available for network: {network}")
        }
        ("IpAddressAlreadyAllocated", PortSource::New { fixed_ip: Some(ip), .. }) => {
            let words = format!("Fixed IP address {ip} is already in use.");
            return address_in_use(words).into();
        }
        _ => fault.message,
    };
    Refusal::bad_request(words).into()
}

//! Queries to Neutron before the transaction of a request, with the user's token.

use std::collections::HashMap;
use std::sync::Arc;

use kilonova_ids::{PortId, SecurityGroupId, ServerId, SubnetId, parse_uuid_like};
use kilonova_keystone::Caller;
use kilonova_neutron::{
    Call, ChangedIp, FixedIp, GroupFilter, Port, PortChange, PortFilter, SecurityGroup,
};
use kilonova_wire::{Context, IntoRefusal, Refusal, UserToken};

use super::{CloudNeutron, own};
use crate::boot::{PortResources, ProfileGroups};
use crate::ports::attach::{cannot_apply, without_ports};
use crate::ports::networks::Requested;
use crate::ports::neutron::{Connection, ForUser, Resolved, Source, resolve, resolve_one};
use crate::ports::{AddressChange, NetworkRequest, PortRequest, no_port};
use crate::{Compute, Error};

/// The networks that a request names, as the service shows them to the caller.
#[derive(Debug, Clone, Default)]
pub enum SeenNetworks {
    /// Our own service is read in the transaction that uses the networks.
    #[default]
    InRows,
    /// Neutron was queried before the transaction.
    Read(Arc<Resolved>, UserToken),
}

impl SeenNetworks {
    /// True if a connection's port is an accelerator.
    pub(in crate::ports) fn has_accelerator(&self) -> bool {
        let Self::Read(resolved, _) = self else { return false };
        resolved.connections.iter().any(|connection| match &connection.source {
            Source::Existing(port) => port.vnic_type == "accelerator-direct",
            Source::New { .. } | Source::Allocated => false,
        })
    }

    /// The resources that the ports of the connections request from resource providers.
    pub fn resources(&self) -> Vec<PortResources> {
        let Self::Read(resolved, _) = self else { return Vec::new() };
        resolved.connections.iter().filter_map(Connection::resources).collect()
    }
}

/// The connections of servers whose ports are in Neutron.
#[derive(Debug, Clone)]
pub struct External {
    /// The connections in order, each with the profile of its device.
    pub connections: Vec<(Connection, Option<ProfileGroups>)>,
    /// Security groups of new ports.
    pub groups: Vec<SecurityGroupId>,
    /// The token of the user; it is sensitive.
    pub token: UserToken,
}

impl Compute {
    /// Looks up the networks, ports and groups that a request for `min` to `max` servers names.
    ///
    /// # Errors
    /// 400, 403 and 409 with Nova's messages; 503 if Neutron does not answer.
    pub async fn look_up_networks(
        &self,
        context: &Context,
        request: &NetworkRequest,
        groups: &[String],
        count: (usize, usize),
    ) -> Result<SeenNetworks, Refusal> {
        let Some(cloud) = &self.neutron else { return Ok(SeenNetworks::InRows) };
        let token = user_token(context)?;
        let request_id = request_id(context);
        let by = Requested { policy: &self.policy, context };
        let user = cloud.for_user(token, request_id.as_deref());
        let mut found = resolve(user, by, request, groups, count).await?;
        cloud.read_resources(&mut found).await?;
        Ok(SeenNetworks::Read(Arc::new(found), token.clone()))
    }

    /// [`Compute::look_up_networks`] for one more connection of a server.
    ///
    /// # Errors
    /// Those of [`Compute::look_up_networks`].
    pub async fn look_up_network(
        &self,
        context: &Context,
        line: &PortRequest,
    ) -> Result<SeenNetworks, Refusal> {
        let Some(cloud) = &self.neutron else { return Ok(SeenNetworks::InRows) };
        let token = user_token(context)?;
        let request_id = request_id(context);
        let by = Requested { policy: &self.policy, context };
        let user = cloud.for_user(token, request_id.as_deref());
        let mut found = resolve_one(user, by, line).await?;
        cloud.read_resources(&mut found).await?;
        Ok(SeenNetworks::Read(Arc::new(found), token.clone()))
    }
}

impl CloudNeutron {
    fn for_user<'a>(&'a self, token: &'a UserToken, request_id: Option<&'a str>) -> ForUser<'a> {
        ForUser { neutron: &self.client, call: Call { caller: Caller::User(token), request_id } }
    }

    /// Reads the resources that supplied ports request, in one list request with the service's login, because only
    /// administrators can see them.
    async fn read_resources(&self, resolved: &mut Resolved) -> Result<(), Refusal> {
        let connections = &mut resolved.connections;
        let mut ports: Vec<&mut Port> = connections
            .iter_mut()
            .filter_map(|connection| match &mut connection.source {
                Source::Existing(port) if port.has_policy() => Some(&mut **port),
                Source::Existing(_) | Source::New { .. } | Source::Allocated => None,
            })
            .collect();
        let ids: Vec<PortId> = ports.iter().map(|port| port.id).collect();
        let seen = self.client.ports(own(), PortFilter::Ids(&ids), &["id", "resource_request"]);
        let mut seen: HashMap<PortId, Port> = seen
            .await
            .map_err(IntoRefusal::into_refusal)?
            .into_iter()
            .map(|port| (port.id, port))
            .collect();
        for port in &mut ports {
            let id = port.id;
            let Some(found) = seen.remove(&id) else {
                return Err(no_port(id));
            };
            port.resource_request = found.resource_request;
            if port.requested().is_none() {
                return Err(Refusal::bad_request(format!(
                    "Port {id} requests resources in a form that is not supported."
                )));
            }
        }
        Ok(())
    }

    /// The security groups that the filter selects and the caller can see.
    ///
    /// # Errors
    /// 401 without a token; 503 if Neutron does not answer.
    pub(crate) async fn user_groups(
        &self,
        context: &Context,
        filter: GroupFilter<'_>,
    ) -> Result<Vec<SecurityGroup>, Refusal> {
        let token = user_token(context)?;
        let request_id = request_id(context);
        let user = self.for_user(token, request_id.as_deref());
        let found = user.neutron.security_groups(user.call, filter, &[]).await;
        found.map_err(IntoRefusal::into_refusal)
    }

    /// Adds a security group to all ports of a server, or removes it, with the token of the caller. Returns
    /// the number of ports that changed (`nova/network/security_group_api.py`).
    ///
    /// # Errors
    /// 404 if there is no such group or the server has no ports, 409 if the group's name is ambiguous, 400 if a port
    /// cannot have groups, in which case none is changed; 503 if Neutron does not answer.
    pub async fn set_group(
        &self,
        context: &Context,
        server: ServerId,
        name: &str,
        add: bool,
    ) -> Result<usize, Error> {
        let token = user_token(context)?;
        let request_id = request_id(context);
        let user = self.for_user(token, request_id.as_deref());
        let list = async |filter: GroupFilter<'_>| {
            let found = user.neutron.security_groups(user.call, filter, &["id", "name"]).await;
            found.map_err(IntoRefusal::into_refusal)
        };
        let mut found = Vec::new();
        if parse_uuid_like::<SecurityGroupId>(name).is_some() {
            found = list(GroupFilter::Ids(&[name.to_owned()])).await?;
        }
        if found.is_empty() {
            found = list(GroupFilter::Named(&context.project_id, name)).await?;
        }
        let shown = name.escape_debug();
        let group = match found.as_slice() {
            [group] => group.id.to_string(),
            [] => {
                return Err(Refusal::not_found(format!("Security group {shown} not found.")).into());
            }
            [_, _, ..] => {
                return Err(Refusal::conflict(format!(
                    "Multiple security_group matches found for name '{shown}', use an ID to be more \
                     specific."
                ))
                .into());
            }
        };
        let device = server.to_string();
        let ports = self.client.ports(own(), PortFilter::Device(&device), &[]).await;
        let ports = ports.map_err(IntoRefusal::into_refusal)?;
        if ports.is_empty() {
            return Err(without_ports(server).into());
        }
        if add && !ports.iter().all(Port::can_have_groups) {
            return Err(cannot_apply().into());
        }
        let mut changed = 0;
        for port in ports {
            let mut groups = port.security_groups.clone();
            groups.retain(|id| *id != group);
            if add {
                groups.push(group.clone());
            }
            if groups.len() == port.security_groups.len() {
                continue;
            }
            let change = PortChange { security_groups: Some(groups), ..PortChange::default() };
            let updated = self.client.update_port(user.call, port.id, &change).await;
            updated.map_err(IntoRefusal::into_refusal)?;
            changed += 1;
        }
        Ok(changed)
    }

    /// Adds an address to a port of a server, or removes one, with the token of the caller
    /// (`add_fixed_ip_to_instance` and `remove_fixed_ip_from_instance` of `nova/network/neutron.py`).
    ///
    /// # Errors
    /// 404 if the server has no port on the network or no subnet there has a free address, 400 if it does not have the
    /// address; 503 if Neutron does not answer.
    pub async fn change_address(
        &self,
        context: &Context,
        server: ServerId,
        change: AddressChange,
    ) -> Result<(), Error> {
        let token = user_token(context)?;
        let request_id = request_id(context);
        let user = self.for_user(token, request_id.as_deref());
        let device = server.to_string();
        let ports = self.client.ports(own(), PortFilter::Device(&device), &[]).await;
        let ports = ports.map_err(IntoRefusal::into_refusal)?;
        let update = async |port: PortId, fixed_ips: Vec<ChangedIp>| {
            let change = PortChange { fixed_ips: Some(fixed_ips), ..PortChange::default() };
            self.client.update_port(user.call, port, &change).await
        };
        let kept = |fixed: &FixedIp| ChangedIp {
            subnet_id: fixed.subnet_id,
            ip_address: Some(fixed.ip_address),
        };
        match change {
            AddressChange::Add(network) => {
                let found = match self.client.network(user.call, network).await {
                    Ok(network) => network.subnets,
                    Err(error) if error.is_not_found() => Vec::new(),
                    Err(error) => return Err(error.into_refusal().into()),
                };
                let found: Vec<SubnetId> =
                    found.iter().filter_map(|id| parse_uuid_like(id)).collect();
                for port in ports.iter().filter(|port| port.network_id == Some(network)) {
                    for subnet_id in &found {
                        let mut fixed: Vec<ChangedIp> = port.fixed_ips.iter().map(kept).collect();
                        fixed.push(ChangedIp { subnet_id: *subnet_id, ip_address: None });
                        match update(port.id, fixed).await {
                            Ok(_) => return Ok(()),
                            // Another subnet may have a free address.
                            Err(error) if refuses_address(&error) => {}
                            Err(error) => return Err(error.into_refusal().into()),
                        }
                    }
                }
            }
            AddressChange::Remove(address) => {
                let has = |port: &&Port| port.fixed_ips.iter().any(|ip| ip.ip_address == address);
                if let Some(port) = ports.iter().find(has) {
                    let rest = port.fixed_ips.iter().filter(|ip| ip.ip_address != address);
                    let updated = update(port.id, rest.map(kept).collect()).await;
                    updated.map_err(IntoRefusal::into_refusal)?;
                    return Ok(());
                }
            }
        }
        Err(change.no_port(server).into())
    }
}

/// True if Neutron refuses the addresses of a port, rather than the caller.
fn refuses_address(error: &kilonova_neutron::Error) -> bool {
    error.refused().is_some_and(|refused| matches!(refused.status.as_u16(), 400 | 409))
}

fn user_token(context: &Context) -> Result<&UserToken, Refusal> {
    context.token.as_ref().ok_or_else(|| {
        Refusal::unauthorized("The request has no token that the network service could check.")
    })
}

fn request_id(context: &Context) -> Option<String> {
    context.request_id.map(|_| context.request_id_text())
}

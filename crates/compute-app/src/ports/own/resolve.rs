//! Resolves requested networks and ports of our own service, as far as the caller may use them.

use jiff::Timestamp;
use kilonova_ids::PortId;
use kilonova_network::ledger::{self as networks, NetworkFacts, PortSource};
use kilonova_store::Tx;
use kilonova_wire::Refusal;
use kilonova_wire::refusal::Kind;

use super::{Requested, ResolvedPort, ServerPorts};
use crate::Error;
use crate::ports::profile::of_port;
use crate::ports::request::{NetworkRequest, PortRequest, ambiguous, no_network, no_port};

/// The rule for connecting servers to an external network that is not shared
/// (`nova/policies/servers.py`).
const EXTERNAL: &str = "network:attach_external_network";

/// Announces what [`resolve`] reads.
///
/// # Errors
/// Store errors only.
pub(super) fn expect(
    tx: &mut Tx<'_>,
    project: &str,
    request: &NetworkRequest,
) -> Result<(), Error> {
    let is_new = match request {
        NetworkRequest::None => false,
        NetworkRequest::Unspecified | NetworkRequest::Auto => {
            networks::expect_available(tx, project)?;
            true
        }
        NetworkRequest::Ports(requested) => {
            for line in requested {
                match (line.port, line.network) {
                    (Some(port), _) => networks::expect_port(tx, port)?,
                    (None, Some(network)) => networks::expect_network(tx, network)?,
                    (None, None) => {}
                }
            }
            requested.iter().any(|line| line.port.is_none())
        }
    };
    if is_new { Ok(networks::expect_quota(tx, project)?) } else { Ok(()) }
}

/// Resolves the networks of a request for `count` servers.
///
/// # Errors
/// 400, 403 and 409 with Nova's messages.
pub(super) fn resolve(
    tx: &mut Tx<'_>,
    by: Requested<'_>,
    request: &NetworkRequest,
    groups: &[String],
    count: usize,
) -> Result<ServerPorts, Error> {
    let list = match request {
        NetworkRequest::None => Vec::new(),
        NetworkRequest::Unspecified => automatic_network(tx, by, |_| true)?,
        // As upstream (`_get_available_networks` in `nova/network/neutron.py`).
        NetworkRequest::Auto => {
            automatic_network(tx, by, |network| network.is_up || network.shared)?
        }
        NetworkRequest::Ports(requested) => {
            let mut list = Vec::with_capacity(requested.len());
            let mut ports: Vec<PortId> = Vec::new();
            for line in requested {
                if count > 1 {
                    check_single_server(line)?;
                }
                if let Some(port) = line.port {
                    if ports.contains(&port) {
                        return Err(in_use(port).into());
                    }
                    ports.push(port);
                }
                list.push(resolve_one(tx, by, line)?);
            }
            list
        }
    };
    let new =
        list.iter().filter(|resolved| matches!(resolved.source, PortSource::New { .. })).count();
    let mut near_quota = false;
    if new > 0 {
        let more = i64::try_from(new.saturating_mul(count)).unwrap_or(i64::MAX);
        near_quota =
            networks::is_near_quota(tx, &by.context.project_id, more).map_err(over_quota)?;
    }
    let others: Vec<String> = groups.iter().filter(|name| *name != "default").cloned().collect();
    if !others.is_empty() {
        networks::groups_by_name(tx, &by.context.project_id, &others, Timestamp::UNIX_EPOCH)
            .map_err(no_group)?;
    }
    Ok(ServerPorts { list, groups: groups.to_vec(), near_quota, ..ServerPorts::default() })
}

/// Nova's error for a project without room for more ports.
pub(super) fn over_quota(error: kilonova_network::Error) -> Error {
    match error {
        kilonova_network::Error::Refused(_) => {
            Refusal::forbidden("Maximum number of ports exceeded").into()
        }
        other => other.into(),
    }
}

/// Nova's error for an unknown group: 400. Other refusals, such as that of an ambiguous name, stay.
pub(super) fn no_group(error: kilonova_network::Error) -> Error {
    match error {
        kilonova_network::Error::Refused(fault) if fault.kind == Kind::NotFound => {
            let name = fault
                .message
                .strip_prefix("Security group ")
                .and_then(|rest| rest.strip_suffix(" does not exist"));
            let words = name.map_or_else(
                || fault.message.clone(),
                |name| format!("Security group {name} not found."),
            );
            Refusal::bad_request(words).into()
        }
        other => other.into(),
    }
}

fn in_use(port: PortId) -> Refusal {
    Refusal::conflict(format!("Port {port} is still in use."))
}

/// Refuses settings that only one server can have.
fn check_single_server(line: &PortRequest) -> Result<(), Refusal> {
    if line.port.is_some() {
        return Err(Refusal::bad_request(
            "Unable to launch multiple instances with a single configured port ID. Please launch \
             your instance one by one with different ports.",
        ));
    }
    if line.fixed_ip.is_some() {
        return Err(Refusal::bad_request(
            "Failed to launch instances: max_count cannot be greater than 1 if an fixed_ip is \
             specified.",
        ));
    }
    Ok(())
}

/// The only network of the project that qualifies, if it has one.
pub(super) fn automatic_network(
    tx: &mut Tx<'_>,
    by: Requested<'_>,
    qualifies: fn(&NetworkFacts) -> bool,
) -> Result<Vec<ResolvedPort>, Error> {
    let mut all = networks::available(tx, &by.context.project_id)?;
    all.retain(|network| may_attach(by, network) && qualifies(network));
    if all.len() > 1 {
        return Err(ambiguous().into());
    }
    let only = all.pop().filter(|network| network.has_subnets);
    Ok(only.map(|network| new_port(&network, None, None)).into_iter().collect())
}

fn new_port(
    network: &NetworkFacts,
    fixed_ip: Option<std::net::IpAddr>,
    tag: Option<String>,
) -> ResolvedPort {
    let source = PortSource::New {
        network: network.id,
        fixed_ip,
        has_port_security: network.has_port_security,
    };
    ResolvedPort { source, tag, profile: None }
}

/// True if policy lets the caller connect servers to the network.
fn may_attach(by: Requested<'_>, network: &NetworkFacts) -> bool {
    !network.external || network.shared || by.policy.allows_own(by.context, EXTERNAL)
}

/// Refuses an external network that the caller must not use, with Nova's message.
fn check_external(by: Requested<'_>, network: &NetworkFacts) -> Result<(), Error> {
    if may_attach(by, network) {
        return Ok(());
    }
    let id = network.id;
    let words = format!("It is not allowed to create an interface on external network {id}");
    Err(Refusal::forbidden(words).into())
}

/// Resolves one line of a request.
///
/// # Errors
/// Those of [`resolve`].
pub(super) fn resolve_one(
    tx: &mut Tx<'_>,
    by: Requested<'_>,
    line: &PortRequest,
) -> Result<ResolvedPort, Error> {
    if let Some(port) = line.port {
        return existing(tx, by, port, line.tag.clone());
    }
    let id = line.network.ok_or_else(|| no_network("None"))?;
    let may_use = |network: &NetworkFacts| {
        network.shared
            || network.external
            || by.context.is_admin()
            || network.project == by.context.project_id
    };
    let network = networks::network(tx, id)?.filter(may_use).ok_or_else(|| no_network(id))?;
    check_external(by, &network)?;
    if !network.has_subnets {
        return Err(Refusal::bad_request(format!(
            "Network {id} requires a subnet in order to boot instances on."
        ))
        .into());
    }
    Ok(new_port(&network, line.fixed_ip, line.tag.clone()))
}

fn existing(
    tx: &mut Tx<'_>,
    by: Requested<'_>,
    id: PortId,
    tag: Option<String>,
) -> Result<ResolvedPort, Error> {
    let port = networks::port(tx, id)?.filter(|port| by.context.may_see(&port.project));
    let port = port.ok_or_else(|| no_port(id))?;
    if port.in_use {
        return Err(in_use(id).into());
    }
    if !port.has_address {
        let words = format!("Port {id} requires a FixedIP in order to be used.");
        return Err(Refusal::bad_request(words).into());
    }
    if let Some(network) = networks::network(tx, port.network)? {
        check_external(by, &network)?;
    }
    let profile = if port.accelerator {
        let name = port.device_profile.as_deref();
        Some(of_port(tx, id, name)?.map_err(Refusal::bad_request)?)
    } else {
        None
    };
    Ok(ResolvedPort { source: PortSource::Existing(id), tag, profile })
}

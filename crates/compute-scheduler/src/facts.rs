//! The facts from the database that the scheduler needs. A plain server with upstream's default
//! filters needs none, and costs no statement.

use std::collections::{HashMap, HashSet};

use kilonova_compute_db::{Error, server_groups, servers};
use kilonova_ids::{HostName, ServerGroupId, ServerId, parse_uuid_like};
use kilonova_store::Tx;
use serde_json::Value;

use super::constraints::{GroupFacts, Load};
use super::filters::Filter;
use super::rules::Rules;

/// The server to schedule.
#[derive(Debug, Clone, Copy)]
pub enum Subject<'a> {
    /// New servers, by their hints.
    New(&'a Value),
    /// An existing server.
    Server(ServerId, &'a Value),
}

impl Subject<'_> {
    fn hints(&self) -> &Value {
        match self {
            Self::New(hints) | Self::Server(_, hints) => hints,
        }
    }
}

/// Facts about existing servers.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The group that the server joins or is in.
    pub group: Option<(ServerGroupId, GroupFacts)>,
    /// Servers by host; empty unless the rules need it.
    pub loads: HashMap<HostName, Load>,
    /// Hosts of the servers in the hint `same_host`.
    pub same_host: Option<HashSet<HostName>>,
    /// Hosts of the servers in the hint `different_host`.
    pub different_host: Option<HashSet<HostName>>,
}

/// True if a new server needs any facts.
pub fn are_needed(rules: &Rules, hints: &Value) -> bool {
    rules.count_servers()
        || hints.as_object().is_some_and(|hints| {
            ["group", "same_host", "different_host"].iter().any(|key| hints.contains_key(*key))
        })
}

/// Reads the facts. A deleted group counts as none.
///
/// # Errors
/// Store errors only.
pub fn facts(tx: &mut Tx<'_>, rules: &Rules, subject: Subject<'_>) -> Result<Facts, Error> {
    let hints = subject.hints();
    let group = match subject {
        Subject::New(hints) => group_hint(hints),
        Subject::Server(server, _) => server_groups::of_server(tx, server)?,
    };
    let group = match group {
        None => None,
        Some(id) => group_facts(tx, id, subject)?.map(|facts| (id, facts)),
    };
    let mut hosts_of = |filter: Filter, key: &str| match hints.get(key) {
        Some(named) if rules.filters.contains(&filter) => hosts(tx, named).map(Some),
        _ => Ok(None),
    };
    let same_host = hosts_of(Filter::SameHost, "same_host")?;
    let different_host = hosts_of(Filter::DifferentHost, "different_host")?;
    let loads = if rules.count_servers() { servers::loads(tx)? } else { Vec::new() };
    let loads =
        loads.into_iter().map(|(host, servers, busy)| (host, Load { servers, busy })).collect();
    Ok(Facts { group, loads, same_host, different_host })
}

/// The group in the hints.
pub fn group_hint(hints: &Value) -> Option<ServerGroupId> {
    hints.get("group").and_then(Value::as_str).and_then(parse_uuid_like)
}

/// The hosts of a group's servers, without the server to schedule.
///
/// # Errors
/// Store errors only.
pub fn group_facts(
    tx: &mut Tx<'_>,
    id: ServerGroupId,
    subject: Subject<'_>,
) -> Result<Option<GroupFacts>, Error> {
    let Some(group) = server_groups::find(tx, id)? else { return Ok(None) };
    let mut facts = GroupFacts {
        policy: group.policy,
        max_per_host: group.max_per_host.and_then(|most| usize::try_from(most).ok()).unwrap_or(1),
        hosts: HashMap::new(),
    };
    for member in server_groups::members(tx, id)? {
        let itself = matches!(subject, Subject::Server(server, _) if server == member.server);
        if let (false, Some(host)) = (itself, &member.host) {
            facts.add(host);
        }
    }
    Ok(Some(facts))
}

/// The hosts of the servers in a hint, one or a list.
fn hosts(tx: &mut Tx<'_>, named: &Value) -> Result<HashSet<HostName>, Error> {
    let one = named.as_str().into_iter();
    let several = named.as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut hosts = HashSet::new();
    for id in one.chain(several).filter_map(parse_uuid_like::<ServerId>) {
        hosts.extend(servers::find(tx, id)?.and_then(|server| server.host));
    }
    Ok(hosts)
}

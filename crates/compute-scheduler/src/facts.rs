//! The facts from the database that the scheduler needs. A plain server with upstream's default
//! filters needs none, so the database is not queried for it.

use std::collections::{HashMap, HashSet};

use kilonova_compute_db::servers::{self, SchedulerHints};
use kilonova_compute_db::{Error, server_groups};
use kilonova_ids::{HostName, ServerGroupId, ServerId};
use kilonova_store::Tx;

use super::constraints::{GroupFacts, Load};
use super::filters::Filter;
use super::rules::Rules;

/// The server to schedule.
#[derive(Debug, Clone, Copy)]
pub enum Subject<'a> {
    /// New servers, by their hints.
    New(&'a SchedulerHints),
    /// An existing server.
    Server(ServerId, &'a SchedulerHints),
}

impl Subject<'_> {
    fn hints(&self) -> &SchedulerHints {
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
    /// The load of each host; empty unless the rules count servers.
    pub loads: HashMap<HostName, Load>,
    /// Hosts of the servers in the hint `same_host`.
    pub same_host: Option<HashSet<HostName>>,
    /// Hosts of the servers in the hint `different_host`.
    pub different_host: Option<HashSet<HostName>>,
}

/// True if a new server needs any facts.
pub fn are_needed(rules: &Rules, hints: &SchedulerHints) -> bool {
    rules.count_servers()
        || hints.group.is_some()
        || hints.same_host.is_some()
        || hints.different_host.is_some()
}

/// Reads the facts. A deleted group counts as no group.
///
/// # Errors
/// Store errors only.
pub fn facts(tx: &mut Tx<'_>, rules: &Rules, subject: Subject<'_>) -> Result<Facts, Error> {
    let hints = subject.hints();
    let group = match subject {
        Subject::New(hints) => hints.group,
        Subject::Server(server, _) => server_groups::of_server(tx, server)?,
    };
    let group = match group {
        None => None,
        Some(id) => group_facts(tx, id, subject)?.map(|facts| (id, facts)),
    };
    let mut hosts_of = |filter: Filter, named: &Option<Vec<ServerId>>| match named {
        Some(named) if rules.filters.contains(&filter) => hosts(tx, named).map(Some),
        _ => Ok(None),
    };
    let same_host = hosts_of(Filter::SameHost, &hints.same_host)?;
    let different_host = hosts_of(Filter::DifferentHost, &hints.different_host)?;
    let loads = if rules.count_servers() { servers::loads(tx)? } else { Vec::new() };
    let loads =
        loads.into_iter().map(|(host, servers, busy)| (host, Load { servers, busy })).collect();
    Ok(Facts { group, loads, same_host, different_host })
}

/// The policy of a group and the hosts of its servers. Does not count the server to schedule.
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

/// The hosts of the servers in a hint.
fn hosts(tx: &mut Tx<'_>, named: &[ServerId]) -> Result<HashSet<HostName>, Error> {
    let mut hosts = HashSet::new();
    for id in named {
        hosts.extend(servers::find(tx, *id)?.and_then(|server| server.host));
    }
    Ok(hosts)
}

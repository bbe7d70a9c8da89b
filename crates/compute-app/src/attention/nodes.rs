//! The last heartbeat of each host, hosts that are down, machines that changed their name, and hosts that are not yet
//! divided.

use jiff::{SignedDuration, Timestamp};
use kilonova_compute_db::{cells, hosts, machines};
use kilonova_compute_scheduler::fleet::DOWN_AFTER;
use kilonova_ids::HostName;
use kilonova_store::{Store, Tx};
use kilonova_wire::time::{self, offset};

use super::{Bounds, Finding, Level};
use crate::Error;

/// A host and its last heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostContact {
    /// Its name.
    pub host: HostName,
    /// The time of its last heartbeat.
    pub last_seen: Timestamp,
    /// The time of its last registration.
    pub reported_at: Timestamp,
    /// The number of its registrations.
    pub epoch: i64,
    /// The newest generation of its documents.
    pub generation: i64,
    /// True if its compute service is enabled.
    pub enabled: bool,
    /// True if an operator forced it down.
    pub forced_down: bool,
    /// True if it is up: a recent heartbeat, and not forced down.
    pub up: bool,
    /// How far its clock is ahead of the controller's; `None` if the host has never reported its clock.
    pub clock_skew: Option<SignedDuration>,
}

/// Every host and its last heartbeat.
///
/// # Errors
/// Store errors only.
pub async fn contacts(store: &Store) -> Result<Vec<HostContact>, Error> {
    store
        .read(|tx| {
            let now = time::now();
            let all = hosts::all(tx)?.into_iter();
            Ok(all
                .map(|host| HostContact {
                    up: !host.forced_down && now.duration_since(host.last_seen) < DOWN_AFTER,
                    host: host.host,
                    last_seen: host.last_seen,
                    reported_at: host.reported_at,
                    epoch: host.epoch,
                    generation: host.generation,
                    enabled: host.enabled,
                    forced_down: host.forced_down,
                    clock_skew: host.clock_skew,
                })
                .collect())
        })
        .await
}

pub(super) fn renamed(tx: &mut Tx<'_>) -> Result<Vec<Finding>, Error> {
    let rows = machines::renamed(tx)?;
    let finding = |group: &[(String, HostName)]| {
        let (machine, now) = group.first()?;
        let old: Vec<&str> = group[1..].iter().map(|(_, host)| host.as_str()).collect();
        let old = old.join(", ");
        Some(Finding {
            area: "nodes",
            level: Level::Warning,
            what: format!(
                "host {now} is the machine that had the name {old} (machine id {machine})"
            ),
            remedy: format!(
                "name it {old} again, or move or delete the servers of {old} and delete its \
                 compute service"
            ),
        })
    };
    Ok(rows.chunk_by(|a, b| a.0 == b.0).filter_map(finding).collect())
}

/// The hosts that are down without an operator's order, and those that are forced down although their agents run.
pub(super) fn down(
    tx: &mut Tx<'_>,
    bounds: &Bounds,
    now: Timestamp,
) -> Result<Vec<Finding>, Error> {
    let all = hosts::all(tx)?;
    if !bounds.listening {
        return Ok(all
            .iter()
            .map(|host| host.last_seen)
            .max()
            .map(no_controller)
            .into_iter()
            .collect());
    }
    let quiet =
        |host: &&hosts::Host| now.duration_since(host.last_seen) >= DOWN_AFTER && !host.forced_down;
    let dead =
        |host: &&hosts::Host| host.forced_down && now.duration_since(host.last_seen) < DOWN_AFTER;
    let mut findings: Vec<Finding> = all
        .iter()
        .filter(quiet)
        .map(|host| Finding {
            area: "nodes",
            level: Level::Warning,
            what: format!(
                "host {} is down: it last reported {} s ago (epoch {})",
                host.host,
                now.duration_since(host.last_seen).as_secs(),
                host.epoch
            ),
            remedy: "start its agent; if the host does not return, force its service down"
                .to_owned(),
        })
        .collect();
    findings.extend(all.iter().filter(dead).map(|host| Finding {
        area: "nodes",
        level: Level::Warning,
        what: format!("host {} is forced down, but its agent runs", host.host),
        remedy: format!(
            "if the host is healthy: openstack compute service set --up {} nova-compute",
            host.host
        ),
    }));
    Ok(findings)
}

/// The hosts that cannot offer their CPUs and memory by NUMA cell yet, each with the reason.
pub(super) fn undivided(tx: &mut Tx<'_>) -> Result<Vec<Finding>, Error> {
    let finding = |(host, why): (HostName, String)| Finding {
        area: "nodes",
        level: Level::Note,
        what: format!(
            "host {host} is configured to offer its CPUs and memory by NUMA cell, but offers them as a \
             whole: {why}"
        ),
        remedy:
            "move the guests to another host or remove the reason: the host is divided within ten \
                 minutes; or set [compute] numa_in_placement = false there and restart its agent"
                .to_owned(),
    };
    Ok(cells::undivided(tx)?.into_iter().map(finding).collect())
}

fn no_controller(last: Timestamp) -> Finding {
    Finding {
        area: "nodes",
        level: Level::Note,
        what: format!(
            "no controller uses this database, so hosts that are down are not listed; the last heartbeat \
             of a host was at {}",
            offset(last)
        ),
        remedy: "start kilonova serve, unless it is meant to be down".to_owned(),
    }
}

//! The services that make up the control plane, as operators see them: one `nova-compute` for
//! every host, and the two that this process is.

use std::sync::LazyLock;

use kilonova_store::Tx;

use crate::Error;
use crate::app::fleet::{DOWN_AFTER, Fleet};
use crate::db::fleet::{About, HostRow};
use crate::db::hosts::{self, Host};

/// Zone of the services that are no compute hosts.
pub const INTERNAL_ZONE: &str = "internal";
/// Integer ids below this one belong to the services of this process.
const FIRST_HOST_NUMBER: i64 = 2;

static THIS_HOST: LazyLock<String> = LazyLock::new(|| {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
});

/// A service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// `nova-compute`, `nova-scheduler` or `nova-conductor`.
    pub binary: &'static str,
    /// Host it runs on.
    pub host: String,
    /// Id from 2.53 on.
    pub id: String,
    /// Id below 2.53.
    pub number: i64,
    /// Zone.
    pub zone: String,
    /// Whether it may be given work.
    pub enabled: bool,
    /// Why not.
    pub disabled_reason: Option<String>,
    /// Whether an operator declared it dead.
    pub forced_down: bool,
    /// Whether it lives.
    pub up: bool,
    /// When it was last heard of, or changed.
    pub updated_at: i64,
}

/// Whether a host lives: heard of lately, and not declared dead. The database is told of what was heard
/// only now and then, and an evacuation goes by what was heard: nobody may read that a host is down
/// of which an evacuation then says that it is in use.
pub fn is_up(fleet: &Fleet, host: &Host, now: i64) -> bool {
    !host.forced_down && now - last_seen(fleet, host) < DOWN_AFTER
}

fn last_seen(fleet: &Fleet, host: &Host) -> i64 {
    fleet.by_name(&host.host).map_or(host.last_seen, |known| known.last_seen().max(host.last_seen))
}

/// The service of a compute host.
pub fn of_host(fleet: &Fleet, host: &Host, now: i64) -> Service {
    Service {
        binary: "nova-compute",
        host: host.host.clone(),
        id: host.id.to_string(),
        number: service_number(host),
        zone: host.availability_zone.clone(),
        enabled: host.enabled,
        disabled_reason: host.disabled_reason.clone(),
        forced_down: host.forced_down,
        up: is_up(fleet, host, now),
        updated_at: last_seen(fleet, host).max(host.updated_at.unwrap_or(0)),
    }
}

/// The integer id of a host's service.
pub fn service_number(host: &Host) -> i64 {
    host.number + FIRST_HOST_NUMBER
}

/// The services of this process; they are up, or nobody would be told.
pub fn own(now: i64) -> [Service; 2] {
    [("nova-scheduler", 1), ("nova-conductor", 2)].map(|(binary, number)| {
        let name = format!("{binary}.{}", *THIS_HOST);
        Service {
            binary,
            host: THIS_HOST.clone(),
            id: uuid::Uuid::new_v3(&uuid::Uuid::NAMESPACE_DNS, name.as_bytes()).to_string(),
            number,
            zone: INTERNAL_ZONE.to_owned(),
            enabled: true,
            disabled_reason: None,
            forced_down: false,
            up: true,
            updated_at: now,
        }
    })
}

/// Every service.
///
/// # Errors
/// The database's.
pub fn all(tx: &mut Tx<'_>, fleet: &Fleet, now: i64) -> Result<Vec<Service>, Error> {
    let hosts = hosts::all(tx)?;
    Ok(own(now).into_iter().chain(hosts.iter().map(|host| of_host(fleet, host, now))).collect())
}

/// Whether a host may take new servers, and why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// It may.
    Enabled,
    /// It may not.
    Disabled(Option<String>),
}

/// What an operator says of a compute host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Unchanged if absent.
    pub status: Option<Status>,
    /// Unchanged if absent.
    pub forced_down: Option<bool>,
}

/// Takes an operator's word on a host down, and to the scheduler once it is durable. `None` when
/// there is no such host.
///
/// # Errors
/// The database's.
pub fn change(
    tx: &mut Tx<'_>,
    fleet: &Fleet,
    name: &str,
    change: &Change,
    now: i64,
) -> Result<Option<Service>, Error> {
    let Some(mut host) = hosts::by_name(tx, name)? else { return Ok(None) };
    match &change.status {
        Some(Status::Enabled) => (host.enabled, host.disabled_reason) = (true, None),
        Some(Status::Disabled(reason)) => {
            (host.enabled, host.disabled_reason) = (false, reason.clone());
        }
        None => {}
    }
    host.forced_down = change.forced_down.unwrap_or(host.forced_down);
    host.updated_at = Some(now);
    hosts::set_status(tx, &host, now)?;
    let (known, row) = (fleet.clone(), row_of(&host));
    tx.on_commit(move || {
        known.refresh(&row);
    });
    Ok(Some(of_host(fleet, &host, now)))
}

/// The row as the fleet reads it.
pub(crate) fn row_of(host: &Host) -> HostRow {
    HostRow {
        host: host.host.clone(),
        id: host.id,
        root: host.root_provider,
        epoch: host.epoch,
        generation: host.generation,
        enabled: host.enabled,
        forced_down: host.forced_down,
        availability_zone: host.availability_zone.clone(),
        last_seen: host.last_seen,
        reported_at: 0,
        about: About {
            hypervisor_type: host.hypervisor_type.clone(),
            hypervisor_version: host.hypervisor_version,
            vcpus: host.vcpus,
            memory_mb: host.memory_mb,
        },
    }
}

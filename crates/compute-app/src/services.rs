//! The operators' view of compute services: one `nova-compute` per host, and the two that this
//! process provides.

use std::sync::LazyLock;

use jiff::Timestamp;
use kilonova_compute_db::drains;
use kilonova_compute_db::fleet::{About, HostRow, Version};
use kilonova_compute_db::hosts::{self, Host};
use kilonova_compute_db::moves;
use kilonova_compute_scheduler::fleet::{DOWN_AFTER, Fleet};
use kilonova_ids::HostName;
use kilonova_store::Tx;
use kilonova_wire::Refusal;

use crate::Error;

/// The zone of services other than `nova-compute`.
pub const INTERNAL_ZONE: &str = "internal";
/// Integer ids up to this belong to the services of this process.
const FIRST_HOST_NUMBER: i64 = 2;

static THIS_HOST: LazyLock<HostName> = LazyLock::new(|| {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = Some(name.trim()).filter(|name| !name.is_empty());
    HostName::verbatim(name.unwrap_or("localhost"))
});

/// A service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// `nova-compute`, `nova-scheduler` or `nova-conductor`.
    pub binary: &'static str,
    /// Its host.
    pub host: HostName,
    /// Id from 2.53 on.
    pub id: String,
    /// Id before 2.53.
    pub number: i64,
    /// Zone.
    pub zone: String,
    /// True if it is enabled.
    pub enabled: bool,
    /// The reason if it is disabled.
    pub disabled_reason: Option<String>,
    /// True if it is forced down.
    pub forced_down: bool,
    /// True if it is up.
    pub up: bool,
    /// When it was last seen or changed.
    pub updated_at: Timestamp,
}

/// True if a host is up: seen recently, and not forced down. Last-seen times reach the database with a delay, so an
/// evacuation uses those in memory. This function uses them too, so that a host that an evacuation considers up is
/// never listed as down.
pub fn is_up(fleet: &Fleet, host: &Host, now: Timestamp) -> bool {
    !host.forced_down && now.duration_since(last_seen(fleet, host)) < DOWN_AFTER
}

/// When a host was last seen, by this process or by the one that wrote its row.
pub fn last_seen(fleet: &Fleet, host: &Host) -> Timestamp {
    fleet.by_name(&host.host).map_or(host.last_seen, |known| known.last_seen().max(host.last_seen))
}

/// The service of a compute host.
pub fn of_host(fleet: &Fleet, host: &Host, now: Timestamp) -> Service {
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
        updated_at: last_seen(fleet, host).max(host.updated_at.unwrap_or_default()),
    }
}

/// The integer id of a host's service.
pub fn service_number(host: &Host) -> i64 {
    host.number + FIRST_HOST_NUMBER
}

/// The services of this process. They are up, because the process answers.
pub fn own(now: Timestamp) -> [Service; 2] {
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
/// Store errors only.
pub fn all(tx: &mut Tx<'_>, fleet: &Fleet, now: Timestamp) -> Result<Vec<Service>, Error> {
    let hosts = hosts::all(tx)?;
    Ok(own(now).into_iter().chain(hosts.iter().map(|host| of_host(fleet, host, now))).collect())
}

/// The services on the host of this name.
///
/// # Errors
/// Store errors only.
pub fn on(
    tx: &mut Tx<'_>,
    fleet: &Fleet,
    name: &HostName,
    now: Timestamp,
) -> Result<Vec<Service>, Error> {
    let host = hosts::by_name(tx, name)?;
    let own = own(now).into_iter().filter(|service| service.host == *name);
    Ok(own.chain(host.map(|host| of_host(fleet, &host, now))).collect())
}

/// The compute host whose service has this integer id.
///
/// # Errors
/// Store errors only.
pub fn by_number(tx: &mut Tx<'_>, number: i64) -> Result<Option<Host>, Error> {
    match number.checked_sub(FIRST_HOST_NUMBER) {
        Some(number) => Ok(hosts::by_number(tx, number)?),
        None => Ok(None),
    }
}

/// The administrative status of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// It accepts new servers.
    Enabled,
    /// It accepts no new servers, for this reason.
    Disabled(Option<String>),
}

/// An operator's change to a compute host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Unchanged if absent.
    pub status: Option<Status>,
    /// Unchanged if absent.
    pub forced_down: Option<bool>,
}

/// Stores an operator's change to a host, and applies it to the scheduler after the commit. Enabling a host ends its
/// drain. Returns `None` if the host does not exist.
///
/// # Errors
/// 400 with Nova's message for a host that would no longer be forced down, but has not removed the guests of evacuated
/// servers; store errors.
pub fn change(
    tx: &mut Tx<'_>,
    fleet: &Fleet,
    name: &HostName,
    change: &Change,
    now: Timestamp,
) -> Result<Option<Service>, Error> {
    let Some(mut host) = hosts::by_name(tx, name)? else { return Ok(None) };
    if change.forced_down == Some(false) && moves::any_evacuated_from(tx, name)? {
        return Err(guests_remain(name).into());
    }
    match &change.status {
        Some(Status::Enabled) => {
            (host.enabled, host.disabled_reason) = (true, None);
            drains::forget(tx, name)?;
        }
        Some(Status::Disabled(reason)) => {
            (host.enabled, host.disabled_reason) = (false, reason.clone());
        }
        None => {}
    }
    host.forced_down = change.forced_down.unwrap_or(host.forced_down);
    host.updated_at = Some(now);
    hosts::set_status(tx, &mut host, now)?;
    let (known, row) = (fleet.clone(), row_of(&host));
    tx.on_commit(move || known.refresh(&row));
    Ok(Some(of_host(fleet, &host, now)))
}

/// Upstream: `_check_for_evacuations` in `nova/api/openstack/compute/services.py`.
fn guests_remain(host: &HostName) -> Refusal {
    Refusal::bad_request(format!(
        "Unable to force up host {host} as `done` evacuation migration records remain associated with the host. \
         Ensure the compute service has been restarted, allowing these records to move to `completed` before retrying \
         this request."
    ))
}

/// The row in the form that the fleet reads.
pub fn row_of(host: &Host) -> HostRow {
    HostRow {
        version: Version { number: host.number, revision: host.revision, epoch: host.epoch },
        host: host.host.clone(),
        id: host.id,
        root: host.root_provider,
        generation: host.generation,
        enabled: host.enabled,
        forced_down: host.forced_down,
        availability_zone: host.availability_zone.clone(),
        last_seen: host.last_seen,
        reported_at: Timestamp::UNIX_EPOCH,
        about: About {
            hypervisor_type: host.hypervisor_type.clone(),
            hypervisor_version: host.hypervisor_version,
            vcpus: host.vcpus,
            memory_mb: host.memory_mb,
        },
    }
}

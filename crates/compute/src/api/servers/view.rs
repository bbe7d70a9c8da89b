//! Views of a server, by microversion. They are serialized directly to bytes, because lists of a
//! thousand servers are common.

use std::collections::{BTreeMap, HashMap};

use kilonova_access::Caller;
use kilonova_compute_app::ports::Connections;
use kilonova_compute_app::volumes::ServerVolumes;
use kilonova_compute_app::{Compute, Error, microversions};
use kilonova_compute_db::moves;
use kilonova_compute_db::servers::{Server, TaskState, VmState};
use kilonova_compute_db::volumes::BlockDevice;
use kilonova_compute_scheduler::fleet::Fleet;
use kilonova_ids::{HostName, ImageId, ServerGroupId, ServerId, VolumeId};
use kilonova_node_api::Progress;
use kilonova_store::Tx;
use kilonova_wire::{Microversion, time};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha224};

use super::extra::Extra;
use super::ports_view;
use crate::api::links::Base;

/// The parts of a server that only some callers see.
#[derive(Clone, Copy)]
pub(super) struct Visibility {
    /// The details of faults.
    pub admin: bool,
    /// The extended attributes: host, reservation and user data.
    pub attributes: bool,
    /// The state of the server's host.
    pub host_status: HostStatus,
    /// The extra specs of the flavor.
    pub extra_specs: bool,
}

impl Visibility {
    /// The parts that the policy lets the caller see in servers of its own project.
    pub(super) fn of(caller: &Caller) -> Self {
        Self {
            admin: caller.is_admin(),
            attributes: caller.allows_own("os_compute_api:os-extended-server-attributes"),
            host_status: HostStatus::of(caller),
            extra_specs: caller.allows_own("os_compute_api:servers:show:flavor-extra-specs"),
        }
    }
}

/// The condition under which a caller sees the state of a server's host.
#[derive(Clone, Copy)]
pub(super) enum HostStatus {
    /// Always.
    Always,
    /// Only if the state is unknown, to warn users that their server may be unreachable.
    Unknown,
    /// Never.
    Never,
}

impl HostStatus {
    fn of(caller: &Caller) -> Self {
        if caller.allows_own("os_compute_api:servers:show:host_status") {
            return Self::Always;
        }
        match caller.allows_own("os_compute_api:servers:show:host_status:unknown-only") {
            true => Self::Unknown,
            false => Self::Never,
        }
    }

    pub(super) fn shows(self, status: &str) -> bool {
        match self {
            Self::Always => true,
            Self::Unknown => status == "UNKNOWN",
            Self::Never => false,
        }
    }
}

/// The data that a view needs besides the server.
pub(super) struct ViewContext<'a> {
    /// The root of links.
    pub base: &'a Base,
    /// The requested microversion.
    pub version: Microversion,
    /// The parts that the caller sees.
    pub visibility: Visibility,
    /// Provides the state and the zone of hosts.
    pub compute: &'a Compute,
    /// The server's group; the outer `None` omits the key, as lists do.
    pub group: Option<Option<ServerGroupId>>,
    /// The network connections of the servers.
    pub ports: &'a Connections,
    /// The volumes of the servers.
    pub volumes: &'a ServerVolumes,
    /// The progress of the servers' live migrations.
    pub progress: &'a Progresses,
}

/// The progress of live migrations, by server.
pub(super) type Progresses = HashMap<ServerId, Progress>;

/// The progress of the live migrations of these servers. Reads nothing if none of them is being migrated.
///
/// # Errors
/// Store errors only.
pub(super) fn progress_of<'a>(
    tx: &mut Tx<'_>,
    servers: impl IntoIterator<Item = &'a Server>,
) -> Result<Progresses, Error> {
    let migrates = |server: &&Server| server.task_state == Some(TaskState::Migrating);
    let migrating: Vec<ServerId> =
        servers.into_iter().filter(migrates).map(|server| server.id).collect();
    if migrating.is_empty() {
        return Ok(Progresses::new());
    }
    Ok(moves::progress_of_some(tx, &migrating)?)
}

/// The copied part of a guest's memory, in per cent (`_live_migration_monitor` in `nova/virt/libvirt/driver.py`, `save_stats`
/// in `nova/virt/libvirt/migration.py`).
fn percent(progress: &Progress) -> i64 {
    let total = i128::from(progress.memory_total);
    if total <= 0 {
        return 0;
    }
    let remaining = (i128::from(progress.memory_remaining) * 100 + total / 2) / total;
    100 - i64::try_from(remaining.clamp(0, 100)).unwrap_or(100)
}

/// A volume in the view of its server.
#[derive(Serialize)]
struct AttachedVolume {
    id: VolumeId,
    #[serde(skip_serializing_if = "Option::is_none")]
    delete_on_termination: Option<bool>,
}

impl AttachedVolume {
    fn of(server: &Server, view_context: &ViewContext<'_>) -> Vec<Self> {
        let shown = view_context.version >= microversions::EXTENDED_ATTRIBUTES;
        let volumes = view_context.volumes.get(&server.id).into_iter().flatten();
        let volume = |device: &BlockDevice| {
            let delete_on_termination = shown.then_some(device.delete_on_termination);
            Some(Self { id: device.volume?, delete_on_termination })
        };
        volumes.filter_map(volume).collect()
    }
}

// The tasks that determine the status instead of the state; see `status`.
const SOFT_REBOOT: &[&str] = &["rebooting", "reboot_pending", "reboot_started"];
const HARD_REBOOT: &[&str] = &["rebooting_hard", "reboot_pending_hard", "reboot_started_hard"];
const REBUILD: &[&str] = &["rebuilding", "rebuild_block_device_mapping", "rebuild_spawning"];
const RESIZE: &[&str] = &["resize_prep", "resize_migrating", "resize_migrated", "resize_finish"];

/// Nova's `status` (`api/openstack/common.py`).
pub(in crate::api) fn status(server: &Server) -> &'static str {
    let task = server.task_state.map_or("", TaskState::as_str);
    let rebuilt = REBUILD.contains(&task);
    match server.vm_state {
        VmState::Active => match task {
            _ if SOFT_REBOOT.contains(&task) => "REBOOT",
            _ if HARD_REBOOT.contains(&task) => "HARD_REBOOT",
            "updating_password" => "PASSWORD",
            "migrating" => "MIGRATING",
            _ if rebuilt => "REBUILD",
            _ if RESIZE.contains(&task) => "RESIZE",
            _ => "ACTIVE",
        },
        VmState::Stopped if rebuilt => "REBUILD",
        VmState::Stopped if RESIZE.contains(&task) => "RESIZE",
        VmState::Error if rebuilt => "REBUILD",
        VmState::Resized if task == "resize_reverting" => "REVERT_RESIZE",
        VmState::Paused if task == "migrating" => "MIGRATING",
        VmState::Building => "BUILD",
        VmState::Paused => "PAUSED",
        VmState::Suspended => "SUSPENDED",
        VmState::Stopped => "SHUTOFF",
        VmState::Rescued => "RESCUE",
        VmState::Resized => "VERIFY_RESIZE",
        VmState::Shelved => "SHELVED",
        VmState::ShelvedOffloaded => "SHELVED_OFFLOADED",
        VmState::SoftDeleted => "SOFT_DELETED",
        VmState::Error => "ERROR",
        VmState::Deleted => "DELETED",
    }
}

/// All statuses, in alphabetical order.
pub(super) const STATUSES: &[&str] = &[
    "ACTIVE",
    "BUILD",
    "DELETED",
    "ERROR",
    "HARD_REBOOT",
    "MIGRATING",
    "PASSWORD",
    "PAUSED",
    "REBOOT",
    "REBUILD",
    "RESCUE",
    "RESIZE",
    "REVERT_RESIZE",
    "SHELVED",
    "SHELVED_OFFLOADED",
    "SHUTOFF",
    "SOFT_DELETED",
    "SUSPENDED",
    "VERIFY_RESIZE",
];

/// The states and the tasks that Nova's filter by a status selects; without tasks, any task or none
/// (`task_and_vm_state_from_status` in `api/openstack/common.py`).
pub(super) fn states_and_tasks(status: &str) -> (&'static [VmState], &'static [&'static str]) {
    match status {
        "ACTIVE" => (&[VmState::Active], &[]),
        "REBOOT" => (&[VmState::Active], SOFT_REBOOT),
        "HARD_REBOOT" => (&[VmState::Active], HARD_REBOOT),
        "PASSWORD" => (&[VmState::Active], &["updating_password"]),
        "BUILD" => (&[VmState::Building], &[]),
        "DELETED" => (&[VmState::Deleted], &[]),
        "ERROR" => (&[VmState::Error], &[]),
        "MIGRATING" => (&[VmState::Active, VmState::Paused], &["migrating"]),
        "PAUSED" => (&[VmState::Paused], &[]),
        "REBUILD" => (&[VmState::Active, VmState::Stopped, VmState::Error], REBUILD),
        "RESCUE" => (&[VmState::Rescued], &[]),
        "RESIZE" => (&[VmState::Active, VmState::Stopped], RESIZE),
        "VERIFY_RESIZE" => (&[VmState::Resized], &[]),
        "REVERT_RESIZE" => (&[VmState::Resized], &["resize_reverting"]),
        "SHELVED" => (&[VmState::Shelved], &[]),
        "SHELVED_OFFLOADED" => (&[VmState::ShelvedOffloaded], &[]),
        "SHUTOFF" => (&[VmState::Stopped], &[]),
        "SOFT_DELETED" => (&[VmState::SoftDeleted], &[]),
        "SUSPENDED" => (&[VmState::Suspended], &[]),
        _ => (&[], &[]),
    }
}

#[derive(Serialize)]
pub(super) struct Link {
    rel: &'static str,
    href: String,
}

pub(super) fn links(base: &Base, id: impl std::fmt::Display) -> [Link; 2] {
    let itself = Link { rel: "self", href: format!("{}/servers/{id}", base.versioned()) };
    [itself, bookmark(base, "servers", id)]
}

fn bookmark(base: &Base, collection: &str, id: impl std::fmt::Display) -> Link {
    Link { rel: "bookmark", href: format!("{}/{collection}/{id}", base.unversioned()) }
}

/// The brief form: id, name, links.
#[derive(Serialize)]
pub(super) struct Brief<'a> {
    id: kilonova_ids::ServerId,
    name: &'a str,
    links: [Link; 2],
}

impl<'a> Brief<'a> {
    pub(super) fn of(server: &'a Server, base: &Base) -> Self {
        Self { id: server.id, name: &server.name, links: links(base, server.id) }
    }
}

/// The full form. The status decides whether `progress` and `fault` are omitted.
#[derive(Serialize)]
pub(super) struct Detail<'a> {
    id: kilonova_ids::ServerId,
    name: &'a str,
    status: &'static str,
    tenant_id: &'a str,
    user_id: &'a str,
    metadata: &'a BTreeMap<String, String>,
    #[serde(rename = "hostId")]
    host_id: String,
    image: Image<'a>,
    flavor: Flavor<'a>,
    created: String,
    updated: String,
    addresses: BTreeMap<String, Vec<Value>>,
    #[serde(rename = "accessIPv4")]
    access_v4: &'a str,
    #[serde(rename = "accessIPv6")]
    access_v6: &'a str,
    links: [Link; 2],
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<Value>,
    #[serde(rename = "OS-DCF:diskConfig")]
    disk_config: &'a str,
    #[serde(rename = "OS-EXT-AZ:availability_zone")]
    availability_zone: String,
    config_drive: &'static str,
    key_name: Option<&'a str>,
    #[serde(rename = "OS-SRV-USG:launched_at")]
    launched_at: Option<String>,
    #[serde(rename = "OS-SRV-USG:terminated_at")]
    terminated_at: Option<String>,
    #[serde(rename = "OS-EXT-STS:task_state")]
    task_state: Option<&'a str>,
    #[serde(rename = "OS-EXT-STS:vm_state")]
    vm_state: &'static str,
    #[serde(rename = "OS-EXT-STS:power_state")]
    power_state: i64,
    #[serde(rename = "os-extended-volumes:volumes_attached")]
    volumes: Vec<AttachedVolume>,
    #[serde(flatten)]
    extra: Extra<'a>,
}

impl<'a> Detail<'a> {
    pub(super) fn of(server: &'a Server, view_context: &ViewContext<'_>) -> Self {
        let spec = &server.spec;
        let status = status(server);
        Self {
            id: server.id,
            name: &server.name,
            status,
            tenant_id: &server.project_id,
            user_id: &server.user_id,
            metadata: &server.metadata,
            host_id: host_id(&server.project_id, server.host.as_ref()),
            image: Image::of(server, view_context),
            flavor: Flavor::of(server, view_context),
            created: time::zulu(server.created_at),
            updated: time::zulu(server.updated_at),
            addresses: ports_view::addresses(view_context.ports.of(server.id), true),
            access_v4: &spec.access[0],
            access_v6: &spec.access[1],
            links: links(view_context.base, server.id),
            progress: shows_progress(status)
                .then(|| view_context.progress.get(&server.id).map_or(0, percent)),
            fault: server.fault.as_ref().filter(|_| matches!(status, "ERROR" | "DELETED")).map(
                |fault| {
                    let mut shown = json!({
                        "code": fault.code,
                        "created": time::zulu(fault.created),
                        "message": if view_context.visibility.admin { &*fault.message } else { fault.owner_message() },
                    });
                    if let Some(details) = fault.details.as_ref().filter(|_| view_context.visibility.admin) {
                        shown["details"] = details.clone().into();
                    }
                    shown
                },
            ),
            disk_config: &spec.disk_config,
            availability_zone: zone(&view_context.compute.fleet, server),
            config_drive: if spec.config_drive { "True" } else { "" },
            key_name: spec.key_name.as_deref(),
            launched_at: server.launched_at.map(time::naive),
            terminated_at: server.deleted_at.map(time::naive),
            task_state: server.task_state.map(TaskState::as_str),
            vm_state: server.vm_state.as_str(),
            power_state: server.power_state.number(),
            volumes: AttachedVolume::of(server, view_context),
            extra: Extra::of(server, view_context),
        }
    }
}

/// True if a server with this status has the key `progress`.
fn shows_progress(status: &str) -> bool {
    matches!(status, "ACTIVE" | "BUILD" | "REBUILD" | "RESIZE" | "VERIFY_RESIZE" | "MIGRATING")
}

/// An opaque id of a host: equal for all servers of a project on that host.
pub(super) fn host_id(project: &str, host: Option<&HostName>) -> String {
    let Some(host) = host else { return String::new() };
    let digest = Sha224::digest(format!("{project}{host}"));
    // Without `format!`, which for each byte takes a fifth of the time of a list.
    let digit = |half: u8| char::from_digit(half.into(), 16).unwrap_or_default();
    digest.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The image of a server; an empty string for a server without one.
#[derive(Serialize)]
#[serde(untagged)]
enum Image<'a> {
    None(&'static str),
    Image {
        id: ImageId,
        links: [Link; 1],
        #[serde(skip_serializing_if = "Option::is_none")]
        properties: Option<&'a BTreeMap<String, String>>,
    },
}

impl<'a> Image<'a> {
    fn of(server: &'a Server, view_context: &ViewContext<'_>) -> Self {
        let Some(id) = server.spec.image else { return Self::None("") };
        let shown = view_context.version >= microversions::IMAGE_PROPERTIES;
        Self::Image {
            id,
            links: [bookmark(view_context.base, "images", id)],
            properties: shown.then_some(&server.spec.image_properties),
        }
    }
}

/// The flavor of a server: a link before 2.47, a copy of its values from 2.47 on.
#[derive(Serialize)]
#[serde(untagged)]
enum Flavor<'a> {
    Link {
        id: &'a str,
        links: [Link; 1],
    },
    Embedded {
        vcpus: i64,
        ram: i64,
        disk: i64,
        ephemeral: i64,
        swap: i64,
        original_name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        extra_specs: Option<&'a BTreeMap<String, String>>,
    },
}

impl<'a> Flavor<'a> {
    fn of(server: &'a Server, view_context: &ViewContext<'_>) -> Self {
        let flavor = &server.spec.flavor;
        if view_context.version < microversions::FLAVOR_IN_SERVER {
            let links = [bookmark(view_context.base, "flavors", &flavor.id)];
            return Self::Link { id: &flavor.id, links };
        }
        Self::Embedded {
            vcpus: flavor.vcpus,
            ram: flavor.ram,
            disk: flavor.disk,
            ephemeral: flavor.ephemeral,
            swap: flavor.swap,
            original_name: &flavor.name,
            extra_specs: view_context.visibility.extra_specs.then_some(&flavor.extra_specs),
        }
    }
}

/// The zone of a server's host, or the requested zone if the server has no host and has never run
/// (Nova's `get_instance_availability_zone`); empty if there is neither.
pub(super) fn zone(fleet: &Fleet, server: &Server) -> String {
    match &server.host {
        Some(host) => fleet.by_name(host).map(|host| host.zone()).unwrap_or_default(),
        None if server.launched_at.is_none() => {
            server.spec.availability_zone.clone().unwrap_or_default()
        }
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use kilonova_compute_app::statuses;

    use super::*;

    #[test]
    fn clients_select_existing_servers_by_every_status_of_a_state() {
        let of_state = |status: &&&str| states_and_tasks(status).1.is_empty();
        let existing = STATUSES.iter().filter(|status| **status != "DELETED").filter(of_state);
        assert_eq!(Vec::from_iter(existing.copied()), statuses::OF_EXISTING);
    }
}

//! A server as clients see it, by microversion. Written straight to bytes: a list of a thousand is
//! an everyday request.

use std::collections::BTreeMap;

use kilonova_access::Caller;
use kilonova_ids::{ImageId, ServerGroupId};
use kilonova_wire::{Base, Microversion, time};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha224};

use super::extra::Extra;
use crate::Compute;
use crate::app::nics::Connections;
use crate::db::servers::{Server, VmState};
use crate::microversions;

/// What of a server only some callers see.
#[derive(Clone, Copy)]
pub(super) struct Sight {
    /// True if faults come with their details.
    pub admin: bool,
    /// Where it runs, and how it was asked for.
    pub attributes: bool,
    /// The state of its host.
    pub host_status: HostStatus,
    /// The flavor's extra specs.
    pub extra_specs: bool,
}

impl Sight {
    /// What the policy lets the caller see of servers of its own project.
    pub(super) fn of(caller: &Caller) -> Self {
        Self {
            admin: caller.is_admin(),
            attributes: caller.allows_own("os_compute_api:os-extended-server-attributes"),
            host_status: HostStatus::of(caller),
            extra_specs: caller.allows_own("os_compute_api:servers:show:flavor-extra-specs"),
        }
    }
}

/// When a caller sees the state of a server's host.
#[derive(Clone, Copy)]
pub(super) enum HostStatus {
    /// Always.
    Always,
    /// While it is unknown: Nova's way to tell users that their server may not be reached.
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

/// What the view needs besides the server.
pub(super) struct Scene<'a> {
    /// For links.
    pub base: &'a Base,
    /// The version asked for.
    pub version: Microversion,
    /// What the caller sees of it.
    pub sight: Sight,
    /// Tells of hosts whether they are up and which zone they are in.
    pub compute: &'a Compute,
    /// The group it is in, which a list does not say.
    pub group: Option<Option<ServerGroupId>>,
    /// How the servers are connected.
    pub nics: &'a Connections,
}

/// Nova's `status` (`api/openstack/common.py`).
pub(in crate::api) fn status(server: &Server) -> &'static str {
    const REBUILD: &[&str] = &["rebuilding", "rebuild_block_device_mapping", "rebuild_spawning"];
    const RESIZE: &[&str] =
        &["resize_prep", "resize_migrating", "resize_migrated", "resize_finish"];
    let task = server.task_state.as_deref().unwrap_or_default();
    let rebuilt = REBUILD.contains(&task);
    match server.vm_state {
        VmState::Active => match task {
            "rebooting" | "reboot_pending" | "reboot_started" => "REBOOT",
            "rebooting_hard" | "reboot_pending_hard" | "reboot_started_hard" => "HARD_REBOOT",
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

/// Every status, in Nova's order of names.
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

/// The states in which a server can have a status.
pub(super) fn states_of(status: &str) -> &'static [VmState] {
    match status {
        "ACTIVE" | "REBOOT" | "HARD_REBOOT" | "PASSWORD" => &[VmState::Active],
        "BUILD" => &[VmState::Building],
        "DELETED" => &[VmState::Deleted],
        "ERROR" => &[VmState::Error],
        "MIGRATING" => &[VmState::Active, VmState::Paused],
        "PAUSED" => &[VmState::Paused],
        "REBUILD" => &[VmState::Active, VmState::Stopped, VmState::Error],
        "RESCUE" => &[VmState::Rescued],
        "RESIZE" => &[VmState::Active, VmState::Stopped],
        "VERIFY_RESIZE" | "REVERT_RESIZE" => &[VmState::Resized],
        "SHELVED" => &[VmState::Shelved],
        "SHELVED_OFFLOADED" => &[VmState::ShelvedOffloaded],
        "SHUTOFF" => &[VmState::Stopped],
        "SOFT_DELETED" => &[VmState::SoftDeleted],
        "SUSPENDED" => &[VmState::Suspended],
        _ => &[],
    }
}

#[derive(Serialize)]
pub(super) struct Link {
    rel: &'static str,
    href: String,
}

pub(super) fn links(base: &Base, id: impl std::fmt::Display) -> [Link; 2] {
    let itself = Link { rel: "self", href: format!("{}/v2.1/servers/{id}", base.0) };
    [itself, bookmark(base, "servers", id)]
}

fn bookmark(base: &Base, of: &str, id: impl std::fmt::Display) -> Link {
    Link { rel: "bookmark", href: format!("{}/{of}/{id}", base.0) }
}

/// Id, name, links.
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

/// Everything. An outer `None` means that the key is not there at this version or for this caller.
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
    volumes: [String; 0],
    #[serde(flatten)]
    extra: Extra<'a>,
}

impl<'a> Detail<'a> {
    pub(super) fn of(server: &'a Server, scene: &Scene<'_>) -> Self {
        let spec = &server.spec;
        let status = status(server);
        Self {
            id: server.id,
            name: &server.name,
            status,
            tenant_id: &server.project_id,
            user_id: &server.user_id,
            metadata: &server.metadata,
            host_id: host_id(&server.project_id, server.host.as_deref()),
            image: Image::of(server, scene),
            flavor: Flavor::of(server, scene),
            created: time::zulu(server.created_at),
            updated: time::zulu(server.updated_at),
            addresses: scene.nics.addresses(server.id, true),
            access_v4: &spec.access[0],
            access_v6: &spec.access[1],
            links: links(scene.base, server.id),
            progress: shows_progress(status).then_some(0),
            fault: server.fault.as_ref().filter(|_| matches!(status, "ERROR" | "DELETED")).map(
                |fault| {
                    let mut shown = json!({
                        "code": fault.code,
                        "created": time::zulu(fault.created),
                        "message": if scene.sight.admin { &*fault.message } else { fault.told() },
                    });
                    if let Some(details) = fault.details.as_ref().filter(|_| scene.sight.admin) {
                        shown["details"] = details.clone().into();
                    }
                    shown
                },
            ),
            disk_config: &spec.disk_config,
            availability_zone: scene.compute.zone_of(server.host.as_deref()),
            config_drive: if spec.config_drive { "True" } else { "" },
            key_name: spec.key_name.as_deref(),
            launched_at: server.launched_at.map(time::naive),
            terminated_at: server.deleted_at.map(time::naive),
            task_state: server.task_state.as_deref(),
            vm_state: server.vm_state.as_str(),
            power_state: server.power_state,
            volumes: [],
            extra: Extra::of(server, scene),
        }
    }
}

/// The statuses that come with a `progress`, which no driver of upstream's raises above 0.
fn shows_progress(status: &str) -> bool {
    matches!(status, "ACTIVE" | "BUILD" | "REBUILD" | "RESIZE" | "VERIFY_RESIZE" | "MIGRATING")
}

/// A host without its name: the same for all servers that a project has on it.
pub(super) fn host_id(project: &str, host: Option<&str>) -> String {
    let Some(host) = host else { return String::new() };
    let digest = Sha224::digest(format!("{project}{host}"));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An image as a server shows it; empty text for a server that is not made of one.
#[derive(Serialize)]
#[serde(untagged)]
enum Image<'a> {
    None(&'static str),
    Of {
        id: ImageId,
        links: [Link; 1],
        #[serde(skip_serializing_if = "Option::is_none")]
        properties: Option<&'a BTreeMap<String, String>>,
    },
}

impl<'a> Image<'a> {
    fn of(server: &'a Server, scene: &Scene<'_>) -> Self {
        let Some(id) = server.spec.image else { return Self::None("") };
        let shown = scene.version >= microversions::IMAGE_PROPERTIES;
        Self::Of {
            id,
            links: [bookmark(scene.base, "images", id)],
            properties: shown.then_some(&server.spec.image_properties),
        }
    }
}

/// A flavor as a server shows it: where it is, and from 2.47 on what it was.
#[derive(Serialize)]
#[serde(untagged)]
enum Flavor<'a> {
    At {
        id: &'a str,
        links: [Link; 1],
    },
    Was {
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
    fn of(server: &'a Server, scene: &Scene<'_>) -> Self {
        let flavor = &server.spec.flavor;
        if scene.version < microversions::FLAVOR_IN_SERVER {
            let links = [bookmark(scene.base, "flavors", &flavor.id)];
            return Self::At { id: &flavor.id, links };
        }
        Self::Was {
            vcpus: flavor.vcpus,
            ram: flavor.ram,
            disk: flavor.disk,
            ephemeral: flavor.ephemeral,
            swap: flavor.swap,
            original_name: &flavor.name,
            extra_specs: scene.sight.extra_specs.then_some(&flavor.extra_specs),
        }
    }
}

//! A server as clients see it, by microversion. Written straight to bytes: a list of a thousand is
//! an everyday request.

use std::borrow::Cow;
use std::collections::BTreeMap;

use kilonova_ids::ServerGroupId;
use kilonova_wire::{Base, Microversion, time};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha224};

use crate::db::servers::{Server, VmState};

/// What the view needs besides the server.
pub(super) struct Scene<'a> {
    /// For links.
    pub base: &'a Base,
    /// The version asked for.
    pub version: Microversion,
    /// Admins see where a server runs.
    pub admin: bool,
    /// Whether a host is up, for `host_status`.
    pub host_up: &'a dyn Fn(&str) -> bool,
    /// The group it is in, which a list does not say.
    pub group: Option<Option<ServerGroupId>>,
}

/// Nova's `status` (`api/openstack/common.py`).
pub(super) fn status(server: &Server) -> &'static str {
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
    [
        Link { rel: "self", href: format!("{}/v2.1/servers/{id}", base.0) },
        Link { rel: "bookmark", href: format!("{}/servers/{id}", base.0) },
    ]
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
    image: Value,
    flavor: Value,
    created: String,
    updated: String,
    addresses: BTreeMap<String, String>,
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
    availability_zone: Cow<'a, str>,
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
    extra: BTreeMap<&'static str, Value>,
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
            image: image(server, scene),
            flavor: flavor(server, scene),
            created: time::zulu(server.created_at),
            updated: time::zulu(server.updated_at),
            addresses: BTreeMap::new(),
            access_v4: &spec.access[0],
            access_v6: &spec.access[1],
            links: links(scene.base, server.id),
            progress: matches!(status, "ACTIVE" | "BUILD" | "REBOOT" | "HARD_REBOOT")
                .then_some(if server.vm_state == VmState::Building { 0 } else { progress(status) }),
            fault: server.fault.as_ref().filter(|_| matches!(status, "ERROR" | "DELETED")).map(
                |fault| {
                    let mut shown = json!({
                        "code": fault.code,
                        "created": time::zulu(fault.created),
                        "message": fault.message,
                    });
                    if let Some(details) = fault.details.as_ref().filter(|_| scene.admin) {
                        shown["details"] = details.clone().into();
                    }
                    shown
                },
            ),
            disk_config: &spec.disk_config,
            availability_zone: spec
                .availability_zone
                .as_deref()
                .unwrap_or(if server.host.is_some() { "nova" } else { "" })
                .into(),
            config_drive: if spec.config_drive { "True" } else { "" },
            key_name: spec.key_name.as_deref(),
            launched_at: server.launched_at.map(time::naive),
            terminated_at: server.deleted_at.map(time::naive),
            task_state: server.task_state.as_deref(),
            vm_state: server.vm_state.as_str(),
            power_state: server.power_state,
            volumes: [],
            extra: extra(server, scene),
        }
    }
}

fn progress(status: &str) -> i64 {
    if status == "ACTIVE" { 0 } else { 100 }
}

/// A host without its name: the same for all servers that a project has on it.
pub(super) fn host_id(project: &str, host: Option<&str>) -> String {
    let Some(host) = host else { return String::new() };
    let digest = Sha224::digest(format!("{project}{host}"));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn image(server: &Server, scene: &Scene<'_>) -> Value {
    let Some(id) = server.spec.image else { return "".into() };
    let mut image = json!({
        "id": id,
        "links": [{"rel": "bookmark", "href": format!("{}/images/{id}", scene.base.0)}],
    });
    if scene.version >= Microversion(2, 98) {
        image["properties"] = json!(server.spec.image_properties);
    }
    image
}

fn flavor(server: &Server, scene: &Scene<'_>) -> Value {
    let flavor = &server.spec.flavor;
    if scene.version < Microversion(2, 47) {
        return json!({
            "id": flavor.id,
            "links": [{"rel": "bookmark",
                "href": format!("{}/flavors/{}", scene.base.0, flavor.id)}],
        });
    }
    json!({
        "vcpus": flavor.vcpus, "ram": flavor.ram, "disk": flavor.disk,
        "ephemeral": flavor.ephemeral, "swap": flavor.swap,
        "original_name": flavor.name, "extra_specs": flavor.extra_specs,
    })
}

/// The keys that came with later microversions, or that only admins see.
fn extra(server: &Server, scene: &Scene<'_>) -> BTreeMap<&'static str, Value> {
    let (spec, version) = (&server.spec, scene.version);
    let mut extra = BTreeMap::new();
    let mut add = |from: u32, key: &'static str, value: Value| {
        if version >= Microversion(2, from) {
            extra.insert(key, value);
        }
    };
    if server.host.is_some() {
        add(1, "security_groups", json!([{"name": "default"}]));
    }
    add(9, "locked", json!(server.lock.is_some()));
    add(19, "description", json!(server.description));
    add(26, "tags", json!(server.tags));
    add(63, "trusted_image_certificates", Value::Null);
    if let Some(group) = &scene.group {
        add(71, "server_groups", json!(group.iter().collect::<Vec<_>>()));
    }
    add(73, "locked_reason", json!(server.lock.as_ref().and_then(|lock| lock.reason.as_ref())));
    add(90, "OS-EXT-SRV-ATTR:hostname", json!(spec.hostname));
    add(96, "pinned_availability_zone", json!(spec.availability_zone));
    add(100, "scheduler_hints", spec.hints.clone());
    if scene.admin {
        add(1, "OS-EXT-SRV-ATTR:host", json!(server.host));
        add(1, "OS-EXT-SRV-ATTR:hypervisor_hostname", json!(server.host));
        add(1, "OS-EXT-SRV-ATTR:instance_name", json!(server.instance_name()));
        add(3, "OS-EXT-SRV-ATTR:hostname", json!(spec.hostname));
        add(3, "OS-EXT-SRV-ATTR:reservation_id", json!(spec.reservation_id));
        add(3, "OS-EXT-SRV-ATTR:launch_index", json!(spec.launch_index));
        add(3, "OS-EXT-SRV-ATTR:kernel_id", json!(""));
        add(3, "OS-EXT-SRV-ATTR:ramdisk_id", json!(""));
        add(3, "OS-EXT-SRV-ATTR:root_device_name", json!("/dev/vda"));
        add(3, "OS-EXT-SRV-ATTR:user_data", json!(spec.user_data));
        let host_status = server
            .host
            .as_deref()
            .map_or("", |host| if (scene.host_up)(host) { "UP" } else { "DOWN" });
        add(16, "host_status", json!(host_status));
    }
    extra
}

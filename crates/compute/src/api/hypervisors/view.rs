//! Views of a hypervisor, by microversion.

use jiff::Timestamp;
use kilonova_compute_app::{microversions, services};
use kilonova_compute_db::hosts::Host;
use kilonova_compute_db::usage::{HostUsage, NamedServer};
use kilonova_compute_scheduler::fleet::Fleet;
use kilonova_wire::Microversion;
use serde_json::{Value, json};

/// The id at a microversion: the root provider's from 2.53 on, a number before.
pub(super) fn id(host: &Host, version: Microversion) -> String {
    if version >= microversions::SERVICE_UUIDS {
        host.root_provider.to_string()
    } else {
        host.number.to_string()
    }
}

/// The brief form.
pub(super) fn brief(fleet: &Fleet, host: &Host, version: Microversion, now: Timestamp) -> Value {
    let id = match version >= microversions::SERVICE_UUIDS {
        true => json!(host.root_provider),
        false => json!(host.number),
    };
    json!({
        "id": id,
        "hypervisor_hostname": host.host,
        "state": if services::is_up(fleet, host, now) { "up" } else { "down" },
        "status": if host.enabled { "enabled" } else { "disabled" },
    })
}

/// True if a form shows the usage: only the full form before 2.88 does.
pub(super) fn has_usage(detail: bool, version: Microversion) -> bool {
    detail && version < microversions::HYPERVISOR_UPTIME
}

/// The full form.
pub(super) fn detail(
    fleet: &Fleet,
    host: &Host,
    usage: &HostUsage,
    version: Microversion,
    now: Timestamp,
) -> Value {
    let mut shown = brief(fleet, host, version, now);
    let service = match version >= microversions::SERVICE_UUIDS {
        true => json!(host.id),
        false => json!(services::service_number(host)),
    };
    shown["hypervisor_type"] = json!(host.hypervisor_type);
    shown["hypervisor_version"] = json!(host.hypervisor_version);
    shown["host_ip"] = json!(host.host_ip);
    shown["service"] = json!({
        "id": service, "host": host.host, "disabled_reason": host.disabled_reason,
    });
    if !has_usage(true, version) {
        shown["uptime"] = Value::Null;
        return shown;
    }
    shown["vcpus"] = json!(host.vcpus);
    shown["memory_mb"] = json!(host.memory_mb);
    shown["local_gb"] = json!(host.disk_gb);
    shown["vcpus_used"] = json!(usage.vcpus);
    shown["memory_mb_used"] = json!(usage.memory_mb);
    shown["local_gb_used"] = json!(usage.disk_gb);
    shown["free_ram_mb"] = json!(host.memory_mb - usage.memory_mb);
    shown["free_disk_gb"] = json!(host.disk_gb - usage.disk_gb);
    shown["disk_available_least"] = json!(host.disk_gb - usage.disk_gb);
    shown["current_workload"] = json!(usage.busy);
    shown["running_vms"] = json!(usage.servers);
    shown["cpu_info"] = match version >= microversions::CPU_INFO_OBJECT {
        true => json!({}),
        // The text of a JSON object.
        false => json!("{}"),
    };
    shown
}

/// Adds the servers. Before 2.75, a host without servers has no `servers` key.
pub(super) fn add_servers(shown: &mut Value, servers: &[NamedServer], version: Microversion) {
    if servers.is_empty() && version < microversions::STRICT_REQUESTS {
        return;
    }
    shown["servers"] = servers.iter().map(|(id, name)| json!({"uuid": id, "name": name})).collect();
}

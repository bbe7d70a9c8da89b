//! `/extensions`: the list from which older clients discover features.
//!
//! Upstream's list never changes and names every extension that ever existed. This list does the
//! same; the routes of removed or missing features refuse requests themselves.

use axum::Json;
use axum::extract::Path;
use kilonova_access::{Routes, get};
use kilonova_compute_app::Compute;
use kilonova_wire::Refusal;
use serde_json::{Value, json};

const UPDATED: &str = "2014-12-03T00:00:00Z";
const EXTENSIONS: &[(&str, &str, &str)] = &[
    ("NMN", "Multinic", "Several networks for a server."),
    ("OS-DCF", "DiskConfig", "How the disk of a server is partitioned."),
    ("OS-EXT-AZ", "ExtendedAvailabilityZone", "The zone of servers."),
    ("OS-EXT-IMG-SIZE", "ImageSize", "The size of images in lists."),
    ("OS-EXT-IPS", "ExtendedIps", "The type of a server's addresses."),
    ("OS-EXT-IPS-MAC", "ExtendedIpsMac", "The hardware addresses of servers."),
    ("OS-EXT-SRV-ATTR", "ExtendedServerAttributes", "Where servers are, for administrators."),
    ("OS-EXT-STS", "ExtendedStatus", "Task, power and VM state of servers."),
    ("OS-FLV-DISABLED", "FlavorDisabled", "The flag of disabled flavors."),
    ("OS-FLV-EXT-DATA", "FlavorExtraData", "Ephemeral disk of flavors."),
    ("OS-SCH-HNT", "SchedulerHints", "Scheduler hints from users."),
    ("OS-SRV-USG", "ServerUsage", "Launch and termination times of servers."),
    ("os-access-ips", "AccessIPs", "Addresses that users record for a server."),
    ("os-admin-actions", "AdminActions", "Reset of the state of servers."),
    ("os-admin-password", "AdminPassword", "Change of the password in a guest."),
    ("os-agents", "Agents", "Guest agents; removed."),
    ("os-aggregates", "Aggregates", "Groups of hosts."),
    (
        "os-assisted-volume-snapshots",
        "AssistedVolumeSnapshots",
        "Volume snapshots assisted by the hypervisor.",
    ),
    (
        "os-attach-interfaces",
        "AttachInterfaces",
        "Interfaces attached to and detached from servers.",
    ),
    ("os-availability-zone", "AvailabilityZone", "Zones and their hosts."),
    ("os-baremetal-ext-status", "BareMetalExtStatus", "More details of bare metal nodes."),
    ("os-baremetal-nodes", "BareMetalNodes", "Bare metal nodes."),
    ("os-block-device-mapping", "BlockDeviceMapping", "Block devices of new servers."),
    (
        "os-block-device-mapping-v2-boot",
        "BlockDeviceMappingV2Boot",
        "Block devices of new servers, version 2.",
    ),
    ("os-cell-capacities", "CellCapacities", "Capacities of cells; removed."),
    ("os-cells", "Cells", "Cells; removed."),
    ("os-certificates", "Certificates", "Certificates; removed."),
    ("os-cloudpipe", "Cloudpipe", "Cloudpipe servers; removed."),
    ("os-cloudpipe-update", "CloudpipeUpdate", "Changes of cloudpipe servers; removed."),
    ("os-config-drive", "ConfigDrive", "A drive that configures the guest."),
    ("os-console-auth-tokens", "ConsoleAuthTokens", "Tokens of consoles."),
    ("os-console-output", "ConsoleOutput", "Console log of guests."),
    ("os-consoles", "Consoles", "Consoles of servers."),
    ("os-create-backup", "CreateBackup", "Backups of servers, with rotation."),
    ("os-create-server-ext", "Createserverext", "An older form of server creation."),
    ("os-deferred-delete", "DeferredDelete", "Deleted servers that can be restored for a while."),
    ("os-evacuate", "Evacuate", "Evacuation of servers from a host that is down."),
    (
        "os-extended-evacuate-find-host",
        "ExtendedEvacuateFindHost",
        "Evacuation to a host that the scheduler chooses.",
    ),
    ("os-extended-floating-ips", "ExtendedFloatingIps", "The fixed address of a floating address."),
    ("os-extended-hypervisors", "ExtendedHypervisors", "More details of compute hosts."),
    ("os-extended-networks", "ExtendedNetworks", "More details of networks."),
    ("os-extended-quotas", "ExtendedQuotas", "Deletion and forced changes of quotas."),
    ("os-extended-rescue-with-image", "ExtendedRescueWithImage", "Rescue from a specified image."),
    ("os-extended-services", "ExtendedServices", "The reason why a service is disabled."),
    ("os-extended-services-delete", "ExtendedServicesDelete", "Deletion of services."),
    ("os-extended-status", "ExtendedStatus", "More details of the state of servers."),
    ("os-extended-volumes", "ExtendedVolumes", "Volumes of servers."),
    ("os-fixed-ips", "FixedIPs", "Fixed addresses; removed."),
    ("os-flavor-access", "FlavorAccess", "Projects that may use a private flavor."),
    ("os-flavor-extra-specs", "FlavorExtraSpecs", "Extra specs of flavors."),
    ("os-flavor-manage", "FlavorManage", "Creation and deletion of flavors."),
    ("os-flavor-rxtx", "FlavorRxtx", "The rxtx factor of flavors."),
    ("os-flavor-swap", "FlavorSwap", "Swap of flavors."),
    ("os-floating-ip-dns", "FloatingIpDns", "Names of floating addresses; removed."),
    ("os-floating-ip-pools", "FloatingIpPools", "Networks of floating addresses."),
    ("os-floating-ips", "FloatingIps", "Floating addresses."),
    ("os-floating-ips-bulk", "FloatingIpsBulk", "Many floating addresses at once; removed."),
    ("os-fping", "Fping", "Pinging of servers; removed."),
    ("os-hide-server-addresses", "HideServerAddresses", "States in which addresses are hidden."),
    ("os-hosts", "Hosts", "Hosts, for administrators."),
    ("os-hypervisor-status", "HypervisorStatus", "The state of compute hosts."),
    ("os-hypervisors", "Hypervisors", "Compute hosts and their usage."),
    ("os-instance-actions", "InstanceActions", "Actions performed on servers."),
    ("os-instance_usage_audit_log", "OSInstanceUsageAuditLog", "The log of the usage audit."),
    ("os-keypairs", "Keypairs", "Public keys of users."),
    ("os-lock-server", "LockServer", "Locking of servers."),
    ("os-migrate-server", "MigrateServer", "Cold and live migration of servers."),
    ("os-migrations", "Migrations", "Past and current migrations of servers."),
    ("os-multiple-create", "MultipleCreate", "Several servers in one request."),
    ("os-networks", "Networks", "Networks, for administrators."),
    ("os-networks-associate", "NetworkAssociationSupport", "Networks of projects; removed."),
    ("os-pause-server", "PauseServer", "Pausing of servers."),
    ("os-personality", "Personality", "Files injected into guests."),
    (
        "os-preserve-ephemeral-rebuild",
        "PreserveEphemeralOnRebuild",
        "Ephemeral disks preserved by a rebuild.",
    ),
    ("os-quota-class-sets", "QuotaClasses", "Default limits of all projects."),
    ("os-quota-sets", "Quotas", "Limits of projects and of users in them."),
    ("os-rescue", "Rescue", "Servers booted from a rescue image."),
    (
        "os-security-group-default-rules",
        "SecurityGroupDefaultRules",
        "Rules of new security groups; removed.",
    ),
    ("os-security-groups", "SecurityGroups", "Security groups of servers."),
    ("os-server-diagnostics", "ServerDiagnostics", "Resource usage of a guest."),
    (
        "os-server-external-events",
        "ServerExternalEvents",
        "Events of servers, sent by other services.",
    ),
    ("os-server-group-quotas", "ServerGroupQuotas", "Limits of server groups."),
    ("os-server-groups", "ServerGroups", "Servers placed together or apart."),
    (
        "os-server-list-multi-status",
        "ServerListMultiStatus",
        "Lists of servers with several statuses.",
    ),
    ("os-server-password", "ServerPassword", "The password that a guest has set."),
    ("os-server-sort-keys", "ServerSortKeys", "Sorted lists of servers."),
    ("os-server-start-stop", "ServerStartStop", "Starting and stopping of servers."),
    ("os-services", "Services", "Services of the controllers and hosts."),
    ("os-shelve", "Shelve", "Shelving of servers."),
    ("os-simple-tenant-usage", "SimpleTenantUsage", "Resource usage of projects."),
    ("os-suspend-server", "SuspendServer", "Suspending of servers to disk."),
    ("os-tenant-networks", "OSTenantNetworks", "Networks of projects."),
    ("os-used-limits", "UsedLimits", "Usage of a project's quotas."),
    (
        "os-used-limits-for-admin",
        "UsedLimitsForAdmin",
        "Usage of other projects' quotas, for administrators.",
    ),
    ("os-user-data", "UserData", "Data that a guest reads at its first boot."),
    ("os-user-quotas", "UserQuotas", "Limits of users."),
    ("os-virtual-interfaces", "VirtualInterfaces", "Interfaces of servers; removed."),
    ("os-volume-attachment-update", "VolumeAttachmentUpdate", "Replacement of a server's volume."),
    ("os-volumes", "Volumes", "Volumes of servers."),
];

pub(super) fn routes() -> Routes<Compute> {
    Routes::new()
        .route("/v2.1/extensions", [get("os_compute_api:extensions", list)])
        .route("/v2.1/extensions/{alias}", [get("os_compute_api:extensions", show)])
}

fn shown((alias, name, description): &(&str, &str, &str)) -> Value {
    json!({
        "alias": alias,
        "name": name,
        "description": description,
        "links": [],
        "namespace": "http://docs.openstack.org/compute/ext/fake_xml",
        "updated": UPDATED,
    })
}

async fn list() -> Json<Value> {
    Json(json!({"extensions": EXTENSIONS.iter().map(shown).collect::<Vec<_>>()}))
}

async fn show(Path(alias): Path<String>) -> Result<Json<Value>, Refusal> {
    let found = EXTENSIONS.iter().find(|(have, ..)| *have == alias);
    let extension = found
        .ok_or_else(|| Refusal::not_found(format!("Extension {alias} could not be found.")))?;
    Ok(Json(json!({"extension": shown(extension)})))
}

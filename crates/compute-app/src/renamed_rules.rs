//! Earlier names of Nova's rules (`DeprecatedRule` in `nova/policies`).

use kilonova_policy::Renamed;

/// Each earlier name with the rules that replaced it or were split off from it. In the latter case the earlier name is
/// still a rule.
pub const RENAMED: &[Renamed] = &[
    (
        "os_compute_api:os-attach-interfaces",
        &[
            "os_compute_api:os-attach-interfaces:list",
            "os_compute_api:os-attach-interfaces:show",
            "os_compute_api:os-attach-interfaces:create",
            "os_compute_api:os-attach-interfaces:delete",
        ],
    ),
    (
        "os_compute_api:os-baremetal-nodes",
        &["os_compute_api:os-baremetal-nodes:list", "os_compute_api:os-baremetal-nodes:show"],
    ),
    (
        "os_compute_api:os-deferred-delete",
        &["os_compute_api:os-deferred-delete:restore", "os_compute_api:os-deferred-delete:force"],
    ),
    (
        "os_compute_api:os-floating-ips",
        &[
            "os_compute_api:os-floating-ips:add",
            "os_compute_api:os-floating-ips:remove",
            "os_compute_api:os-floating-ips:list",
            "os_compute_api:os-floating-ips:create",
            "os_compute_api:os-floating-ips:show",
            "os_compute_api:os-floating-ips:delete",
        ],
    ),
    (
        "os_compute_api:os-hosts",
        &[
            "os_compute_api:os-hosts:list",
            "os_compute_api:os-hosts:show",
            "os_compute_api:os-hosts:update",
            "os_compute_api:os-hosts:reboot",
            "os_compute_api:os-hosts:shutdown",
            "os_compute_api:os-hosts:start",
        ],
    ),
    (
        "os_compute_api:os-hypervisors",
        &[
            "os_compute_api:os-hypervisors:list",
            "os_compute_api:os-hypervisors:list-detail",
            "os_compute_api:os-hypervisors:statistics",
            "os_compute_api:os-hypervisors:show",
            "os_compute_api:os-hypervisors:uptime",
            "os_compute_api:os-hypervisors:search",
            "os_compute_api:os-hypervisors:servers",
        ],
    ),
    (
        "os_compute_api:os-instance-actions",
        &["os_compute_api:os-instance-actions:list", "os_compute_api:os-instance-actions:show"],
    ),
    (
        "os_compute_api:os-instance-usage-audit-log",
        &[
            "os_compute_api:os-instance-usage-audit-log:list",
            "os_compute_api:os-instance-usage-audit-log:show",
        ],
    ),
    ("os_compute_api:os-used-limits", &["os_compute_api:limits:other_project"]),
    (
        "os_compute_api:os-migrate-server:migrate_live",
        &["os_compute_api:os-migrate-server:migrate_live:host"],
    ),
    (
        "os_compute_api:os-migrations:index",
        &[
            "os_compute_api:os-migrations:index:all_projects",
            "os_compute_api:os-migrations:index:host",
        ],
    ),
    (
        "os_compute_api:os-multinic",
        &["os_compute_api:os-multinic:add", "os_compute_api:os-multinic:remove"],
    ),
    (
        "os_compute_api:os-networks:view",
        &["os_compute_api:os-networks:list", "os_compute_api:os-networks:show"],
    ),
    ("os_compute_api:os-rescue", &["os_compute_api:os-unrescue"]),
    (
        "os_compute_api:os-security-groups",
        &[
            "os_compute_api:os-security-groups:get",
            "os_compute_api:os-security-groups:show",
            "os_compute_api:os-security-groups:create",
            "os_compute_api:os-security-groups:update",
            "os_compute_api:os-security-groups:delete",
            "os_compute_api:os-security-groups:rule:create",
            "os_compute_api:os-security-groups:rule:delete",
            "os_compute_api:os-security-groups:list",
            "os_compute_api:os-security-groups:add",
            "os_compute_api:os-security-groups:remove",
        ],
    ),
    (
        "os_compute_api:os-server-password",
        &["os_compute_api:os-server-password:show", "os_compute_api:os-server-password:clear"],
    ),
    (
        "os_compute_api:os-flavor-extra-specs:index",
        &["os_compute_api:servers:show:flavor-extra-specs"],
    ),
    ("os_compute_api:servers:migrations:index", &["os_compute_api:servers:migrations:index:host"]),
    (
        "os_compute_api:os-services",
        &[
            "os_compute_api:os-services:list",
            "os_compute_api:os-services:update",
            "os_compute_api:os-services:delete",
        ],
    ),
    (
        "os_compute_api:os-tenant-networks",
        &["os_compute_api:os-tenant-networks:list", "os_compute_api:os-tenant-networks:show"],
    ),
    (
        "os_compute_api:os-volumes",
        &[
            "os_compute_api:os-volumes:list",
            "os_compute_api:os-volumes:create",
            "os_compute_api:os-volumes:detail",
            "os_compute_api:os-volumes:show",
            "os_compute_api:os-volumes:delete",
            "os_compute_api:os-volumes:snapshots:list",
            "os_compute_api:os-volumes:snapshots:create",
            "os_compute_api:os-volumes:snapshots:detail",
            "os_compute_api:os-volumes:snapshots:show",
            "os_compute_api:os-volumes:snapshots:delete",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RULES;

    #[test]
    fn every_successor_is_a_rule() {
        for name in RENAMED.iter().flat_map(|(_, new)| *new) {
            assert!(RULES.iter().any(|rule| rule.name == *name), "{name}");
        }
    }
}

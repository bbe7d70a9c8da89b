//! Nova's policy rules, with the defaults of Nova 34: an operator's `policy.yaml` may override them. Rules for
//! operations that Kilonova does not offer are kept, so that such a file stays valid without changes. The rules of
//! server actions are in the table of actions; the last rules in this file are those of Kilonova's extensions.

use kilonova_access::{changed, rule};
use kilonova_policy::{Rule, Scope};

use super::actions::ServerAction;

pub(super) const ADMIN: &str = "rule:context_is_admin";
pub(super) const MANAGER: &str = "rule:project_manager_or_admin";
pub(super) const MEMBER: &str = "rule:project_member_or_admin";
const READER: &str = "rule:project_reader_or_admin";
const SERVICE: &str = "rule:service_or_admin";
/// An earlier default of upstream: administrators and the owner.
pub(super) const OWNER: &str = "rule:admin_or_owner";
const ANYONE: &str = "@";

pub(super) const PROJECT: &[Scope] = &[Scope::Project];

/// All rules.
pub const RULES: &[Rule] = &{
    let mut all = [OTHERS[0]; OTHERS.len() + OF_ACTIONS.1];
    let mut at = 0;
    while at < all.len() {
        all[at] = match at < OTHERS.len() {
            true => OTHERS[at],
            false => OF_ACTIONS.0[at - OTHERS.len()],
        };
        at += 1;
    }
    all
};

/// An upper bound on the number of rules in the table of actions.
const MOST: usize = 128;

/// The distinct rules of the table of actions, and their number.
const OF_ACTIONS: ([Rule; MOST], usize) = {
    let (mut rules, mut count) = ([OTHERS[0]; MOST], 0);
    let mut action = 0;
    while action < ServerAction::ALL.len() {
        let named = ServerAction::ALL[action].row().rules;
        let mut at = 0;
        while at < named.len() {
            if !has(&rules, count, named[at].name) {
                rules[count] = named[at];
                count += 1;
            }
            at += 1;
        }
        action += 1;
    }
    (rules, count)
};

/// True if one of the first `count` rules has this name.
const fn has(rules: &[Rule], count: usize, name: &str) -> bool {
    let mut at = 0;
    while at < count {
        if same(rules[at].name.as_bytes(), name.as_bytes()) {
            return true;
        }
        at += 1;
    }
    false
}

const fn same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// The rules of all operations except server actions.
const OTHERS: &[Rule] = &[
    changed("context_is_admin", "role:admin", "is_admin:True", &[]),
    rule("admin_or_owner", "is_admin:True or project_id:%(project_id)s", &[]),
    rule("admin_api", "is_admin:True", &[]),
    changed(
        "project_manager_api",
        "role:manager and project_id:%(project_id)s",
        "is_admin:True",
        &[],
    ),
    changed(
        "project_member_api",
        "role:member and project_id:%(project_id)s",
        "is_admin:True or project_id:%(project_id)s",
        &[],
    ),
    changed(
        "project_reader_api",
        "role:reader and project_id:%(project_id)s",
        "is_admin:True or project_id:%(project_id)s",
        &[],
    ),
    changed("service_api", "role:service", "is_admin:True", &[]),
    changed(
        "project_manager_or_admin",
        "rule:project_manager_api or rule:context_is_admin",
        "is_admin:True",
        &[],
    ),
    changed(
        "project_member_or_admin",
        "rule:project_member_api or rule:context_is_admin",
        "is_admin:True or project_id:%(project_id)s",
        &[],
    ),
    changed(
        "project_reader_or_admin",
        "rule:project_reader_api or rule:context_is_admin",
        "is_admin:True or project_id:%(project_id)s",
        &[],
    ),
    changed("service_or_admin", "rule:service_api or rule:context_is_admin", "is_admin:True", &[]),
    rule("os_compute_api:os-aggregates:set_metadata", ADMIN, PROJECT),
    rule("os_compute_api:os-aggregates:add_host", ADMIN, PROJECT),
    rule("os_compute_api:os-aggregates:create", ADMIN, PROJECT),
    rule("os_compute_api:os-aggregates:remove_host", ADMIN, PROJECT),
    rule("os_compute_api:os-aggregates:update", ADMIN, PROJECT),
    rule("os_compute_api:os-aggregates:index", ADMIN, PROJECT),
    rule("os_compute_api:os-aggregates:delete", ADMIN, PROJECT),
    rule("os_compute_api:os-aggregates:show", ADMIN, PROJECT),
    rule("compute:aggregates:images", ADMIN, PROJECT),
    rule("os_compute_api:os-assisted-volume-snapshots:create", SERVICE, PROJECT),
    rule("os_compute_api:os-assisted-volume-snapshots:delete", SERVICE, PROJECT),
    changed("os_compute_api:os-attach-interfaces:list", READER, "rule:admin_or_owner", PROJECT),
    changed("os_compute_api:os-attach-interfaces:show", READER, "rule:admin_or_owner", PROJECT),
    rule("os_compute_api:os-availability-zone:list", ANYONE, PROJECT),
    rule("os_compute_api:os-availability-zone:detail", ADMIN, PROJECT),
    changed("os_compute_api:os-baremetal-nodes:list", ADMIN, "rule:admin_api", PROJECT),
    changed("os_compute_api:os-baremetal-nodes:show", ADMIN, "rule:admin_api", PROJECT),
    rule("os_compute_api:os-console-auth-tokens", ADMIN, PROJECT),
    rule("os_compute_api:os-extended-server-attributes", ADMIN, PROJECT),
    rule("os_compute_api:extensions", ANYONE, PROJECT),
    rule("os_compute_api:os-flavor-access:add_tenant_access", ADMIN, PROJECT),
    rule("os_compute_api:os-flavor-access:remove_tenant_access", ADMIN, PROJECT),
    changed("os_compute_api:os-flavor-access", ADMIN, "rule:admin_or_owner", PROJECT),
    rule("os_compute_api:os-flavor-extra-specs:show", READER, PROJECT),
    rule("os_compute_api:os-flavor-extra-specs:create", ADMIN, PROJECT),
    rule("os_compute_api:os-flavor-extra-specs:update", ADMIN, PROJECT),
    rule("os_compute_api:os-flavor-extra-specs:delete", ADMIN, PROJECT),
    rule("os_compute_api:os-flavor-extra-specs:index", READER, PROJECT),
    rule("os_compute_api:os-flavor-manage:create", ADMIN, PROJECT),
    rule("os_compute_api:os-flavor-manage:update", ADMIN, PROJECT),
    rule("os_compute_api:os-flavor-manage:delete", ADMIN, PROJECT),
    rule("os_compute_api:os-floating-ip-pools", ANYONE, PROJECT),
    changed("os_compute_api:os-floating-ips:list", READER, "rule:admin_or_owner", PROJECT),
    changed("os_compute_api:os-floating-ips:create", MEMBER, "rule:admin_or_owner", PROJECT),
    changed("os_compute_api:os-floating-ips:show", READER, "rule:admin_or_owner", PROJECT),
    changed("os_compute_api:os-floating-ips:delete", MEMBER, "rule:admin_or_owner", PROJECT),
    changed("os_compute_api:os-hosts:list", ADMIN, "rule:admin_api", PROJECT),
    changed("os_compute_api:os-hosts:show", ADMIN, "rule:admin_api", PROJECT),
    changed("os_compute_api:os-hosts:update", ADMIN, "rule:admin_api", PROJECT),
    changed("os_compute_api:os-hosts:reboot", ADMIN, "rule:admin_api", PROJECT),
    changed("os_compute_api:os-hosts:shutdown", ADMIN, "rule:admin_api", PROJECT),
    changed("os_compute_api:os-hosts:start", ADMIN, "rule:admin_api", PROJECT),
    changed("os_compute_api:os-hypervisors:list", ADMIN, "rule:admin_api", PROJECT),
    changed("os_compute_api:os-hypervisors:list-detail", ADMIN, "rule:admin_api", PROJECT),
    changed("os_compute_api:os-hypervisors:statistics", ADMIN, "rule:admin_api", PROJECT),
    changed("os_compute_api:os-hypervisors:show", ADMIN, "rule:admin_api", PROJECT),
    changed("os_compute_api:os-hypervisors:uptime", ADMIN, "rule:admin_api", PROJECT),
    changed("os_compute_api:os-hypervisors:search", ADMIN, "rule:admin_api", PROJECT),
    changed("os_compute_api:os-hypervisors:servers", ADMIN, "rule:admin_api", PROJECT),
    rule("os_compute_api:os-instance-actions:events:details", ADMIN, PROJECT),
    rule("os_compute_api:os-instance-actions:events", ADMIN, PROJECT),
    changed("os_compute_api:os-instance-actions:list", READER, "rule:admin_or_owner", PROJECT),
    changed("os_compute_api:os-instance-actions:show", READER, "rule:admin_or_owner", PROJECT),
    changed("os_compute_api:os-instance-usage-audit-log:list", ADMIN, "rule:admin_api", PROJECT),
    changed("os_compute_api:os-instance-usage-audit-log:show", ADMIN, "rule:admin_api", PROJECT),
    rule("os_compute_api:ips:show", READER, PROJECT),
    rule("os_compute_api:ips:index", READER, PROJECT),
    rule(
        "os_compute_api:os-keypairs:index",
        "(rule:context_is_admin) or user_id:%(user_id)s",
        PROJECT,
    ),
    rule(
        "os_compute_api:os-keypairs:create",
        "(rule:context_is_admin) or user_id:%(user_id)s",
        PROJECT,
    ),
    rule(
        "os_compute_api:os-keypairs:delete",
        "(rule:context_is_admin) or user_id:%(user_id)s",
        PROJECT,
    ),
    rule(
        "os_compute_api:os-keypairs:show",
        "(rule:context_is_admin) or user_id:%(user_id)s",
        PROJECT,
    ),
    rule("os_compute_api:limits", ANYONE, PROJECT),
    changed("os_compute_api:limits:other_project", ADMIN, "rule:admin_api", PROJECT),
    rule("os_compute_api:os-migrations:index", MANAGER, PROJECT),
    changed("os_compute_api:os-migrations:index:all_projects", ADMIN, ADMIN, PROJECT),
    changed("os_compute_api:os-migrations:index:host", ADMIN, ADMIN, PROJECT),
    changed("os_compute_api:os-networks:list", READER, "rule:admin_or_owner", PROJECT),
    changed("os_compute_api:os-networks:show", READER, "rule:admin_or_owner", PROJECT),
    rule("os_compute_api:os-quota-class-sets:show", ADMIN, PROJECT),
    rule("os_compute_api:os-quota-class-sets:update", ADMIN, PROJECT),
    rule("os_compute_api:os-quota-sets:update", ADMIN, PROJECT),
    rule("os_compute_api:os-quota-sets:defaults", ANYONE, PROJECT),
    rule("os_compute_api:os-quota-sets:show", READER, PROJECT),
    rule("os_compute_api:os-quota-sets:delete", ADMIN, PROJECT),
    rule("os_compute_api:os-quota-sets:detail", READER, PROJECT),
    changed("os_compute_api:os-security-groups:get", READER, "rule:admin_or_owner", PROJECT),
    changed("os_compute_api:os-security-groups:show", READER, "rule:admin_or_owner", PROJECT),
    changed("os_compute_api:os-security-groups:create", MEMBER, "rule:admin_or_owner", PROJECT),
    changed("os_compute_api:os-security-groups:update", MEMBER, "rule:admin_or_owner", PROJECT),
    changed("os_compute_api:os-security-groups:delete", MEMBER, "rule:admin_or_owner", PROJECT),
    changed(
        "os_compute_api:os-security-groups:rule:create",
        MEMBER,
        "rule:admin_or_owner",
        PROJECT,
    ),
    changed(
        "os_compute_api:os-security-groups:rule:delete",
        MEMBER,
        "rule:admin_or_owner",
        PROJECT,
    ),
    changed("os_compute_api:os-security-groups:list", READER, "rule:admin_or_owner", PROJECT),
    rule("os_compute_api:os-server-diagnostics", ADMIN, PROJECT),
    rule("os_compute_api:os-server-external-events:create", SERVICE, PROJECT),
    rule("os_compute_api:os-server-groups:create", MEMBER, PROJECT),
    rule("os_compute_api:os-server-groups:delete", MEMBER, PROJECT),
    rule("os_compute_api:os-server-groups:index", READER, PROJECT),
    rule("os_compute_api:os-server-groups:index:all_projects", ADMIN, PROJECT),
    rule("os_compute_api:os-server-groups:show", READER, PROJECT),
    rule("os_compute_api:server-metadata:index", READER, PROJECT),
    rule("os_compute_api:server-metadata:show", READER, PROJECT),
    changed("os_compute_api:os-server-password:show", READER, "rule:admin_or_owner", PROJECT),
    changed("os_compute_api:os-server-password:clear", MEMBER, "rule:admin_or_owner", PROJECT),
    rule("os_compute_api:os-server-shares:index", READER, PROJECT),
    rule("os_compute_api:os-server-shares:create", MEMBER, PROJECT),
    rule("os_compute_api:os-server-shares:show", READER, PROJECT),
    rule("os_compute_api:os-server-shares:delete", MEMBER, PROJECT),
    rule("os_compute_api:os-server-tags:index", READER, PROJECT),
    rule("os_compute_api:os-server-tags:show", READER, PROJECT),
    rule("compute:server:topology:index", READER, PROJECT),
    rule("compute:server:topology:host:index", ADMIN, PROJECT),
    rule("os_compute_api:servers:index", READER, PROJECT),
    rule("os_compute_api:servers:detail", READER, PROJECT),
    rule("os_compute_api:servers:index:get_all_tenants", ADMIN, PROJECT),
    rule("os_compute_api:servers:detail:get_all_tenants", ADMIN, PROJECT),
    rule("os_compute_api:servers:allow_all_filters", ADMIN, PROJECT),
    rule("os_compute_api:servers:show", READER, PROJECT),
    changed(
        "os_compute_api:servers:show:flavor-extra-specs",
        READER,
        "rule:admin_or_owner",
        PROJECT,
    ),
    rule("os_compute_api:servers:show:host_status", ADMIN, PROJECT),
    rule("os_compute_api:servers:show:host_status:unknown-only", ADMIN, PROJECT),
    rule("os_compute_api:servers:create", MEMBER, PROJECT),
    rule("os_compute_api:servers:create:forced_host", ADMIN, PROJECT),
    rule("compute:servers:create:requested_destination", ADMIN, PROJECT),
    rule("os_compute_api:servers:create:attach_volume", MEMBER, PROJECT),
    rule("os_compute_api:servers:create:attach_network", MEMBER, PROJECT),
    rule("os_compute_api:servers:create:trusted_certs", MEMBER, PROJECT),
    rule("os_compute_api:servers:create:zero_disk_flavor", ADMIN, PROJECT),
    rule("network:attach_external_network", ADMIN, PROJECT),
    rule("os_compute_api:servers:migrations:show", ADMIN, PROJECT),
    rule("os_compute_api:servers:migrations:index", MANAGER, PROJECT),
    changed("os_compute_api:servers:migrations:index:host", ADMIN, ADMIN, PROJECT),
    changed("os_compute_api:os-services:list", ADMIN, "rule:admin_api", PROJECT),
    changed("os_compute_api:os-services:update", ADMIN, "rule:admin_api", PROJECT),
    changed("os_compute_api:os-services:delete", ADMIN, "rule:admin_api", PROJECT),
    rule("os_compute_api:os-simple-tenant-usage:show", READER, PROJECT),
    rule("os_compute_api:os-simple-tenant-usage:list", ADMIN, PROJECT),
    changed("os_compute_api:os-tenant-networks:list", READER, "rule:admin_or_owner", PROJECT),
    changed("os_compute_api:os-tenant-networks:show", READER, "rule:admin_or_owner", PROJECT),
    changed("os_compute_api:os-volumes:list", READER, "rule:admin_or_owner", PROJECT),
    changed("os_compute_api:os-volumes:create", MEMBER, "rule:admin_or_owner", PROJECT),
    changed("os_compute_api:os-volumes:detail", READER, "rule:admin_or_owner", PROJECT),
    changed("os_compute_api:os-volumes:show", READER, "rule:admin_or_owner", PROJECT),
    changed("os_compute_api:os-volumes:delete", MEMBER, "rule:admin_or_owner", PROJECT),
    changed("os_compute_api:os-volumes:snapshots:list", READER, "rule:admin_or_owner", PROJECT),
    changed("os_compute_api:os-volumes:snapshots:create", MEMBER, "rule:admin_or_owner", PROJECT),
    changed("os_compute_api:os-volumes:snapshots:detail", READER, "rule:admin_or_owner", PROJECT),
    changed("os_compute_api:os-volumes:snapshots:show", READER, "rule:admin_or_owner", PROJECT),
    changed("os_compute_api:os-volumes:snapshots:delete", MEMBER, "rule:admin_or_owner", PROJECT),
    rule("os_compute_api:os-volumes-attachments:index", READER, PROJECT),
    rule("os_compute_api:os-volumes-attachments:show", READER, PROJECT),
    rule("os_compute_api:os-volumes-attachments:update", MEMBER, PROJECT),
    rule("os_compute_api:os-volumes-attachments:swap", SERVICE, PROJECT),
    // Kilonova's own rules.
    rule("kilonova:servers:show", READER, PROJECT),
    rule("kilonova:hosts:show", ADMIN, PROJECT),
    rule("kilonova:hosts:drain", ADMIN, PROJECT),
    rule("kilonova:floor:show", ADMIN, PROJECT),
    rule("kilonova:capacity:show", ADMIN, PROJECT),
    rule("kilonova:doctor:show", ADMIN, PROJECT),
    rule("kilonova:room:show", MEMBER, PROJECT),
    rule("kilonova:rebalance:show", ADMIN, PROJECT),
    rule("kilonova:rebalance:move", ADMIN, PROJECT),
    rule("kilonova:enrollments:create", ADMIN, PROJECT),
    rule("kilonova:enrollments:index", ADMIN, PROJECT),
    rule("kilonova:enrollments:delete", ADMIN, PROJECT),
];

#[cfg(test)]
mod tests {
    use kilonova_policy::{Defaults, Policy};

    use super::RULES;

    #[test]
    fn every_rule_is_there_once() {
        let names: std::collections::BTreeSet<&str> = RULES.iter().map(|rule| rule.name).collect();
        assert_eq!(names.len(), RULES.len());
    }

    #[test]
    fn the_table_is_valid_with_either_set_of_defaults() {
        for new_only in [false, true] {
            Policy::build(RULES, &[], Defaults { new_only, scope: true })
                .expect("the table is valid");
        }
    }
}

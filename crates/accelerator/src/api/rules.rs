//! Cyborg's policy rules with the defaults of Cyborg 17, which an operator's `policy.yaml` may
//! override, followed by the rules of Kilonova's extensions.

use kilonova_access::{changed, rule};
use kilonova_policy::{Rule, Scope};

const ADMIN: &str = "rule:admin_api";
const MANAGER: &str = "rule:project_manager_or_admin";
const READER: &str = "rule:project_reader_or_admin";
const MEMBER_OR_SERVICE: &str = "rule:project_member_or_service";

const PROJECT: &[Scope] = &[Scope::Project];

/// All rules.
pub const RULES: &[Rule] = &[
    rule("admin_api", "role:admin", &[]),
    rule("project_admin_api", "role:admin and project_id:%(project_id)s", &[]),
    rule("project_member_api", "role:member and project_id:%(project_id)s", &[]),
    rule("project_reader_api", "role:reader and project_id:%(project_id)s", &[]),
    changed(
        "project_member_or_admin",
        "rule:project_member_api or rule:admin_api",
        "is_admin:True or project_id:%(project_id)s",
        &[],
    ),
    changed(
        "project_reader_or_admin",
        "rule:project_reader_api or rule:admin_api",
        "is_admin:True or project_id:%(project_id)s",
        &[],
    ),
    rule("service_api", "role:service", &[]),
    rule("project_manager_api", "role:manager and project_id:%(project_id)s", &[]),
    changed(
        "project_manager_or_admin",
        "rule:project_manager_api or rule:admin_api",
        "is_admin:True or project_id:%(project_id)s",
        &[],
    ),
    changed(
        "project_member_or_service",
        "rule:project_member_api or rule:service_api",
        "is_admin:True or project_id:%(project_id)s",
        &[],
    ),
    rule("public_api", "is_public_api:True", &[]),
    rule("allow", "@", &[]),
    rule("deny", "!", &[]),
    rule("default", "rule:admin_or_owner", &[]),
    rule("is_admin", ADMIN, &[]),
    rule("admin_or_owner", "is_admin:True or project_id:%(project_id)s", &[]),
    rule("admin_or_user", "is_admin:True or user_id:%(user_id)s", &[]),
    changed("cyborg:device_profile:get_all", READER, "rule:admin_or_owner", PROJECT),
    changed("cyborg:device_profile:get_one", READER, "rule:admin_or_owner", PROJECT),
    changed("cyborg:device_profile:create", ADMIN, "rule:is_admin", PROJECT),
    changed("cyborg:device_profile:delete", ADMIN, "rule:is_admin", PROJECT),
    changed("cyborg:arq:get_all", READER, "rule:admin_or_owner", PROJECT),
    changed("cyborg:arq:get_one", READER, "rule:admin_or_owner", PROJECT),
    changed("cyborg:arq:create", MEMBER_OR_SERVICE, "rule:project_member_or_admin", PROJECT),
    changed("cyborg:arq:delete", MEMBER_OR_SERVICE, "rule:admin_or_owner", PROJECT),
    changed("cyborg:arq:update", MEMBER_OR_SERVICE, "rule:admin_or_owner", PROJECT),
    changed("cyborg:deployable:get_all", MANAGER, ADMIN, PROJECT),
    changed("cyborg:deployable:get_one", MANAGER, ADMIN, PROJECT),
    rule("cyborg:deployable:program", ADMIN, PROJECT),
    changed("cyborg:device:get_all", MANAGER, ADMIN, PROJECT),
    changed("cyborg:device:get_one", MANAGER, ADMIN, PROJECT),
    rule("cyborg:device:disable", ADMIN, PROJECT),
    rule("cyborg:device:enable", ADMIN, PROJECT),
    changed("cyborg:attribute:get_all", MANAGER, ADMIN, PROJECT),
    changed("cyborg:attribute:get_one", MANAGER, ADMIN, PROJECT),
    rule("cyborg:attribute:create", ADMIN, PROJECT),
    rule("cyborg:attribute:delete", ADMIN, PROJECT),
    // Extensions.
    rule("kilonova:device_health:get_all", ADMIN, PROJECT),
    rule("kilonova:device_health:get_one", ADMIN, PROJECT),
    rule("kilonova:device_orders:get_all", ADMIN, PROJECT),
    rule("kilonova:handle_changes:get_all", ADMIN, PROJECT),
];

#[cfg(test)]
mod tests {
    use kilonova_policy::{Defaults, Policy};

    use super::RULES;
    use crate::operations;

    #[test]
    fn every_operation_has_a_rule_of_the_table() {
        assert_eq!(kilonova_access::undefined(&operations(), RULES), [""; 0]);
    }

    #[test]
    fn the_table_is_valid_with_either_set_of_defaults() {
        for new_only in [false, true] {
            Policy::build(RULES, &[], Defaults { new_only, scope: true })
                .expect("the rules form a valid policy");
        }
    }
}

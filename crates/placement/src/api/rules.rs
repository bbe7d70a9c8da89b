//! Upstream's policy rules for the Placement API, which an operator's `policy.yaml` may override.
//!
//! Administrators and services may do everything, except that only services may reshape and only
//! administrators may request explanations. Readers of a project may see its usages. Every
//! operation requires a project-scoped token.

use kilonova_policy::{Defaults, Error, Override, Policy, Rule, Scope};

const ADMIN_OR_SERVICE: &str = "rule:admin_or_service_api";
/// The deprecated check, which permitted everything before upstream changed the defaults.
const BEFORE: Option<&str> = Some("role:admin");

const fn operation(name: &'static str, check: &'static str) -> Rule {
    Rule { name, check, deprecated: None, scopes: &[Scope::Project] }
}

const fn common(name: &'static str) -> Rule {
    operation(name, ADMIN_OR_SERVICE)
}

const fn helper(name: &'static str, check: &'static str, deprecated: Option<&'static str>) -> Rule {
    Rule { name, check, deprecated, scopes: &[] }
}

/// All rules.
pub const RULES: &[Rule] = &[
    helper("admin_api", "role:admin", None),
    helper("service_api", "role:service", BEFORE),
    helper("admin_or_service_api", "role:admin or role:service", BEFORE),
    helper("project_reader_api", "role:reader and project_id:%(project_id)s", BEFORE),
    helper(
        "admin_or_project_reader_or_service_api",
        "role:admin or rule:project_reader_api or role:service",
        BEFORE,
    ),
    common("placement:resource_providers:list"),
    common("placement:resource_providers:create"),
    common("placement:resource_providers:show"),
    common("placement:resource_providers:update"),
    common("placement:resource_providers:delete"),
    common("placement:resource_providers:inventories:list"),
    common("placement:resource_providers:inventories:create"),
    common("placement:resource_providers:inventories:show"),
    common("placement:resource_providers:inventories:update"),
    common("placement:resource_providers:inventories:delete"),
    common("placement:resource_providers:aggregates:list"),
    common("placement:resource_providers:aggregates:update"),
    common("placement:resource_providers:usages"),
    common("placement:resource_providers:allocations:list"),
    common("placement:resource_providers:traits:list"),
    common("placement:resource_providers:traits:update"),
    common("placement:resource_providers:traits:delete"),
    common("placement:traits:list"),
    common("placement:traits:show"),
    common("placement:traits:update"),
    common("placement:traits:delete"),
    common("placement:resource_classes:list"),
    common("placement:resource_classes:create"),
    common("placement:resource_classes:show"),
    common("placement:resource_classes:update"),
    common("placement:resource_classes:delete"),
    common("placement:allocations:manage"),
    common("placement:allocations:list"),
    common("placement:allocations:update"),
    common("placement:allocations:delete"),
    operation("placement:usages", "rule:admin_or_project_reader_or_service_api"),
    common("placement:allocation_candidates:list"),
    // Not in upstream: explains why there are no candidates.
    operation("placement:allocation_candidates:explain", "rule:admin_api"),
    operation("placement:reshaper:reshape", "rule:service_api"),
];

/// The policy: the rules above, with the operator's overrides.
///
/// # Errors
/// Returns an error if the operator's rules are invalid.
pub fn policy(own: &[Override], defaults: Defaults) -> Result<Policy, Error> {
    Policy::build(RULES, own, defaults)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilonova_policy::Credentials;

    fn may(new_only: bool, role: &str, rule: &str, project: &str) -> bool {
        let policy =
            policy(&[], Defaults { new_only, scope: true }).expect("the default rules are valid");
        let roles = [role.to_owned()];
        let who = Credentials {
            user_id: "u",
            project_id: "own",
            domain_id: "",
            roles: &roles,
            service_roles: &[],
            scope: Scope::Project,
            ..Credentials::default()
        };
        policy.allows(rule, &who, &[("project_id", project), ("user_id", "u")])
    }

    #[test]
    fn the_two_sets_of_defaults_differ_in_who_may_reshape() {
        let reshape = "placement:reshaper:reshape";
        assert!(may(false, "admin", reshape, "own") && !may(true, "admin", reshape, "own"));
        assert!(may(false, "service", reshape, "own") && may(true, "service", reshape, "own"));
        let explain = "placement:allocation_candidates:explain";
        assert!(may(true, "admin", explain, "own") && !may(true, "service", explain, "own"));
        let operations = RULES.iter().filter(|rule| rule.name.starts_with("placement:"));
        for rule in operations.filter(|rule| rule.name != explain) {
            for new_only in [false, true] {
                assert!(may(new_only, "service", rule.name, "other"), "{}", rule.name);
                assert!(!may(new_only, "member", rule.name, "own"), "{}", rule.name);
            }
        }
    }

    #[test]
    fn readers_see_the_usages_of_their_own_project() {
        for new_only in [false, true] {
            assert!(may(new_only, "reader", "placement:usages", "own"));
            assert!(!may(new_only, "reader", "placement:usages", "other"));
            assert!(!may(new_only, "reader", "placement:traits:list", "own"));
        }
    }
}

//! `[oslo_policy]`: upstream's defaults to apply, and the operator's rules that override them.
//!
//! Upstream has one file per service. Here `policy_file` serves all services: each of its rules applies
//! to the services that define it. `SERVICE_policy_file` applies to one service and overrides it, for
//! rules that several services define and that must differ.

use std::path::PathBuf;
use std::sync::Arc;

use kilonova_access::Enforcer;
use kilonova_policy::{
    Defaults, Error, Lack, Override, Policy, Renamed, Rule, read_from, renamed, share,
};
use kilonova_wire::Dialect;

use super::{File, ServiceName};
use crate::failure::Failure;

const GROUP: &str = "oslo_policy";
/// The default file, read only if it exists.
const USUAL: &str = "policy.yaml";

/// Each service, its rules, the option for its own file, and its dialect.
const SERVICES: [(ServiceName, &[Rule], &str, Dialect); 6] = [
    (
        ServiceName::Placement,
        kilonova_placement::RULES,
        "placement_policy_file",
        Dialect::Placement,
    ),
    (ServiceName::Compute, kilonova_compute_app::RULES, "compute_policy_file", Dialect::Compute),
    (
        ServiceName::Accelerator,
        kilonova_accelerator::RULES,
        "accelerator_policy_file",
        Dialect::Accelerator,
    ),
    (ServiceName::Identity, kilonova_identity::RULES, "identity_policy_file", Dialect::Identity),
    (ServiceName::Image, kilonova_image::RULES, "image_policy_file", Dialect::Image),
    (ServiceName::Network, kilonova_network::RULES, "network_policy_file", Dialect::Network),
];

/// Earlier names of rules. The other services have renamed none that upstream still honours.
const RENAMED: [&[Renamed]; 2] = [kilonova_compute_app::RENAMED, kilonova_network::RENAMED];

/// The policy of every service.
#[derive(Debug, Clone)]
pub struct Policies(Vec<(ServiceName, Dialect, Arc<Policy>)>);

impl Policies {
    /// One service's policy; refuses everything if the service is unknown.
    pub fn of(&self, service: ServiceName) -> Arc<Policy> {
        let found = self.0.iter().find(|(name, ..)| *name == service);
        found.map_or_else(|| Arc::new(Policy::none()), |(.., policy)| Arc::clone(policy))
    }

    /// One service's policy and dialect.
    pub fn enforcer(&self, service: ServiceName) -> Enforcer {
        let dialect = SERVICES.iter().find(|(name, ..)| *name == service);
        let dialect = dialect.map_or(Dialect::Compute, |(.., dialect)| *dialect);
        Enforcer::new(self.of(service), dialect)
    }
}

/// The policies of all services, running or not.
///
/// # Errors
/// An unreadable or invalid file, with its name and line.
pub(super) fn read(file: &File) -> Result<Policies, Failure> {
    let flag = |option: &str, default: bool| -> Result<bool, Failure> {
        Ok(file.parse(GROUP, option, "true or false")?.unwrap_or(default))
    };
    let usual = Defaults::default();
    let defaults = Defaults {
        new_only: flag("enforce_new_defaults", usual.new_only)?,
        scope: flag("enforce_scope", usual.scope)?,
    };
    let refused = |error: Error| Failure::Refused(error.to_string());
    let tables = SERVICES.map(|(_, rules, ..)| rules);
    let shared = rules(file, "policy_file", Some(USUAL))?;
    let shares = share(&shared, &tables).map_err(refused)?;
    let mut policies = Vec::new();
    for ((service, table, option, dialect), mut own) in SERVICES.into_iter().zip(shares) {
        let alone = rules(file, option, None)?;
        let mut alone = share(&alone, &[table]).map_err(refused)?.concat();
        own.retain(|rule| alone.iter().all(|over| over.name != rule.name));
        own.append(&mut alone);
        let policy = Policy::build(table, &own, defaults).map_err(refused)?;
        check_values(service, &policy, &own)?;
        policies.push((service, dialect, Arc::new(policy)));
    }
    Ok(Policies(policies))
}

/// The values of each target of the services whose targets have only owners, as the targets of `nova/policy.py`: objects
/// have no `tenant_id`. The targets of the other services have the attributes of their objects too.
const OWNERS: [&str; 2] = ["project_id", "user_id"];

/// Warns of an operator's rule that no object can pass, because it needs a value that none has. Refuses one within a
/// `not`, also of a rule that uses it: every object would pass.
fn check_values(service: ServiceName, policy: &Policy, own: &[Override]) -> Result<(), Failure> {
    let only_owners = [ServiceName::Compute, ServiceName::Placement, ServiceName::Accelerator];
    if !only_owners.contains(&service) {
        return Ok(());
    }
    for Lack { rule, name, negated } in policy.lacks(own, &OWNERS) {
        let known = OWNERS.join(", ");
        if negated {
            let error = Error::Value { rule: rule.place(), name: name.to_owned(), known };
            return Err(Failure::Refused(rule.with_file(error).to_string()));
        }
        tracing::warn!(
            file = rule.file,
            rule = rule.place(),
            "no object of this service has %({name})s, so this check always fails; use one of {known}"
        );
    }
    Ok(())
}

/// The rules of the file that an option names, or of the default file if it exists.
fn rules(file: &File, option: &str, usual: Option<&str>) -> Result<Vec<Override>, Failure> {
    let named = file.path(GROUP, option);
    let Some(folder) = file.folder() else { return Ok(Vec::new()) };
    let Some(name) = named.clone().or_else(|| usual.map(PathBuf::from)) else {
        return Ok(Vec::new());
    };
    let path = folder.join(name);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Vec::new());
        }
        Err(error) => {
            let why = format!("cannot read {}: {error}", path.display());
            return Err(file.wrong(GROUP, option, &why));
        }
    };
    let own = read_from(&path.display().to_string(), &text)
        .map_err(|error| Failure::Refused(error.to_string()))?;
    renamed(own, &RENAMED.concat(), &SERVICES.map(|(_, rules, ..)| rules))
        .map_err(|error| Failure::Refused(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a configuration file and the policy files next to it.
    fn read_with(config: &str, beside: &[(&str, &str)]) -> Result<Policies, String> {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        for (name, text) in beside {
            std::fs::write(folder.path().join(name), text).expect("the file is written");
        }
        let path = folder.path().join("kilonova.conf");
        std::fs::write(&path, format!("[oslo_policy]\n{config}\n")).expect("the file is written");
        File::read(&path, crate::config::KNOWN).and_then(|file| read(&file)).map_err(|failure| {
            assert!(matches!(failure, Failure::Refused(_)), "{failure}");
            failure.to_string().replace(&format!("{}/", folder.path().display()), "")
        })
    }

    fn may(policies: &Policies, service: ServiceName, rule: &str, role: &str) -> bool {
        let roles = [role.to_owned()];
        let who = kilonova_policy::Credentials {
            user_id: "u",
            project_id: "p",
            domain_id: "",
            roles: &roles,
            ..Default::default()
        };
        policies.of(service).allows(rule, &who, &[("project_id", "p")])
    }

    fn may_list(policies: &Policies, role: &str) -> bool {
        may(policies, ServiceName::Placement, "placement:resource_providers:list", role)
    }

    #[test]
    fn the_default_file_is_read_if_it_exists() {
        let rules = "placement:resource_providers:list: role:clerk";
        let policy = read_with("", &[("policy.yaml", rules)]).expect("the configuration is valid");
        assert!(may_list(&policy, "clerk") && !may_list(&policy, "admin"));
        let policy = read_with("", &[]).expect("the configuration is valid");
        assert!(may_list(&policy, "admin") && !may_list(&policy, "clerk"));
        let policy = read_with("policy_file = own.yaml", &[("own.yaml", rules)])
            .expect("the configuration is valid");
        assert!(may_list(&policy, "clerk"));
    }

    #[test]
    fn a_services_file_overrides_the_shared_file() {
        let shared = "context_is_admin: role:boss\nget_network: role:clerk\nget_image: rule:mine\n\
                      mine: role:clerk\nos_compute_api:servers:index: rule:mine\n";
        let image = "context_is_admin: role:painter\nget_image: role:painter\n";
        let config = "policy_file = all.yaml\nimage_policy_file = image.yaml";
        let policies = read_with(config, &[("all.yaml", shared), ("image.yaml", image)])
            .expect("the configuration is valid");
        let (compute, network) = (ServiceName::Compute, ServiceName::Network);
        for (service, rule, role) in [
            (compute, "os_compute_api:servers:index", "clerk"),
            (compute, "os_compute_api:os-services:list", "boss"),
            (network, "get_network", "clerk"),
            (network, "create_agent", "boss"),
            (ServiceName::Image, "get_image", "painter"),
            (ServiceName::Image, "context_is_admin", "painter"),
        ] {
            for other in ["clerk", "boss", "painter", "admin", "reader"] {
                let expected = other == role;
                assert_eq!(may(&policies, service, rule, other), expected, "{rule} {other}");
            }
        }
    }

    #[test]
    fn earlier_names_apply_to_their_successors() {
        let text = "os_compute_api:os-services: role:clerk\nupdate_networks_tags: role:clerk\n\
                    os_compute_api:os-services:delete: role:boss\n";
        let policies = read_with("", &[("policy.yaml", text)]).expect("the configuration is valid");
        let (compute, network) = (ServiceName::Compute, ServiceName::Network);
        for (service, rule, role) in [
            (compute, "os_compute_api:os-services:list", "clerk"),
            (compute, "os_compute_api:os-services:update", "clerk"),
            (compute, "os_compute_api:os-services:delete", "boss"),
            (network, "update_network:tags", "clerk"),
        ] {
            for other in ["clerk", "boss", "admin"] {
                assert_eq!(may(&policies, service, rule, other), other == role, "{rule} {other}");
            }
        }
    }

    #[test]
    fn an_earlier_name_may_be_a_helper_of_its_successors() {
        let text = "os_compute_api:os-services: role:clerk\nupdate_networks_tags: role:clerk\n\
                    os_compute_api:os-services:list: rule:os_compute_api:os-services or role:boss\n\
                    update_network:tags: rule:update_networks_tags\n";
        let policies = read_with("", &[("policy.yaml", text)]).expect("the configuration is valid");
        let (compute, network) = (ServiceName::Compute, ServiceName::Network);
        for (service, rule, roles) in [
            (compute, "os_compute_api:os-services:list", &["clerk", "boss"][..]),
            (compute, "os_compute_api:os-services:update", &["clerk"]),
            (network, "update_network:tags", &["clerk"]),
        ] {
            for other in ["clerk", "boss", "admin"] {
                assert_eq!(may(&policies, service, rule, other), roles.contains(&other), "{rule}");
            }
        }
    }

    #[test]
    fn invalid_files_are_refused_with_their_place() {
        let list = "placement:usages: rule:b";
        for (config, rules, why) in [
            ("policy_file = none.yaml", "", "kilonova.conf:2: [oslo_policy] policy_file: cannot"),
            (
                "image_policy_file = x",
                "",
                "kilonova.conf:2: [oslo_policy] image_policy_file: cannot",
            ),
            ("enforce_scope = maybe", "", "kilonova.conf:2: [oslo_policy] enforce_scope: maybe"),
            ("", list, "policy.yaml: line 1: rule placement:usages needs rule:b, which is not"),
            (
                "",
                "placement:usages: rule:b\nb: rule:c\nc: rule:b",
                "policy.yaml: line 2: rule b refers to itself: b -> c -> b",
            ),
            ("", "a: http://there", "policy.yaml: rule a (line 1): http: checks are not supported"),
            ("", "a: [", "policy.yaml: line 2: invalid YAML"),
            (
                "",
                "placement:usage: '@'",
                "policy.yaml: placement:usage (line 1) is neither an operation",
            ),
            (
                "",
                "os_compute_api:x: '@'",
                "policy.yaml: os_compute_api:x (line 1) is neither an operation",
            ),
            ("", "cyborg:arq:x: '@'", "policy.yaml: cyborg:arq:x (line 1) is neither an operation"),
            ("", "identity:x: '@'", "policy.yaml: identity:x (line 1) is neither an operation"),
            (
                "",
                "os_compute_api:servers:index: \"not 'x':%(name)s\"",
                "policy.yaml: rule os_compute_api:servers:index (line 1) needs %(name)s within a `not`",
            ),
            (
                "",
                "os_compute_api:servers:index: not rule:mine\nmine: \"'x':%(name)s\"",
                "policy.yaml: rule mine (line 2) needs %(name)s within a `not`",
            ),
            (
                "",
                "os_compute_api:servers:index: not tenant_id:%(tenant_id)s",
                "policy.yaml: rule os_compute_api:servers:index (line 1) needs %(tenant_id)s within a",
            ),
            ("", "get_imgae: '@'", "policy.yaml: get_imgae (line 1) is not a rule of any service"),
            (
                "network_policy_file = policy.yaml",
                "get_image: '@'",
                "policy.yaml: get_image (line 1) is not a rule of any service",
            ),
        ] {
            let beside: &[(&str, &str)] = &[("policy.yaml", rules)];
            let message = read_with(config, beside).expect_err(why);
            assert!(message.starts_with(why), "{message}");
        }
    }
}

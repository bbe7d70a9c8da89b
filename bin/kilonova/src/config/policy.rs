//! `[oslo_policy]`: which of upstream's defaults count, and the operator's own rules over them.

use std::path::PathBuf;
use std::sync::Arc;

use kilonova_policy::{Defaults, Override, Policy};

use super::File;
use crate::failure::Failure;

const GROUP: &str = "oslo_policy";
/// The file that is read when none is named, if it is there.
const USUAL: &str = "policy.yaml";

/// The policy of the Placement API.
///
/// # Errors
/// A file that cannot be read, or that holds what cannot work, with its name and line.
pub(super) fn read(file: &File) -> Result<Arc<Policy>, Failure> {
    let flag = |option: &str, default: bool| -> Result<bool, Failure> {
        Ok(file.parse(GROUP, option, "true or false")?.unwrap_or(default))
    };
    let usual = Defaults::default();
    let defaults = Defaults {
        new_only: flag("enforce_new_defaults", usual.new_only)?,
        scope: flag("enforce_scope", usual.scope)?,
    };
    let (path, own) = match rules(file)? {
        None => (PathBuf::new(), Vec::new()),
        Some(found) => found,
    };
    let policy = kilonova_placement::policy(&own, defaults)
        .map_err(|error| Failure::Refused(format!("{}: {error}", path.display())))?;
    Ok(Arc::new(policy))
}

/// The rules of the file that is named, or of the usual one if it is there.
fn rules(file: &File) -> Result<Option<(PathBuf, Vec<Override>)>, Failure> {
    let named = file.path(GROUP, "policy_file");
    let Some(folder) = file.folder() else { return Ok(None) };
    let path = folder.join(named.as_deref().unwrap_or(USUAL.as_ref()));
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => {
            let why = format!("cannot read {}: {error}", path.display());
            return Err(file.wrong(GROUP, "policy_file", &why));
        }
    };
    let own = kilonova_policy::read(&text)
        .map_err(|error| Failure::Refused(format!("{}: {error}", path.display())))?;
    Ok(Some((path, own)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A configuration file and the policy files beside it, read.
    fn read_with(config: &str, beside: &[(&str, &str)]) -> Result<Arc<Policy>, String> {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in beside {
            std::fs::write(folder.path().join(name), text).expect("written");
        }
        let path = folder.path().join("kilonova.conf");
        std::fs::write(&path, format!("[oslo_policy]\n{config}\n")).expect("written");
        File::read(&path, crate::config::KNOWN).and_then(|file| read(&file)).map_err(|failure| {
            assert!(matches!(failure, Failure::Refused(_)), "{failure}");
            failure.to_string().replace(&format!("{}/", folder.path().display()), "")
        })
    }

    fn may_list(policy: &Policy, role: &str) -> bool {
        let roles = [role.to_owned()];
        let who = kilonova_policy::Credentials {
            user_id: "u",
            project_id: "p",
            domain_id: "",
            roles: &roles,
            service_roles: &[],
            scope: kilonova_policy::Scope::Project,
        };
        policy.allows("placement:resource_providers:list", &who, &[])
    }

    #[test]
    fn the_usual_file_is_read_when_it_is_there() {
        let rules = "placement:resource_providers:list: role:clerk";
        let policy = read_with("", &[("policy.yaml", rules)]).expect("fine");
        assert!(may_list(&policy, "clerk") && !may_list(&policy, "admin"));
        let policy = read_with("", &[]).expect("fine");
        assert!(may_list(&policy, "admin") && !may_list(&policy, "clerk"));
        let policy = read_with("policy_file = own.yaml", &[("own.yaml", rules)]).expect("fine");
        assert!(may_list(&policy, "clerk"));
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_place() {
        for (config, rules, why) in [
            ("policy_file = none.yaml", "", "kilonova.conf:2: [oslo_policy] policy_file: cannot"),
            ("enforce_scope = maybe", "", "kilonova.conf:2: [oslo_policy] enforce_scope: maybe"),
            ("", "a: rule:b", "policy.yaml: rule a needs rule:b, which is not defined"),
            ("", "a: rule:b\nb: rule:a", "policy.yaml: rule a goes in a circle: a -> b -> a"),
            ("", "a: http://there", "policy.yaml: rule a (line 1): http: checks are not supported"),
            ("", "a: [", "policy.yaml: line 2: no YAML"),
            ("", "placement:usage: '@'", "policy.yaml: placement:usage (line 1) is no operation"),
        ] {
            let beside: &[(&str, &str)] = &[("policy.yaml", rules)];
            let said = read_with(config, beside).expect_err(why);
            assert!(said.starts_with(why), "{said}");
        }
    }
}

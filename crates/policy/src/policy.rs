//! The rules of one service, validated: every name is defined, and no rule refers to itself.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::check::ADMIN_RULE;
use crate::{Check, Credentials, Error, Override, Problem, Scope, Target, parse};

/// Maximum length of a chain of rules.
const MAX_CHAIN: usize = 64;

/// A rule as its service defines it.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Its name: an operation such as `placement:usages`, or a helper for other rules.
    pub name: &'static str,
    /// Its text.
    pub check: &'static str,
    /// The default before upstream changed it.
    pub deprecated: Option<&'static str>,
    /// Scopes of tokens that may use it; empty for all.
    pub scopes: &'static [Scope],
}

/// Selects one of upstream's two sets of defaults, and the enforcement of scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Defaults {
    /// `enforce_new_defaults`: the deprecated checks do not apply.
    pub new_only: bool,
    /// `enforce_scope`: a token of another scope is refused.
    pub scope: bool,
}

impl Default for Defaults {
    fn default() -> Self {
        Self { new_only: true, scope: true }
    }
}

#[derive(Debug, Clone)]
struct Entry {
    check: Check,
    scopes: &'static [Scope],
    /// The values of the target that the rule and those that it names need.
    needs: Vec<String>,
}

/// A value that an operator's rule needs and that no target of the service has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lack<'a> {
    /// The rule.
    pub rule: &'a Override,
    /// The name of the value.
    pub name: &'a str,
    /// True if a `not` of the rule, or of one that uses it, contains the value: the check would allow everybody.
    pub negated: bool,
}

/// The rules of one service, ready for evaluation.
#[derive(Debug, Clone)]
pub struct Policy {
    rules: HashMap<String, Entry>,
}

impl Policy {
    /// Overrides the service's rules with the operator's and validates the result.
    ///
    /// # Errors
    /// An invalid text, an unknown operation, an undefined rule, a cycle.
    pub fn build(rules: &[Rule], own: &[Override], defaults: Defaults) -> Result<Self, Error> {
        let mut entries = HashMap::new();
        let has_rule = rules.iter().any(|rule| rule.name == ADMIN_RULE);
        let by_rule = |name: &str| has_rule && name != ADMIN_RULE;
        for rule in rules {
            let wrong = |problem: Problem| Error::Rule { rule: rule.name.to_owned(), problem };
            let mut check = parse(rule.check).map_err(wrong)?;
            if let Some(old) = rule.deprecated.filter(|_| !defaults.new_only) {
                check = Check::Any(vec![check, parse(old).map_err(wrong)?]);
            }
            let check = check.with_admin(by_rule(rule.name));
            let scopes = if defaults.scope { rule.scopes } else { &[] };
            entries.insert(rule.name.to_owned(), Entry { check, scopes, needs: Vec::new() });
        }
        for rule in own {
            let check = rule.parsed()?.with_admin(by_rule(&rule.name));
            match entries.get_mut(&rule.name) {
                Some(entry) => entry.check = check,
                None if !rule.helper && is_operation(&rule.name, rules) => {
                    return Err(rule.with_file(Error::UnknownOperation(rule.place())));
                }
                None => {
                    entries
                        .insert(rule.name.clone(), Entry { check, scopes: &[], needs: Vec::new() });
                }
            }
        }
        let mut policy = Self { rules: entries };
        policy.resolve(own)?;
        let needs: Vec<(String, Vec<String>)> =
            policy.rules.keys().map(|name| (name.clone(), policy.values_of(name))).collect();
        for (name, needs) in needs {
            policy.rules.entry(name).and_modify(|entry| entry.needs = needs);
        }
        Ok(policy)
    }

    /// The values of the target that a rule and the rules that it names need.
    fn values_of(&self, rule: &str) -> Vec<String> {
        let (mut found, mut seen, mut open) = (BTreeSet::new(), HashSet::new(), vec![rule]);
        while let Some(name) = open.pop() {
            if seen.insert(name)
                && let Some(entry) = self.rules.get(name)
            {
                entry.check.values(false, &mut |value, _| {
                    found.insert(value.to_owned());
                });
                entry.check.named(false, &mut |needed, _| open.push(needed));
            }
        }
        found.into_iter().collect()
    }

    /// The names of the target's values that a rule needs; other values have no effect on its decision.
    pub fn needs(&self, rule: &str) -> &[String] {
        self.rules.get(rule).map_or(&[], |entry| &entry.needs)
    }

    /// The operator's rules that need a value other than the `known` ones, each with one such value, preferably one that
    /// is negated.
    pub fn lacks<'a>(&'a self, own: &'a [Override], known: &[&str]) -> Vec<Lack<'a>> {
        let negated = self.negated();
        let mut all = Vec::new();
        for rule in own {
            let Some(entry) = self.rules.get(&rule.name) else { continue };
            let mut found: Option<Lack<'a>> = None;
            entry.check.values(negated.contains(&*rule.name), &mut |name, negated| {
                let worse = found.as_ref().is_none_or(|before| negated && !before.negated);
                if worse && !known.contains(&name) {
                    found = Some(Lack { rule, name, negated });
                }
            });
            all.extend(found);
        }
        all
    }

    /// The rules that others name within a `not`, and those that these name.
    fn negated(&self) -> HashSet<&str> {
        let (mut found, mut open) = (HashSet::new(), Vec::new());
        for entry in self.rules.values() {
            entry.check.named(false, &mut |name, negated| {
                if negated {
                    open.push(name);
                }
            });
        }
        while let Some(name) = open.pop() {
            if found.insert(name)
                && let Some(entry) = self.rules.get(name)
            {
                entry.check.named(false, &mut |needed, _| open.push(needed));
            }
        }
        found
    }

    /// A policy that allows nothing.
    pub fn none() -> Self {
        Self { rules: HashMap::new() }
    }

    /// True if the rule exists.
    pub fn knows(&self, rule: &str) -> bool {
        self.rules.contains_key(rule)
    }

    /// True if the caller is an administrator by the service's own rule; `None` if the service has
    /// no such rule.
    pub fn is_admin(&self, caller: &Credentials<'_>) -> Option<bool> {
        let entry = self.rules.get(ADMIN_RULE)?;
        Some(self.holds(&entry.check, caller, &[]))
    }

    /// True if the rule allows the caller. An unknown rule allows nobody.
    pub fn allows(&self, rule: &str, caller: &Credentials<'_>, target: Target<'_>) -> bool {
        let Some(entry) = self.rules.get(rule) else { return false };
        (entry.scopes.is_empty() || entry.scopes.contains(&caller.scope))
            && self.holds(&entry.check, caller, target)
    }

    fn holds(&self, check: &Check, caller: &Credentials<'_>, target: Target<'_>) -> bool {
        check.allows(caller, target, &|name| {
            self.rules.get(name).is_some_and(|entry| self.holds(&entry.check, caller, target))
        })
    }

    /// Checks that every name is defined and that no rule refers to itself. The service's own rules
    /// are valid, so an error comes from the operator: it contains the position of the first
    /// offending rule.
    fn resolve(&self, own: &[Override]) -> Result<(), Error> {
        let mut names: Vec<&str> = self.rules.keys().map(String::as_str).collect();
        names.sort_unstable();
        let mut valid = HashSet::new();
        names.into_iter().try_for_each(|name| {
            let mut path = Vec::new();
            self.visit(name, &mut path, &mut valid).map_err(|error| {
                let last = path
                    .iter()
                    .rev()
                    .find_map(|on_path| own.iter().find(|rule| rule.name == **on_path));
                match last {
                    Some(rule) => rule.with_line(error),
                    None => error,
                }
            })
        })
    }

    /// Follows the rules that a rule names; `path` leads to this one.
    fn visit<'a>(
        &'a self,
        name: &'a str,
        path: &mut Vec<&'a str>,
        valid: &mut HashSet<&'a str>,
    ) -> Result<(), Error> {
        if valid.contains(name) {
            return Ok(());
        }
        if let Some(at) = path.iter().position(|on_path| *on_path == name) {
            path.push(name);
            return Err(Error::Cycle(path[at..].iter().map(|name| (*name).to_owned()).collect()));
        }
        let Some(entry) = self.rules.get(name) else {
            return Err(Error::UnknownRule {
                rule: path.last().map_or_else(String::new, |rule| (*rule).to_owned()),
                missing: name.to_owned(),
            });
        };
        path.push(name);
        if path.len() > MAX_CHAIN {
            return Err(Error::TooLong { rule: path[0].to_owned(), limit: MAX_CHAIN });
        }
        let mut needs = Vec::new();
        entry.check.named(false, &mut |needed, _| needs.push(needed));
        needs.into_iter().try_for_each(|needed| self.visit(needed, path, valid))?;
        path.pop();
        valid.insert(name);
        Ok(())
    }
}

/// True if a name is in a namespace of the service's operations: `placement:…`.
pub(crate) fn is_operation(name: &str, rules: &[Rule]) -> bool {
    let namespace = |name: &str| name.split_once(':').map(|(before, _)| before.to_owned());
    namespace(name).is_some_and(|own| {
        rules.iter().any(|rule| namespace(rule.name).is_some_and(|known| known == own))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read;

    const RULES: &[Rule] = &[
        Rule { name: "admin", check: "role:admin", deprecated: None, scopes: &[] },
        Rule {
            name: "reader",
            check: "role:reader and project_id:%(project_id)s",
            deprecated: Some("role:admin"),
            scopes: &[],
        },
        Rule {
            name: "shop:list",
            check: "rule:reader or role:service",
            deprecated: None,
            scopes: &[Scope::Project],
        },
    ];

    fn build(text: &str, new_only: bool) -> Result<Policy, Error> {
        Policy::build(RULES, &read(text)?, Defaults { new_only, scope: true })
    }

    fn asks(policy: &Policy, roles: &[&str], project: &str, scope: Scope) -> bool {
        let roles: Vec<String> = roles.iter().map(|role| (*role).to_owned()).collect();
        let caller = Credentials { user_id: "u", project_id: "p", roles: &roles, scope, ..NOBODY };
        policy.allows("shop:list", &caller, &[("project_id", project)])
    }

    #[test]
    fn old_defaults_apply_only_if_enabled() {
        let (new, old) = (
            build("", true).expect("the policy is valid"),
            build("", false).expect("the policy is valid"),
        );
        for policy in [&new, &old] {
            assert!(asks(policy, &["Reader"], "p", Scope::Project));
            assert!(!asks(policy, &["reader"], "other", Scope::Project));
            assert!(asks(policy, &["service"], "other", Scope::Project));
            assert!(
                !asks(policy, &["service"], "other", Scope::System),
                "the scope does not match"
            );
            assert!(!asks(policy, &[], "p", Scope::Project));
        }
        assert!(!asks(&new, &["admin"], "p", Scope::Project));
        assert!(asks(&old, &["admin"], "p", Scope::Project));
        let open = Policy::build(RULES, &[], Defaults { new_only: true, scope: false });
        assert!(asks(&open.expect("the policy is valid"), &["service"], "p", Scope::System));
    }

    #[test]
    fn an_operators_rule_replaces_both_defaults() {
        let policy = build("reader: role:a\nmine: '@'", false).expect("the policy is valid");
        assert!(asks(&policy, &["a"], "p", Scope::Project));
        assert!(!asks(&policy, &["admin"], "p", Scope::Project), "the operator's rule replaces it");
        let policy = build("mine: \"'u':%(user)s\"\nshop:list: not rule:mine", true);
        assert!(
            asks(&policy.expect("the policy is valid"), &[], "p", Scope::Project),
            "the target has no user"
        );
        assert!(!build("", true).expect("the policy is valid").allows("shop:buy", &NOBODY, &[]));
    }

    #[test]
    fn a_helper_may_have_the_name_of_an_operation() {
        let mut own =
            read("shop:old: role:a\nshop:list: rule:shop:old").expect("the file is valid");
        own[0].helper = true;
        let policy = Policy::build(RULES, &own, Defaults::default()).expect("the policy is valid");
        assert!(asks(&policy, &["a"], "p", Scope::Project));
        assert!(!asks(&policy, &["reader"], "p", Scope::Project));
    }

    #[test]
    fn a_rule_needs_the_values_of_the_rules_that_it_names() {
        let policy = build("reader: rule:mine\nmine: \"not 'u':%(b)s or field:x:a=1\"", true)
            .expect("the policy is valid");
        assert_eq!(policy.needs("shop:list"), ["a", "b"]);
        assert_eq!(policy.needs("mine"), ["a", "b"]);
        assert!(policy.needs("admin").is_empty());
        assert!(policy.needs("shop:buy").is_empty());
    }

    #[test]
    fn values_that_no_target_has_are_found_through_helpers() {
        let lacks = |text: &str| -> Vec<(String, String, bool)> {
            let own = read(text).expect("the file is valid");
            let policy =
                Policy::build(RULES, &own, Defaults::default()).expect("the policy is valid");
            let all = policy.lacks(&own, &["project_id", "user_id"]);
            let shown = |lack: Lack<'_>| (lack.rule.name.clone(), lack.name.into(), lack.negated);
            all.into_iter().map(shown).collect()
        };
        let found = |rule: &str, name: &str, negated| vec![(rule.into(), name.into(), negated)];
        let text = "admin: user_id:%(user_id)s and not project_id:%(project_id)s";
        assert!(lacks(text).is_empty());
        assert_eq!(lacks("admin: role:a or 'x':%(name)s"), found("admin", "name", false));
        let text = "admin: \"'x':%(b)s or not (role:a and 'x':%(c)s)\"";
        assert_eq!(lacks(text), found("admin", "c", true));
        assert_eq!(lacks("admin: not field:servers:name=x"), found("admin", "name", true));
        let text = "shop:list: rule:mine\nmine: \"'x':%(name)s\"";
        assert_eq!(lacks(text), found("mine", "name", false));
        let text = "shop:list: not (role:a or rule:ours)\nours: rule:mine\nmine: \"'x':%(name)s\"";
        assert_eq!(lacks(text), found("mine", "name", true));
    }

    const NOBODY: Credentials<'static> = Credentials {
        user_id: "",
        project_id: "",
        roles: &[],
        service_roles: &[],
        scope: Scope::Project,
        domain_id: "",
        user_domain_id: "",
        project_domain_id: "",
    };

    #[test]
    fn a_caller_without_a_project_is_in_none() {
        let policy =
            build("shop:list: project_id:%(project_id)s", true).expect("the policy is valid");
        assert!(!policy.allows("shop:list", &NOBODY, &[("project_id", "")]));
    }

    #[test]
    fn rules_that_cannot_work_are_refused_by_name() {
        for (text, message) in [
            ("shop:lsit: '@'", "shop:lsit (line 1) is neither an operation"),
            ("shop:list: rule:raeder", "rule shop:list needs rule:raeder"),
            (
                "a: rule:b\nb: not rule:c\nc: rule:a or @",
                "rule a refers to itself: a -> b -> c -> a",
            ),
            ("reader: rule:reader", "rule reader refers to itself: reader -> reader"),
            ("shop:list: http://there/", "rule shop:list (line 1): http: checks are not supported"),
            ("x: role", "rule x (line 1): `role` is not a check"),
        ] {
            let found = build(text, true).err().map_or_else(String::new, |error| error.to_string());
            assert!(found.starts_with(message), "{found}");
        }
    }

    #[test]
    fn a_long_chain_is_refused_and_does_not_exhaust_the_stack() {
        let chain: String = (0..2_000).map(|n| format!("r{n}: rule:r{}\n", n + 1)).collect();
        let error =
            build(&format!("{chain}r2000: '@'\n"), true).expect_err("the chain is too long");
        assert!(error.to_string().contains("more than"), "{error}");
    }
}

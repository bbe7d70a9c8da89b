//! Earlier names of rules, which a file may still use.

use std::collections::HashSet;

use crate::{Error, Override, Rule, Written};

/// An earlier name, and the rules that replaced it.
pub type Renamed = (&'static str, &'static [&'static str]);

/// Applies an entry under an earlier name to each rule that replaced it, unless the file sets that rule too or the entry
/// only refers to it, as `_handle_deprecated_rule` of `oslo_policy/policy.py` does. The entry itself stays only if its
/// name is still that of a rule, or if an entry of the file uses it as a helper.
///
/// # Errors
/// Returns an error if the text of an entry is invalid.
pub fn renamed(
    own: Vec<Override>,
    names: &[Renamed],
    tables: &[&[Rule]],
) -> Result<Vec<Override>, Error> {
    let mut used = HashSet::new();
    for rule in &own {
        used.extend(rule.needs()?);
    }
    let set: HashSet<String> = own.iter().map(|rule| rule.name.clone()).collect();
    let is_rule = |name: &str| tables.iter().any(|table| table.iter().any(|one| one.name == name));
    let mut all = Vec::new();
    for mut rule in own {
        let Some((_, successors)) = names.iter().find(|(old, _)| *old == rule.name) else {
            all.push(rule);
            continue;
        };
        for name in successors.iter().filter(|name| is_rule(name) && !set.contains(**name)) {
            if rule.written != Written::Text(format!("rule:{name}")) {
                all.push(Override { name: (*name).to_owned(), ..rule.clone() });
            }
        }
        if is_rule(&rule.name) || !successors.iter().any(|name| is_rule(name)) {
            all.push(rule);
        } else if used.contains(&rule.name) {
            rule.helper = true;
            all.push(rule);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read;

    const fn rule(name: &'static str) -> Rule {
        Rule { name, check: "role:admin", deprecated: None, scopes: &[] }
    }

    const RULES: &[Rule] = &[
        rule("shop:things:list"),
        rule("shop:things:show"),
        rule("shop:sell"),
        rule("shop:sell:all"),
    ];
    const NAMES: &[Renamed] = &[
        ("shop:things", &["shop:things:list", "shop:things:show", "shop:things:paint"]),
        ("shop:sell", &["shop:sell:all"]),
        ("yard:things", &["yard:things:list"]),
    ];

    fn after(text: &str) -> Vec<(String, String)> {
        let own = read(text).expect("the file is valid");
        renamed(own, NAMES, &[RULES])
            .expect("the rules are valid")
            .into_iter()
            .map(|rule| match rule.written {
                Written::Text(text) => (rule.name, text),
                Written::List(_) => (rule.name, String::new()),
            })
            .collect()
    }

    fn expected(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn an_earlier_name_applies_to_the_successors_that_the_file_does_not_set() {
        let found = after("shop:things: role:a\nshop:things:show: role:b\nother: role:c");
        let list = ("shop:things:list", "role:a");
        assert_eq!(found, expected(&[list, ("shop:things:show", "role:b"), ("other", "role:c")]));
        // The name of a rule that has lent its text to another stays.
        let found = after("shop:sell: role:a");
        assert_eq!(found, expected(&[("shop:sell:all", "role:a"), ("shop:sell", "role:a")]));
        // A generated file refers to the successor.
        assert_eq!(
            after("shop:things: rule:shop:things:list"),
            expected(&[("shop:things:show", "rule:shop:things:list")])
        );
        // An entry uses the earlier name as a helper.
        let (old, list) = (("shop:things", "role:a"), ("shop:things:list", "role:a"));
        let show = ("shop:things:show", "rule:shop:things");
        let text = "shop:things: role:a\nshop:things:show: rule:shop:things";
        assert_eq!(after(text), expected(&[list, old, show]));
        // A name of another service is left to it.
        assert_eq!(after("yard:things: '@'"), expected(&[("yard:things", "@")]));
    }
}

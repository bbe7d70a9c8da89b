//! Distributes the rules of one file to several services.
//!
//! A rule is given to every service that defines its name. Any other rule is a helper, and is given
//! to the services whose rules use it directly or indirectly.

use std::collections::{HashMap, HashSet};

use crate::policy::is_operation;
use crate::{Error, Override, Rule};

/// The rules of the file for each of the tables, in their order.
///
/// # Errors
/// An invalid text, an unknown operation in a service's namespace, or a helper that no rule uses.
pub fn share(own: &[Override], tables: &[&[Rule]]) -> Result<Vec<Vec<Override>>, Error> {
    let by_name: HashMap<&str, &Override> =
        own.iter().map(|rule| (rule.name.as_str(), rule)).collect();
    let (mut used, mut shares) = (HashSet::new(), Vec::new());
    for table in tables {
        let names = table.iter().map(|rule| rule.name);
        let mut open: Vec<&Override> =
            names.filter_map(|name| by_name.get(name).copied()).collect();
        let mut mine: HashSet<&str> = open.iter().map(|rule| rule.name.as_str()).collect();
        let mut share = Vec::new();
        while let Some(rule) = open.pop() {
            for needed in rule.needs()? {
                let Some(helper) = by_name.get(needed.as_str()).copied() else { continue };
                if mine.insert(&helper.name) {
                    open.push(helper);
                }
            }
            share.push(rule.clone());
        }
        share.sort_by_key(|rule| rule.line);
        used.extend(mine);
        shares.push(share);
    }
    let unused = |rule: &&Override| !rule.helper && !used.contains(rule.name.as_str());
    let Some(rule) = own.iter().find(unused) else {
        return Ok(shares);
    };
    rule.needs()?;
    let error = match tables.iter().any(|table| is_operation(&rule.name, table)) {
        true => Error::UnknownOperation(rule.place()),
        false => Error::Unused(rule.place()),
    };
    Err(rule.with_file(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_from;

    const fn rule(name: &'static str, check: &'static str) -> Rule {
        Rule { name, check, deprecated: None, scopes: &[] }
    }

    const SHOP: &[Rule] = &[rule("admin", "role:admin"), rule("shop:list", "rule:admin")];
    const YARD: &[Rule] = &[rule("admin", "role:admin"), rule("get_thing", "rule:admin")];

    fn shared(text: &str) -> Result<Vec<Vec<String>>, String> {
        let own = read_from("p.yaml", text).expect("the file is valid");
        let shares = share(&own, &[SHOP, YARD]).map_err(|error| error.to_string())?;
        let names = |share: Vec<Override>| share.into_iter().map(|rule| rule.name).collect();
        Ok(shares.into_iter().map(names).collect())
    }

    #[test]
    fn a_rule_applies_to_services_that_define_it_and_a_helper_to_its_users() {
        let text = "shop:list: rule:a\na: rule:b or role:x\nb: '@'\nget_thing: rule:b\nadmin: '!'";
        let expected = Ok(vec![
            vec!["shop:list".into(), "a".into(), "b".into(), "admin".into()],
            vec!["b".into(), "get_thing".into(), "admin".into()],
        ]);
        assert_eq!(shared(text), expected);
    }

    #[test]
    fn an_unused_rule_is_refused_with_its_file_and_line() {
        for (text, message) in [
            ("get_thnig: '@'", "p.yaml: get_thnig (line 1) is not a rule of any service"),
            ("admin: '@'\nshop:lsit: '@'", "p.yaml: shop:lsit (line 2) is neither an operation"),
            ("a: rule:a", "p.yaml: a (line 1) is not a rule of any service"),
            ("a: role", "p.yaml: rule a (line 1): `role` is not a check"),
        ] {
            let error = shared(text).expect_err(text);
            assert!(error.starts_with(message), "{error}");
        }
    }
}

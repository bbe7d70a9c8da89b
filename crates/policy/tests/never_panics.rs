//! Any text is either a policy or an error, and any policy can be evaluated.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

use kilonova_policy::{Credentials, Defaults, Policy, Rule, Scope, parse, read};
use proptest::prelude::*;

const RULES: &[Rule] = &[
    Rule {
        name: "shop:list",
        check: "rule:shown or role:admin",
        deprecated: Some("role:old"),
        scopes: &[Scope::Project],
    },
    Rule { name: "shown", check: "!", deprecated: None, scopes: &[] },
];

const WORDS: &[&str] = &[
    "and",
    "or",
    "not",
    "(",
    ")",
    "((",
    "))",
    "@",
    "!",
    "role:a",
    "role:%(x)s",
    "rule:shown",
    "rule:mine",
    "project_id:%(project_id)s",
    "'m':%(x)s",
    "1:1",
    "http://h",
    "a:b",
    ":",
    "%",
    "'",
    "\"",
    "role:a)",
    "(role:a",
    "",
];

fn expression() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(WORDS), 0..12).prop_map(|words| words.join(" "))
}

fn ask(policy: &Policy) -> bool {
    let roles = ["a".to_owned()];
    let who = Credentials {
        user_id: "u",
        project_id: "p",
        domain_id: "",
        roles: &roles,
        service_roles: &[],
        scope: Scope::Project,
        ..Credentials::default()
    };
    policy.allows("shop:list", &who, &[("project_id", "p"), ("x", "a")])
}

fn try_file(text: &str) {
    if let Ok(own) = read(text)
        && let Ok(policy) = Policy::build(RULES, &own, Defaults::default())
    {
        ask(&policy);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn any_text_is_an_expression_or_a_refusal(text in "\\PC*") {
        let _ = parse(&text);
    }

    #[test]
    fn a_parsed_rule_prints_with_the_same_meaning(text in expression()) {
        if let Ok(check) = parse(&text) {
            prop_assert_eq!(parse(&check.to_string()), Ok(check.clone()), "{}", check);
        }
    }

    #[test]
    fn any_file_is_a_policy_or_a_refusal(text in "[ -~\\n\t]{0,200}") {
        try_file(&text);
    }

    #[test]
    fn files_of_the_right_form_are_answered(rules in prop::collection::vec(("[ams]", expression()), 0..6)) {
        let text: String = rules
            .iter()
            .map(|(name, text)| {
                let name = match name.as_str() { "a" => "shop:list", "m" => "mine", _ => "shown" };
                format!("{name}: '{}'\n", text.replace('\'', "''"))
            })
            .collect();
        try_file(&text);
    }
}

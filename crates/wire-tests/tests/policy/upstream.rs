//! The callers that pass each of upstream's rules, and the rules of Kilonova's extensions.

use std::collections::HashMap;

/// Rules that upstream does not have, and the callers that pass them.
const OURS: &[(&str, &[&str])] = &[
    ("kilonova:servers:show", &["reader", "member", "manager", "admin", "other_admin"]),
    ("kilonova:hosts:show", &["admin", "other_admin"]),
    ("kilonova:hosts:drain", &["admin", "other_admin"]),
    ("kilonova:floor:show", &["admin", "other_admin"]),
    ("kilonova:capacity:show", &["admin", "other_admin"]),
    ("kilonova:doctor:show", &["admin", "other_admin"]),
    ("kilonova:room:show", &["member", "manager", "admin", "other_admin"]),
    ("kilonova:rebalance:show", &["admin", "other_admin"]),
    ("kilonova:rebalance:move", &["admin", "other_admin"]),
    ("kilonova:enrollments:create", &["admin", "other_admin"]),
    ("kilonova:enrollments:index", &["admin", "other_admin"]),
    ("kilonova:enrollments:delete", &["admin", "other_admin"]),
    ("kilonova:device_health:get_all", &["admin", "other_admin"]),
    ("kilonova:device_health:get_one", &["admin", "other_admin"]),
    ("kilonova:device_orders:get_all", &["admin", "other_admin"]),
    ("kilonova:handle_changes:get_all", &["admin", "other_admin"]),
];

/// The data of one service.
pub struct Upstream(HashMap<&'static str, Vec<&'static str>>);

impl Upstream {
    /// Reads lines of `RULE: CALLER CALLER …`.
    pub fn read(text: &'static str) -> Self {
        let line = |line: &'static str| {
            let (rule, callers) = line.rsplit_once(": ").expect("the line is RULE: CALLERS");
            (rule, callers.split(' ').filter(|caller| !caller.is_empty()).collect())
        };
        let mut facts: HashMap<_, Vec<_>> = text.lines().map(line).collect();
        facts.extend(OURS.iter().map(|(rule, callers)| (*rule, callers.to_vec())));
        Self(facts)
    }

    /// True if the caller passes; `None` for an unknown rule.
    pub fn passes(&self, rule: &str, caller: &str) -> Option<bool> {
        Some(self.0.get(rule)?.contains(&caller))
    }
}

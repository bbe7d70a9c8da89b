//! Who passes which of upstream's rules, as the data has it; and what only Kilonova has.

use std::collections::HashMap;

/// Rules that upstream does not have, and who passes them.
const OURS: &[(&str, &[&str])] = &[
    ("kilonova:servers:show", &["reader", "member", "manager", "admin", "other_admin"]),
    ("kilonova:hosts:show", &["admin", "other_admin"]),
    ("kilonova:enrollments:create", &["admin", "other_admin"]),
    ("kilonova:enrollments:index", &["admin", "other_admin"]),
    ("kilonova:enrollments:delete", &["admin", "other_admin"]),
    ("kilonova:device_health:get_all", &["admin", "other_admin"]),
    ("kilonova:device_health:get_one", &["admin", "other_admin"]),
    ("kilonova:device_orders:get_all", &["admin", "other_admin"]),
    ("kilonova:handle_changes:get_all", &["admin", "other_admin"]),
];

/// The facts of one service.
pub struct Upstream(HashMap<&'static str, Vec<&'static str>>);

impl Upstream {
    /// Reads `RULE: CALLER CALLER …`, a line each.
    pub fn read(text: &'static str) -> Self {
        let line = |line: &'static str| {
            let (rule, callers) = line.rsplit_once(": ").expect("RULE: CALLERS");
            (rule, callers.split(' ').filter(|caller| !caller.is_empty()).collect())
        };
        let mut facts: HashMap<_, Vec<_>> = text.lines().map(line).collect();
        facts.extend(OURS.iter().map(|(rule, callers)| (*rule, callers.to_vec())));
        Self(facts)
    }

    /// Whether the caller passes; nothing for a rule that nobody has.
    pub fn passes(&self, rule: &str, caller: &str) -> Option<bool> {
        Some(self.0.get(rule)?.contains(&caller))
    }
}

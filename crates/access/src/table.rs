//! Constructors for the rule tables of services.

use kilonova_policy::{Rule, Scope};

/// A rule whose default upstream never changed.
pub const fn rule(name: &'static str, check: &'static str, scopes: &'static [Scope]) -> Rule {
    Rule { name, check, deprecated: None, scopes }
}

/// A rule whose default upstream changed. The previous default also passes, unless the operator
/// enforces the new defaults.
pub const fn changed(
    name: &'static str,
    check: &'static str,
    previous: &'static str,
    scopes: &'static [Scope],
) -> Rule {
    Rule { name, check, deprecated: Some(previous), scopes }
}

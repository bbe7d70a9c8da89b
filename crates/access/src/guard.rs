//! The rule of a route.

use http::Method;
use kilonova_policy::Rule;

/// The rule of one method of one path, and when it is enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// No rule and no token: for version documents and login only.
    Open,
    /// Any valid token: for operations without a rule upstream, and removed paths.
    Anyone,
    /// Enforced before the handler, for a target in the caller's own project. If the handler looks a
    /// target up, it enforces the rule again for its owner ([`crate::Caller::may_on`]).
    Own(&'static str),
    /// The rule depends on the target: the handler enforces one of these after the lookup.
    Object(&'static [&'static str]),
    /// The body names the action: pairs of action and rule. The handler enforces it.
    Action(&'static [(&'static str, &'static str)]),
}

impl From<&'static str> for Guard {
    fn from(rule: &'static str) -> Self {
        Self::Own(rule)
    }
}

/// An HTTP operation of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The method.
    pub method: Method,
    /// The path's pattern, relative to the mount point.
    pub path: String,
    /// Its guard.
    pub guard: Guard,
}

impl Operation {
    /// The rules that may be enforced, with the action that leads to each.
    pub fn rules(&self) -> Vec<(Option<&'static str>, &'static str)> {
        match self.guard {
            Guard::Open | Guard::Anyone => Vec::new(),
            Guard::Own(rule) => vec![(None, rule)],
            Guard::Object(rules) => rules.iter().map(|rule| (None, *rule)).collect(),
            Guard::Action(actions) => {
                actions.iter().map(|(action, rule)| (Some(*action), *rule)).collect()
            }
        }
    }
}

/// The rules that operations name but the table lacks; such operations would always be refused.
pub fn undefined(operations: &[Operation], table: &[Rule]) -> Vec<String> {
    let known = |name: &str| table.iter().any(|rule| rule.name == name);
    operations
        .iter()
        .flat_map(|operation| operation.rules().into_iter().map(move |(_, rule)| (operation, rule)))
        .filter(|(_, rule)| !known(rule))
        .map(|(operation, rule)| format!("{} {}: {rule}", operation.method, operation.path))
        .collect()
}

//! Which rule decides over a route.

use http::Method;
use kilonova_policy::Rule;

/// Which rule decides over one method of one path, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// No rule and no token: version documents and login. For these only.
    Open,
    /// Any valid token: what upstream has no rule for, and paths of which nothing is left.
    Anyone,
    /// The door decides, as for a thing of the caller's own project. Where a thing is looked up, the
    /// handler asks once more with its owner ([`crate::Caller::may_on`]).
    Own(&'static str),
    /// The rule needs the thing: the handler asks one of these when it has found it.
    Object(&'static [&'static str]),
    /// The body names the action: its name and its rule. The handler asks when it has read the name.
    Action(&'static [(&'static str, &'static str)]),
}

impl From<&'static str> for Guard {
    fn from(rule: &'static str) -> Self {
        Self::Own(rule)
    }
}

/// One thing that can be asked of a service over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The method.
    pub method: Method,
    /// The path's pattern, relative to the mount.
    pub path: String,
    /// What decides.
    pub guard: Guard,
}

impl Operation {
    /// The rules that may be asked for it, with the action of the body that leads to each.
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

/// The rules that operations name and that the table lacks: nobody could ever pass them.
pub fn undefined(operations: &[Operation], table: &[Rule]) -> Vec<String> {
    let known = |name: &str| table.iter().any(|rule| rule.name == name);
    operations
        .iter()
        .flat_map(|operation| operation.rules().into_iter().map(move |(_, rule)| (operation, rule)))
        .filter(|(_, rule)| !known(rule))
        .map(|(operation, rule)| format!("{} {}: {rule}", operation.method, operation.path))
        .collect()
}

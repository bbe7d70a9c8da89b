//! The tree that a rule's text becomes, and what it says of a caller.

use std::fmt;

use crate::{Credentials, Pattern, Target};

/// One rule, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// `@`: anyone.
    Anyone,
    /// `!`: nobody.
    Nobody,
    /// `not …`.
    Not(Box<Check>),
    /// All of these.
    All(Vec<Check>),
    /// Any of these.
    Any(Vec<Check>),
    /// `rule:NAME`: what that rule says.
    Rule(String),
    /// `role:NAME`: the caller has that role.
    Role(Pattern),
    /// `'text':VALUE`: the value is that text.
    Literal(String, Pattern),
    /// `attribute:VALUE`: the caller's attribute is, or holds, the value.
    Attribute(String, Pattern),
}

impl Check {
    /// Whether the caller passes. `rule` answers for other rules.
    pub fn allows(
        &self,
        who: &Credentials<'_>,
        target: Target<'_>,
        rule: &dyn Fn(&str) -> bool,
    ) -> bool {
        match self {
            Self::Anyone => true,
            Self::Nobody => false,
            Self::Not(inner) => !inner.allows(who, target, rule),
            Self::All(parts) => parts.iter().all(|part| part.allows(who, target, rule)),
            Self::Any(parts) => parts.iter().any(|part| part.allows(who, target, rule)),
            Self::Rule(name) => rule(name),
            Self::Role(name) => name.fill(target).is_some_and(|name| who.has_role(&name)),
            Self::Literal(text, value) => value.fill(target).is_some_and(|value| value == *text),
            Self::Attribute(name, value) => {
                value.fill(target).is_some_and(|value| who.has(name, &value))
            }
        }
    }

    /// Calls `each` for every rule that is named here.
    pub(crate) fn named<'a>(&'a self, each: &mut dyn FnMut(&'a str)) {
        match self {
            Self::Not(inner) => inner.named(each),
            Self::All(parts) | Self::Any(parts) => parts.iter().for_each(|part| part.named(each)),
            Self::Rule(name) => each(name),
            _ => {}
        }
    }
}

fn joined(f: &mut fmt::Formatter<'_>, parts: &[Check], word: &str) -> fmt::Result {
    f.write_str("(")?;
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            write!(f, " {word} ")?;
        }
        write!(f, "{part}")?;
    }
    f.write_str(")")
}

impl fmt::Display for Check {
    /// The check in the language that it was read from.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anyone => f.write_str("@"),
            Self::Nobody => f.write_str("!"),
            Self::Not(inner) => write!(f, "not {inner}"),
            Self::All(parts) => joined(f, parts, "and"),
            Self::Any(parts) => joined(f, parts, "or"),
            Self::Rule(name) => write!(f, "rule:{name}"),
            Self::Role(name) => write!(f, "role:{name}"),
            Self::Literal(text, value) => write!(f, "'{text}':{value}"),
            Self::Attribute(name, value) => write!(f, "{name}:{value}"),
        }
    }
}

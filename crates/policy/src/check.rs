//! The syntax tree of a rule, and its evaluation for a caller.

use std::fmt;

use regex::Regex;

use crate::{Credentials, Pattern, Target};

/// The value that a field of the object must have.
#[derive(Debug, Clone)]
pub enum FieldMatch {
    /// The field equals this text, or is the boolean that it names.
    Equals(String),
    /// The field begins with a match.
    Prefix(Regex),
}

impl PartialEq for FieldMatch {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Equals(a), Self::Equals(b)) => a == b,
            (Self::Prefix(a), Self::Prefix(b)) => a.as_str() == b.as_str(),
            _ => false,
        }
    }
}

impl Eq for FieldMatch {}

/// A rule or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// `@`: allows everyone.
    Anyone,
    /// `!`: allows nobody.
    Nobody,
    /// `not …`.
    Not(Box<Check>),
    /// All of these.
    All(Vec<Check>),
    /// Any of these.
    Any(Vec<Check>),
    /// `rule:NAME`: evaluates that rule.
    Rule(String),
    /// `role:NAME`: the caller has the role.
    Role(Pattern),
    /// `'text':VALUE`: the value equals the text.
    Literal(String, Pattern),
    /// `field:RESOURCE:NAME=VALUE` or `…=~EXPRESSION`, as in Neutron: a field of the object. The
    /// resource is documentation only.
    Field(String, String, FieldMatch),
    /// `attribute:VALUE`: the caller's attribute equals or contains the value.
    Attribute(String, Pattern),
}

impl Check {
    /// True if the caller passes. `rule` evaluates other rules.
    pub fn allows(
        &self,
        caller: &Credentials<'_>,
        target: Target<'_>,
        rule: &dyn Fn(&str) -> bool,
    ) -> bool {
        match self {
            Self::Anyone => true,
            Self::Nobody => false,
            Self::Not(inner) => !inner.allows(caller, target, rule),
            Self::All(parts) => parts.iter().all(|part| part.allows(caller, target, rule)),
            Self::Any(parts) => parts.iter().any(|part| part.allows(caller, target, rule)),
            Self::Rule(name) => rule(name),
            Self::Role(name) => name.fill(target).is_some_and(|name| caller.has_role(&name)),
            Self::Literal(text, value) => value.fill(target).is_some_and(|value| value == *text),
            Self::Field(_, name, wanted) => {
                let found = target.iter().find(|(have, _)| have == name);
                found.is_some_and(|(_, value)| match wanted {
                    FieldMatch::Equals(text) => value == text || same_flag(value, text),
                    FieldMatch::Prefix(expression) => expression.is_match(value),
                })
            }
            Self::Attribute(name, value) => {
                value.fill(target).is_some_and(|value| caller.has(name, &value))
            }
        }
    }

    /// Calls `each` for every rule that this check names; `true` if it is within a `not`.
    pub(crate) fn named<'a>(&'a self, negated: bool, each: &mut dyn FnMut(&'a str, bool)) {
        match self {
            Self::Not(inner) => inner.named(true, each),
            Self::All(parts) | Self::Any(parts) => {
                parts.iter().for_each(|part| part.named(negated, each));
            }
            Self::Rule(name) => each(name, negated),
            _ => {}
        }
    }

    /// Calls `each` for every value of the target that this check needs; `true` if it is within a `not`. Rules that it
    /// names are left out.
    pub(crate) fn values<'a>(&'a self, negated: bool, each: &mut dyn FnMut(&'a str, bool)) {
        match self {
            Self::Not(inner) => inner.values(true, each),
            Self::All(parts) | Self::Any(parts) => {
                parts.iter().for_each(|part| part.values(negated, each));
            }
            Self::Role(value) | Self::Literal(_, value) | Self::Attribute(_, value) => {
                value.needs().for_each(|name| each(name, negated));
            }
            Self::Field(_, name, _) => each(name, negated),
            Self::Anyone | Self::Nobody | Self::Rule(_) => {}
        }
    }

    /// Replaces `is_admin:True` by its definition: the rule `context_is_admin` of a service that
    /// has one, otherwise the role.
    pub(crate) fn with_admin(self, by_rule: bool) -> Self {
        let each = |parts: Vec<Self>| parts.into_iter().map(|p| p.with_admin(by_rule)).collect();
        match self {
            Self::Not(inner) => Self::Not(Box::new(inner.with_admin(by_rule))),
            Self::All(parts) => Self::All(each(parts)),
            Self::Any(parts) => Self::Any(each(parts)),
            Self::Attribute(name, value) if name == "is_admin" => {
                let admin = match by_rule {
                    true => Self::Rule(ADMIN_RULE.to_owned()),
                    false => Self::Role(Pattern::text("admin")),
                };
                match value.to_string().as_str() {
                    "True" => admin,
                    "False" => Self::Not(Box::new(admin)),
                    _ => Self::Nobody,
                }
            }
            other => other,
        }
    }
}

/// True if a field that is a boolean has the value that a rule writes in another form: Neutron converts such values
/// with `convert_to_boolean` of `neutron_lib/api/converters.py`.
fn same_flag(value: &str, wanted: &str) -> bool {
    match value {
        "True" => wanted == "1" || wanted.eq_ignore_ascii_case("true"),
        "False" => wanted == "0" || wanted.eq_ignore_ascii_case("false"),
        _ => false,
    }
}

/// The rule by which Nova, Glance and Neutron recognize an administrator.
pub(crate) const ADMIN_RULE: &str = "context_is_admin";

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
    /// The check in the policy language.
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
            Self::Field(resource, name, FieldMatch::Equals(text)) => {
                write!(f, "field:{resource}:{name}={text}")
            }
            Self::Field(resource, name, FieldMatch::Prefix(expression)) => {
                write!(f, "field:{resource}:{name}=~{expression}")
            }
            Self::Attribute(name, value) => write!(f, "{name}:{value}"),
        }
    }
}

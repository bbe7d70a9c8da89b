//! The reasons why a policy is refused.

/// An error in the text of one rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A word that is not a check.
    #[error("`{0}` is not a check; a check is KIND:VALUE, @ or !")]
    NotACheck(String),
    /// The words do not form an expression.
    #[error("{0}")]
    Syntax(String),
    /// A kind that would call another server.
    #[error("{0}: checks are not supported; use roles, or a proxy that calls that server")]
    Unsupported(String),
    /// Neither a literal nor an attribute of a caller.
    #[error("a caller has no attribute `{name}`; the attributes are {known}")]
    Attribute {
        /// The unknown name.
        name: String,
        /// The known names.
        known: String,
    },
    /// A malformed comparison with a field.
    #[error("`{0}`: expected field:RESOURCE:NAME=VALUE or field:RESOURCE:NAME=~EXPRESSION")]
    Field(String),
    /// A `%` that is not `%(name)s`.
    #[error("`{0}`: a % must be followed by (NAME)s or by another %")]
    Pattern(String),
}

/// The reasons why a policy is unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The file is not YAML, or not of the form `rule: text`.
    #[error("line {line}: {why}")]
    File {
        /// The line.
        line: usize,
        /// The reason.
        why: String,
    },
    /// The text of a rule is invalid.
    #[error("rule {rule}: {problem}")]
    Rule {
        /// The rule.
        rule: String,
        /// The error in it.
        problem: Problem,
    },
    /// The error is in an operator's file.
    #[error("{file}: {error}")]
    In {
        /// The file.
        file: String,
        /// The error.
        error: Box<Error>,
    },
    /// A rule that no service defines and no other rule uses: most likely misspelt.
    #[error("{0} is not a rule of any service, and no other rule uses it")]
    Unused(String),
    /// A name in a service's namespace that is not an operation.
    #[error("{0} is neither an operation nor a rule of this service")]
    UnknownOperation(String),
    /// `rule:` names an undefined rule.
    #[error("rule {rule} needs rule:{missing}, which is not defined")]
    UnknownRule {
        /// The rule.
        rule: String,
        /// The undefined name.
        missing: String,
    },
    /// A value that no target has, within a `not`: the rule would allow everybody.
    #[error(
        "rule {rule} needs %({name})s within a `not`, but no object of this service has it; the values are {known}"
    )]
    Value {
        /// The rule with its line.
        rule: String,
        /// The unknown name.
        name: String,
        /// The known names.
        known: String,
    },
    /// Rules that refer to each other in a cycle.
    #[error("rule {} refers to itself: {}", .0.first().map_or("", String::as_str), .0.join(" -> "))]
    Cycle(Vec<String>),
    /// A chain of rules that is too long.
    #[error("rule {rule} needs a chain of more than {limit} rules; replace some by their text")]
    TooLong {
        /// The first rule of the chain.
        rule: String,
        /// The limit.
        limit: usize,
    },
}

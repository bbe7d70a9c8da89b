//! Why a policy is refused.

/// What is wrong with one rule's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A word that is no check.
    #[error("`{0}` is no check; a check is KIND:VALUE, @ or !")]
    NoCheck(String),
    /// The words do not make up an expression.
    #[error("{0}")]
    Syntax(String),
    /// A kind that asks another server.
    #[error(
        "{0}: checks are not supported; say it with roles, or ask that server in front of this one"
    )]
    Unsupported(String),
    /// Neither a literal nor something that a caller has.
    #[error("a caller has no attribute `{name}`; there are {known}")]
    Attribute {
        /// What was named.
        name: String,
        /// What there is.
        known: String,
    },
    /// A comparison with a field that is none.
    #[error("`{0}`: after field: comes RESOURCE:NAME=VALUE or RESOURCE:NAME=~EXPRESSION")]
    Field(String),
    /// A `%` that is not `%(name)s`.
    #[error("`{0}`: after a % comes (NAME)s, or another %")]
    Pattern(String),
}

/// Why a policy cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is no YAML, or not of the form `rule: text`.
    #[error("line {line}: {why}")]
    File {
        /// Where.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// One rule's text is wrong.
    #[error("rule {rule}: {problem}")]
    Rule {
        /// Which rule.
        rule: String,
        /// What is wrong.
        problem: Problem,
    },
    /// What is wrong is in an operator's file.
    #[error("{file}: {error}")]
    In {
        /// Which file.
        file: String,
        /// What is wrong.
        error: Box<Error>,
    },
    /// A rule that is no service's and that no other rule uses: most likely misspelt.
    #[error("{0} is no rule of a service, and no other rule uses it")]
    Unused(String),
    /// A name that looks like an operation and is none.
    #[error("{0} is no operation and no rule of this service")]
    NoOperation(String),
    /// `rule:` names what nobody defined.
    #[error("rule {rule} needs rule:{missing}, which is not defined")]
    UnknownRule {
        /// Which rule.
        rule: String,
        /// What it names.
        missing: String,
    },
    /// Rules that need each other.
    #[error("rule {} goes in a circle: {}", .0.first().map_or("", String::as_str), .0.join(" -> "))]
    Cycle(Vec<String>),
    /// Rules that need each other in too long a row.
    #[error("rule {rule} needs more than {limit} rules in a row; write some of them out")]
    TooLong {
        /// Where the row begins.
        rule: String,
        /// How long it may be.
        limit: usize,
    },
}

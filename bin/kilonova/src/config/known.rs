//! The options that this version knows. One that is not here is refused: a misspelt option that is
//! silently ignored costs its operator a night.

/// Group and option.
pub(super) const KNOWN: &[(&str, &str)] = &[
    ("DEFAULT", "state_path"),
    ("DEFAULT", "debug"),
    ("api", "services"),
    ("api", "auth_strategy"),
    ("api", "listen"),
    ("database", "connection"),
    ("simulated", "nodes"),
];

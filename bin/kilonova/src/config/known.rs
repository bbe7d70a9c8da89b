//! The options that this version knows. One that is not here is refused: a misspelt option that is
//! silently ignored costs its operator a night.

/// Group and option.
pub(super) const KNOWN: &[(&str, &str)] = &[
    ("DEFAULT", "state_path"),
    ("DEFAULT", "debug"),
    ("api", "services"),
    ("api", "auth_strategy"),
    ("api", "listen"),
    ("cors", "allowed_origin"),
    ("cors", "allow_credentials"),
    ("cors", "expose_headers"),
    ("cors", "max_age"),
    ("cors", "allow_methods"),
    ("cors", "allow_headers"),
    ("database", "connection"),
    ("oslo_policy", "enforce_new_defaults"),
    ("oslo_policy", "enforce_scope"),
    ("oslo_policy", "policy_file"),
    ("simulated", "nodes"),
];

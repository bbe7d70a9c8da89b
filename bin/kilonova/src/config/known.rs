//! The options that this version knows. One that is not here is refused: a misspelt option that is
//! silently ignored costs its operator a night.

use super::{devices, scheduler, sources};

/// Whether there is such a group.
pub(super) fn is_known_group(group: &str) -> bool {
    KNOWN.iter().chain(&sources::KNOWN).chain(&scheduler::KNOWN).any(|(known, _)| *known == group)
        || devices::is_known_group(group)
}

/// Whether the group has such an option.
pub(super) fn is_known(group: &str, option: &str) -> bool {
    KNOWN
        .iter()
        .chain(&sources::KNOWN)
        .chain(&scheduler::KNOWN)
        .any(|known| *known == (group, option))
        || devices::is_known(group, option)
}

/// Group and option.
const KNOWN: &[(&str, &str)] = &[
    ("DEFAULT", "state_path"),
    ("DEFAULT", "debug"),
    ("DEFAULT", "allow_resize_to_same_host"),
    ("DEFAULT", "instance_build_timeout"),
    ("DEFAULT", "reclaim_instance_interval"),
    ("DEFAULT", "resize_confirm_window"),
    ("DEFAULT", "resume_guests_state_on_host_boot"),
    ("DEFAULT", "shelved_offload_time"),
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
    ("nova", "endpoint_override"),
    ("nova", "auth_type"),
    ("nova", "auth_url"),
    ("nova", "username"),
    ("nova", "password"),
    ("nova", "project_name"),
    ("nova", "user_domain_name"),
    ("nova", "project_domain_name"),
    ("nova", "token"),
    ("nova", "cafile"),
    ("nova", "insecure"),
    ("nova", "interface"),
    ("nova", "region_name"),
    ("nova", "valid_interfaces"),
    ("keystone_authtoken", "auth_type"),
    ("keystone_authtoken", "auth_url"),
    ("keystone_authtoken", "auth_version"),
    ("keystone_authtoken", "cafile"),
    ("keystone_authtoken", "delay_auth_decision"),
    ("keystone_authtoken", "insecure"),
    ("keystone_authtoken", "interface"),
    ("keystone_authtoken", "memcached_servers"),
    ("keystone_authtoken", "password"),
    ("keystone_authtoken", "project_domain_name"),
    ("keystone_authtoken", "project_name"),
    ("keystone_authtoken", "region_name"),
    ("keystone_authtoken", "service_token_roles"),
    ("keystone_authtoken", "service_token_roles_required"),
    ("keystone_authtoken", "token_cache_time"),
    ("keystone_authtoken", "user_domain_name"),
    ("keystone_authtoken", "username"),
    ("keystone_authtoken", "www_authenticate_uri"),
    ("oslo_policy", "enforce_new_defaults"),
    ("oslo_policy", "enforce_scope"),
    ("oslo_policy", "policy_file"),
    ("scheduler", "max_attempts"),
    ("simulated", "nodes"),
];

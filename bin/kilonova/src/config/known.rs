//! The known options. Any other option is refused, because a misspelled option that is silently ignored
//! is hard to find.

use kilonova_program::config::Options;

use super::{
    adapter, cinder, console, dashboard, database, glance, image, image_store, metadata, network,
    neutron, rebalance, scheduler, vendordata,
};

/// All known options.
pub(super) const KNOWN: &[&Options] = &[
    OPTIONS,
    &database::KNOWN,
    glance::KNOWN,
    adapter::VOUCHER_OPTIONS,
    cinder::KNOWN,
    vendordata::KNOWN,
    &scheduler::KNOWN,
    &rebalance::KNOWN,
    &metadata::KNOWN,
    kilonova_program::config::vendordata::KNOWN,
    &console::KNOWN,
    &dashboard::KNOWN,
    &network::KNOWN,
    neutron::KNOWN,
    &image::KNOWN,
    &image_store::KNOWN,
];

/// Pairs of group and option.
const OPTIONS: &Options = &[
    ("DEFAULT", "state_path"),
    ("DEFAULT", "debug"),
    ("DEFAULT", "log_format"),
    ("DEFAULT", "allow_resize_to_same_host"),
    ("DEFAULT", "instance_build_timeout"),
    ("DEFAULT", "max_concurrent_live_migrations"),
    ("DEFAULT", "reboot_timeout"),
    ("DEFAULT", "reclaim_instance_interval"),
    ("DEFAULT", "rescue_timeout"),
    ("DEFAULT", "resize_confirm_window"),
    ("DEFAULT", "resume_guests_state_on_host_boot"),
    ("DEFAULT", "running_deleted_instance_action"),
    ("DEFAULT", "running_deleted_instance_timeout"),
    ("DEFAULT", "shelved_offload_time"),
    ("DEFAULT", "shelved_poll_interval"),
    ("DEFAULT", "sync_power_state_interval"),
    ("accelerator", "max_unbound_requests"),
    ("api", "services"),
    ("compute", "packing_host_numa_cells_allocation_strategy"),
    ("api", "auth_strategy"),
    ("api", "cafile"),
    ("api", "cert"),
    ("api", "key"),
    ("api", "listen"),
    ("api", "max_connections"),
    ("api", "max_connections_per_address"),
    ("api", "public_endpoint"),
    ("api", "shutdown_delay"),
    ("api", "trusted_proxies"),
    ("application_credential", "user_limit"),
    ("cors", "allowed_origin"),
    ("cors", "allow_credentials"),
    ("cors", "expose_headers"),
    ("cors", "max_age"),
    ("cors", "allow_methods"),
    ("cors", "allow_headers"),
    ("credential", "auth_ttl"),
    ("fernet_tokens", "max_active_keys"),
    ("node", "certificate_days"),
    ("node", "listen"),
    ("node", "names"),
    ("node", "own_url"),
    ("node", "token"),
    ("node", "url"),
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
    ("keystone_authtoken", "application_credential_id"),
    ("keystone_authtoken", "application_credential_name"),
    ("keystone_authtoken", "application_credential_secret"),
    ("keystone_authtoken", "auth_section"),
    ("keystone_authtoken", "auth_type"),
    ("keystone_authtoken", "auth_url"),
    ("keystone_authtoken", "cafile"),
    ("keystone_authtoken", "default_domain_id"),
    ("keystone_authtoken", "default_domain_name"),
    ("keystone_authtoken", "delay_auth_decision"),
    ("keystone_authtoken", "enforce_token_bind"),
    ("keystone_authtoken", "http_connect_timeout"),
    ("keystone_authtoken", "http_request_max_retries"),
    ("keystone_authtoken", "insecure"),
    ("keystone_authtoken", "password"),
    ("keystone_authtoken", "project_domain_id"),
    ("keystone_authtoken", "project_domain_name"),
    ("keystone_authtoken", "project_id"),
    ("keystone_authtoken", "project_name"),
    ("keystone_authtoken", "service_token_roles"),
    ("keystone_authtoken", "service_token_roles_required"),
    ("keystone_authtoken", "token"),
    ("keystone_authtoken", "token_cache_time"),
    ("keystone_authtoken", "user_domain_id"),
    ("keystone_authtoken", "user_domain_name"),
    ("keystone_authtoken", "user_id"),
    ("keystone_authtoken", "username"),
    ("keystone_authtoken", "www_authenticate_uri"),
    ("oslo_policy", "accelerator_policy_file"),
    ("oslo_policy", "compute_policy_file"),
    ("oslo_middleware", "enable_proxy_headers_parsing"),
    ("oslo_policy", "enforce_new_defaults"),
    ("oslo_policy", "enforce_scope"),
    ("oslo_policy", "identity_policy_file"),
    ("oslo_policy", "image_policy_file"),
    ("oslo_policy", "network_policy_file"),
    ("oslo_policy", "placement_policy_file"),
    ("oslo_policy", "policy_file"),
    ("scheduler", "max_attempts"),
    ("seal", "key_command"),
    ("seal", "key_file"),
    ("security_compliance", "lockout_duration"),
    ("security_compliance", "lockout_failure_attempts"),
    ("simulated", "nodes"),
    ("token", "allow_expired_window"),
    ("token", "expiration"),
    ("trust", "max_redelegation_count"),
];

#[cfg(test)]
mod tests {
    use kilonova_program::config::upstream::{self, Fate, SourceFile};

    use super::KNOWN;

    #[test]
    fn the_table_of_upstreams_options_states_what_is_used() {
        let is_used = |group, option| kilonova_program::config::is_known(KNOWN, group, option);
        for one in upstream::all() {
            let known = is_used(one.group, one.name);
            let shown = format!("[{}] {}", one.group, one.name);
            match &one.fate {
                Fate::Used(users) if users.has_controller() => {
                    assert!(known, "{shown} is not read")
                }
                // The table lists cyborg.conf's [nova] as unused: only an external Nova needs it.
                _ if one.files == [SourceFile::Cyborg] && one.group == "nova" => {}
                _ => assert!(!known, "{shown} is read"),
            }
        }
    }
}

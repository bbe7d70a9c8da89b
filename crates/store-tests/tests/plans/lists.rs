//! The tables that stay small, and the statements that may scan others, each with its reason.

/// Tables whose size the operator determines, or with at most one row per host. All others grow
/// with the tenants' activity.
pub const SMALL: &[(&str, &[&str])] = &[
    (
        "one row",
        &[
            "aggregates_revision",
            "change_log_start",
            "enroll_authority",
            "image_clouds",
            "seal_current",
        ],
    ),
    (
        "objects that an administrator creates manually",
        &[
            "aggregates",
            "device_profiles",
            "enroll_authorities",
            "enroll_tokens",
            "flavor_access",
            "flavors",
            "identity_endpoints",
            "identity_groups",
            "identity_implied_roles",
            "identity_regions",
            "identity_registered_limits",
            "identity_roles",
            "identity_services",
            "identity_token_keys",
            "quota_classes",
            "resource_classes",
            "sealed_secrets",
            "traits",
        ],
    ),
    (
        "a few rows for each host",
        &[
            "aggregate_hosts",
            "divided_hosts",
            "enroll_certificates",
            "enroll_trust",
            "host_drains",
            "host_reports",
            "hosts",
            "machines",
        ],
    ),
    ("a row for each version", &["schema_migrations"]),
    ("at most 512 kinds of requests", &["scheduler_demand"]),
    ("the moves of an hour, and those in progress", &["rebalance_moves"]),
    ("one row", &["rebalance_lock"]),
    ("a row for each kind of work that one controller does", &["leases"]),
];

/// Statements that scan a growing table, and the table, by reason.
pub const WALKS: &[(&str, &[(&str, &str)])] = &[
    (
        "read whole, once, when a process starts",
        &[
            ("placement::db::providers::ALL", "resource_providers"),
            ("placement::db::trees::ALL_AGGREGATES", "provider_aggregates"),
            ("placement::db::trees::ALL_INVENTORIES", "inventories"),
            ("placement::db::trees::ALL_TRAITS", "provider_traits"),
        ],
    ),
    (
        "a page in the order of an index, which ends with its limit; a filter makes it read more \
         rows",
        &[
            ("accelerator::db::changes::LIST", "handle_changes"),
            ("accelerator::db::orders::LIST", "device_orders"),
            ("accelerator::db::excluded::MIXED_CARDS", "devices"),
            ("compute_db::server_groups::PAGE", "server_groups"),
            ("compute_db::servers::listing::BOTH_ALL", "deleted_servers"),
            ("compute_db::servers::listing::BOTH_ALL", "servers"),
            ("compute_db::servers::listing::DELETED_ALL", "deleted_servers"),
            ("compute_db::servers::listing::LIVE_ALL", "servers"),
            ("image::db::images::LIST", "images"),
            ("image::db::images::WEIGHTS", "images"),
            ("changes::db::OLD", "change_log"),
        ],
    ),
    (
        "a list without pages, as in upstream's API; in a read transaction, and the answer is as \
         large",
        &[
            ("accelerator::db::arqs::LIST", "arqs"),
            ("accelerator::db::attributes::LIST", "attributes"),
            ("accelerator::db::deployables::LIST", "deployables"),
            ("accelerator::db::deployables::LIST_NAMED", "deployables"),
            ("accelerator::db::devices::LIST", "devices"),
            ("accelerator::db::devices::LIST_FILTERED", "devices"),
            ("compute_db::server_groups::MEMBERS_OF_ALL", "servers"),
            ("identity::db::assignments::LIST", "identity_assignments"),
            ("identity::db::assignments::LIST_GROUPS", "identity_group_grants"),
            ("identity::db::assignments::LIST_MEMBERS", "identity_group_grants"),
            ("identity::db::assignments::LIST_USERS", "identity_user_grants"),
            ("identity::db::limits::ALL", "identity_limits"),
            ("identity::db::projects::LIST", "identity_projects"),
            ("identity::db::trusts::ALL", "identity_trusts"),
            ("identity::db::users::LIST", "identity_users"),
            ("image::db::images::PUBLIC", "images"),
            ("network::db::groups::LIST", "security_groups"),
            ("network::db::groups::LIST_RULES", "security_group_rules"),
            ("network::db::groups::LIST_RULES", "security_groups"),
            ("network::db::floating::LIST", "floating_ips"),
            ("network::db::networks::AVAILABLE", "networks"),
            ("network::db::networks::LIST", "networks"),
            ("network::db::ports::LIST", "ports"),
            ("network::db::quotas::ALL", "network_quotas"),
            ("network::db::routers::LIST", "routers"),
            ("network::db::subnets::LIST", "subnets"),
        ],
    ),
    (
        "counts and times of everything, which operators request; in a read transaction",
        &[
            ("accelerator::db::awaiting::BY_DEVICE", "attach_handles"),
            ("accelerator::db::census::DEVICES", "devices"),
            ("accelerator::db::census::HANDLES", "attach_handles"),
            ("accelerator::db::census::OUTBOX", "nova_events"),
            ("accelerator::db::census::REQUESTS", "arqs"),
            ("accelerator::db::health::DEVICES", "devices"),
            ("accelerator::db::health::SERVERS", "devices"),
            ("compute_db::census::SERVERS", "servers"),
            ("compute_db::clock::NEWEST", "operations"),
            ("compute_db::clock::NEWEST", "servers"),
            ("compute_db::clock::REDATE_SERVERS", "servers"),
            ("network::db::routers::LOAD", "router_places"),
            ("flow::statements::REDATE", "operations"),
        ],
    ),
    (
        "the index contains only rows in progress or waiting",
        &[
            ("accelerator::db::arqs::EXPIRE", "arqs"),
            ("accelerator::db::parked::IDLE", "attach_handles"),
            ("accelerator::db::awaiting::HOSTS", "attach_handles"),
            ("compute_db::documents::AWAITED_HOSTS", "documents"),
            ("compute_db::documents::AWAITED_HOSTS", "operations"),
            ("compute_db::stuck::CLEARING", "documents"),
            ("compute_db::volumes::attachments::AWAITED_HOSTS", "block_devices"),
            ("flow::statements::OPEN_BY_KIND", "operations"),
            ("flow::statements::OPEN_SINCE", "operations"),
            ("image::db::uploads::IN_PROGRESS", "images"),
            ("network::db::changes::ANY", "network_changes"),
            ("network::db::changes::TAKE", "network_changes"),
        ],
    ),
    (
        "an administrator creates a network, or requests all traits",
        &[
            ("network::db::networks::SEGMENTS", "networks"),
            ("placement::db::traits::ASSOCIATED", "provider_traits"),
        ],
    ),
    (
        "addresses are compared by a part of them, which no index supports; in a read transaction",
        &[
            ("compute_db::external_ports::SERVERS_AT", "external_ports"),
            ("network::db::ports::SERVERS_AT", "port_addresses"),
        ],
    ),
    ("the greatest key, at the end of the table", &[("changes::db::LAST", "change_log")]),
    (
        "an index serves it: PostgreSQL without statistics assumes that a device has hundreds of \
         parts",
        &[("accelerator::db::orders::OTHERS_ON_DEVICE", "attach_handles")],
    ),
];

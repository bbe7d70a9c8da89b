//! The tables of flavors, key pairs, hosts, quotas and server groups.

use kilonova_store::Migration;

/// Schema of everything except servers.
pub const RESOURCES: &[Migration] = &[
    BASE,
    super::machines::MACHINES,
    super::migrations_groups::GROUPS,
    super::migrations_deleted::DELETED,
    super::hosts::NAMES,
    super::hosts::ATTEMPTS,
    super::unknown_guests::UNKNOWN_GUESTS,
];

const BASE: Migration = Migration {
    name: "compute-0001-resources",
    sql: "
CREATE TABLE flavors (
    number {serial},
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL UNIQUE,
    memory_mb BIGINT NOT NULL,
    vcpus BIGINT NOT NULL,
    root_gb BIGINT NOT NULL,
    ephemeral_gb BIGINT NOT NULL,
    swap BIGINT NOT NULL,
    rxtx_factor DOUBLE PRECISION NOT NULL,
    is_public BIGINT NOT NULL,
    description TEXT,
    extra_specs TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT
);
CREATE TABLE flavor_access (
    flavor_id TEXT NOT NULL REFERENCES flavors (id),
    project_id TEXT NOT NULL,
    PRIMARY KEY (flavor_id, project_id)
);
CREATE INDEX flavor_access_by_project ON flavor_access (project_id);
CREATE TABLE keypairs (
    number {serial},
    user_id TEXT NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    public_key TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (user_id, name)
);
CREATE TABLE hosts (
    number {serial},
    id TEXT NOT NULL UNIQUE,
    host TEXT NOT NULL UNIQUE,
    root_provider TEXT NOT NULL UNIQUE,
    hypervisor_type TEXT NOT NULL,
    hypervisor_version BIGINT NOT NULL,
    host_ip TEXT NOT NULL,
    vcpus BIGINT NOT NULL,
    memory_mb BIGINT NOT NULL,
    disk_gb BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    filtered BIGINT NOT NULL DEFAULT 0,
    status TEXT NOT NULL,
    disabled_reason TEXT,
    forced_down BIGINT NOT NULL,
    last_seen BIGINT NOT NULL,
    reported_at BIGINT NOT NULL,
    clock_skew BIGINT,
    availability_zone TEXT NOT NULL DEFAULT 'nova',
    created_at BIGINT NOT NULL,
    updated_at BIGINT
);
CREATE TABLE quotas (
    project_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    resource TEXT NOT NULL,
    hard_limit BIGINT NOT NULL,
    PRIMARY KEY (project_id, user_id, resource)
);
CREATE TABLE quota_classes (
    class TEXT NOT NULL,
    resource TEXT NOT NULL,
    hard_limit BIGINT NOT NULL,
    PRIMARY KEY (class, resource)
);
CREATE TABLE quota_guards (
    scope TEXT PRIMARY KEY,
    generation BIGINT NOT NULL
);",
};

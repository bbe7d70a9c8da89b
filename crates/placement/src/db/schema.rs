//! The tables. `version` of a provider orders the commits for the in-memory copy and is incremented
//! by every write; `generation` is visible to clients and is incremented as Placement specifies.
//! `used` is stored in the inventory row so that one statement claims and returns the row to check;
//! the audit verifies that it equals the sum of the allocations. `shrunk` marks an inventory that
//! was made smaller than its usage, which is allowed: no claim caused that over-commitment.

use kilonova_store::Migration;

/// The schema migrations of this service, in order.
pub const MIGRATIONS: &[Migration] = &[
    Migration { name: "placement-0001-tables", sql: TABLES },
    Migration {
        name: "placement-0002-aggregates-as-sent",
        sql: "ALTER TABLE provider_aggregates ADD COLUMN sent TEXT",
    },
];

const TABLES: &str = "
CREATE TABLE resource_providers (
    seq {serial},
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL UNIQUE,
    parent_id TEXT,
    root_id TEXT NOT NULL,
    generation BIGINT NOT NULL,
    version BIGINT NOT NULL,
    reported BIGINT NOT NULL,
    report TEXT,
    updated_at BIGINT NOT NULL
);
CREATE INDEX resource_providers_root ON resource_providers (root_id);
CREATE INDEX resource_providers_parent ON resource_providers (parent_id);
CREATE TABLE inventories (
    provider_id TEXT NOT NULL REFERENCES resource_providers (id),
    class TEXT NOT NULL,
    total BIGINT NOT NULL,
    reserved BIGINT NOT NULL,
    min_unit BIGINT NOT NULL,
    max_unit BIGINT NOT NULL,
    step_size BIGINT NOT NULL,
    allocation_ratio DOUBLE PRECISION NOT NULL,
    used BIGINT NOT NULL,
    shrunk BIGINT NOT NULL DEFAULT 0,
    reported_reserved BIGINT,
    operator_reserved BIGINT,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (provider_id, class)
);
CREATE INDEX inventories_class ON inventories (class);
CREATE TABLE traits (
    name TEXT NOT NULL PRIMARY KEY,
    updated_at BIGINT NOT NULL
);
CREATE TABLE provider_traits (
    provider_id TEXT NOT NULL REFERENCES resource_providers (id),
    trait TEXT NOT NULL,
    custom TEXT REFERENCES traits (name),
    reported BIGINT NOT NULL,
    PRIMARY KEY (provider_id, trait)
);
CREATE INDEX provider_traits_trait ON provider_traits (trait);
CREATE INDEX provider_traits_custom ON provider_traits (custom);
CREATE TABLE provider_aggregates (
    provider_id TEXT NOT NULL REFERENCES resource_providers (id),
    aggregate TEXT NOT NULL,
    PRIMARY KEY (provider_id, aggregate)
);
CREATE TABLE resource_classes (
    name TEXT NOT NULL PRIMARY KEY,
    updated_at BIGINT NOT NULL
);
CREATE TABLE consumers (
    id TEXT NOT NULL PRIMARY KEY,
    generation BIGINT NOT NULL,
    consumer_type TEXT,
    project_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX consumers_project ON consumers (project_id, user_id);
CREATE TABLE allocations (
    consumer_id TEXT NOT NULL REFERENCES consumers (id),
    provider_id TEXT NOT NULL REFERENCES resource_providers (id),
    class TEXT NOT NULL,
    used BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (consumer_id, provider_id, class)
);
CREATE INDEX allocations_provider ON allocations (provider_id, class);
CREATE TABLE drains (
    provider_id TEXT NOT NULL PRIMARY KEY,
    at BIGINT NOT NULL
);
";

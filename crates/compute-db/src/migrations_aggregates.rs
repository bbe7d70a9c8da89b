//! The tables of host aggregates.

use kilonova_store::Migration;

/// Schema of host aggregates. A host's zone is also stored in its own row, where the scheduler
/// reads it.
pub const AGGREGATES: Migration = Migration {
    name: "compute-0200-aggregates",
    sql: "
CREATE TABLE aggregates (
    id {serial},
    uuid TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL UNIQUE,
    metadata TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT
);
CREATE TABLE aggregate_hosts (
    aggregate_id BIGINT NOT NULL REFERENCES aggregates (id),
    host TEXT NOT NULL REFERENCES hosts (host),
    PRIMARY KEY (aggregate_id, host)
);
CREATE INDEX aggregate_hosts_by_host ON aggregate_hosts (host);",
};

//! The journal's tables.

use kilonova_store::Migration;

/// Schema of the journal.
pub const MIGRATIONS: &[Migration] =
    &[OPERATIONS, Migration { name: "flow-0002-plans", sql: PLANS }, LEASES];

/// Work that one controller does at a time.
const LEASES: Migration = Migration {
    name: "flow-0003-leases",
    sql: "
CREATE TABLE leases (
    name TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);",
};

/// Indexes for open operations of a kind, and for old ones.
const PLANS: &str = "
CREATE INDEX operations_open_kind ON operations (kind, created_at) WHERE outcome = 'open';
CREATE INDEX operations_ended ON operations (updated_at) WHERE outcome <> 'open';
";

const OPERATIONS: Migration = Migration {
    name: "flow-0001-operations",
    sql: "
CREATE TABLE operations (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    open_subject TEXT UNIQUE,
    request_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    step TEXT NOT NULL,
    version BIGINT NOT NULL,
    data TEXT NOT NULL,
    outcome TEXT NOT NULL,
    message TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX operations_by_subject ON operations (subject, created_at);
CREATE INDEX operations_open ON operations (step, updated_at) WHERE outcome = 'open';
CREATE TABLE operation_events (
    seq {serial},
    operation_id TEXT NOT NULL REFERENCES operations (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    host TEXT,
    result TEXT,
    details TEXT,
    started_at BIGINT NOT NULL,
    finished_at BIGINT
);
CREATE INDEX operation_events_operation ON operation_events (operation_id, seq);",
};

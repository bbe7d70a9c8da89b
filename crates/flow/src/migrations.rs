//! The journal's tables.

use kilonova_store::Migration;

/// Schema of the journal.
pub const MIGRATIONS: &[Migration] = &[Migration {
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
CREATE TABLE operation_events (
    operation_id TEXT NOT NULL REFERENCES operations (id) ON DELETE CASCADE,
    position BIGINT NOT NULL,
    name TEXT NOT NULL,
    host TEXT,
    result TEXT,
    details TEXT,
    started_at BIGINT NOT NULL,
    finished_at BIGINT,
    PRIMARY KEY (operation_id, position)
);",
}];

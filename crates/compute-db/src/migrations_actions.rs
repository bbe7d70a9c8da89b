//! The tables behind server actions: shelved, rescued and soft-deleted servers, and questions to
//! hosts.

use kilonova_store::Migration;

/// Schema of resting servers and questions.
pub const ACTIONS: Migration = Migration {
    name: "compute-0130-actions",
    sql: "
CREATE TABLE resting (
    server_id TEXT PRIMARY KEY,
    why TEXT NOT NULL,
    image_id TEXT,
    since BIGINT NOT NULL
);
CREATE INDEX resting_by_time ON resting (why, since);
CREATE TABLE questions (
    id TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    generation BIGINT NOT NULL,
    body TEXT NOT NULL,
    answer TEXT,
    asked_at BIGINT NOT NULL
);
CREATE INDEX questions_by_host ON questions (host, generation);",
};

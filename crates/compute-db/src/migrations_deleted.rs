//! The table of deleted servers, and the columns that it got with the table of servers.

use kilonova_store::Migration;

/// Schema of deleted servers: a copy of the `servers` row and the deletion time. Lists with
/// `changes-since` and usage reports need them for a while.
pub const DELETED: Migration = Migration {
    name: "compute-0011-deleted-servers",
    sql: "
CREATE TABLE deleted_servers (
    seq BIGINT PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    project_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    name TEXT NOT NULL,
    description TEXT,
    host TEXT,
    vm_state TEXT NOT NULL,
    task_state TEXT,
    power_state BIGINT NOT NULL,
    vcpus BIGINT NOT NULL,
    memory_mb BIGINT NOT NULL,
    spec TEXT NOT NULL,
    metadata TEXT NOT NULL,
    tags TEXT NOT NULL,
    fault TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    launched_at BIGINT,
    locked_by TEXT,
    locked_reason TEXT,
    deleted_at BIGINT NOT NULL
);
CREATE INDEX deleted_servers_by_project ON deleted_servers (project_id, seq);
CREATE INDEX deleted_servers_by_time ON deleted_servers (deleted_at);",
};

/// The machine types that hosts chose for guests (Nova: `image_hw_machine_type` in the system metadata).
pub const MACHINE_TYPES: Migration = Migration {
    name: "compute-0910-machine-types",
    sql: "
ALTER TABLE servers ADD COLUMN machine_type TEXT;
ALTER TABLE deleted_servers ADD COLUMN machine_type TEXT;",
};

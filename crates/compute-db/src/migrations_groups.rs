//! The tables of server groups.

use kilonova_store::Migration;

/// Schema of server groups. The table of servers does not exist yet when this migration runs, so
/// members have no foreign key; [`super::server_groups`] considers live servers only.
pub const GROUPS: Migration = Migration {
    name: "compute-0010-server-groups",
    sql: "
CREATE TABLE server_groups (
    seq {serial},
    id TEXT NOT NULL UNIQUE,
    project_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    name TEXT NOT NULL,
    policy TEXT NOT NULL,
    max_per_host BIGINT,
    generation BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX server_groups_by_project ON server_groups (project_id, seq);
CREATE TABLE server_group_members (
    server_id TEXT PRIMARY KEY,
    group_id TEXT NOT NULL REFERENCES server_groups (id) ON DELETE CASCADE
);
CREATE INDEX server_group_members_by_group ON server_group_members (group_id);",
};

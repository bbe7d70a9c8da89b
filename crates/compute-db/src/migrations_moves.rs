//! The table of migrations.

use kilonova_store::Migration;

/// Schema of migrations. A server has at most one open migration: `open_server` is its id as long
/// as the migration can be reverted. `held_on` is the host where the migration's own consumer still
/// has a claim, or has left handles dirty.
pub const MOVES: Migration = Migration {
    name: "compute-0300-moves",
    sql: "
CREATE TABLE moves (
    number {serial},
    id TEXT NOT NULL UNIQUE,
    server_id TEXT NOT NULL,
    open_server TEXT UNIQUE,
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    source_host TEXT NOT NULL,
    dest_host TEXT,
    held_on TEXT,
    was TEXT NOT NULL,
    old_flavor TEXT NOT NULL,
    new_flavor TEXT NOT NULL,
    old_domain TEXT NOT NULL,
    progress TEXT,
    user_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX moves_by_server ON moves (server_id);
CREATE INDEX moves_by_held ON moves (server_id, held_on) WHERE held_on IS NOT NULL;",
};

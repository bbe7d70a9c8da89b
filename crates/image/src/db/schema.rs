//! The table of the image service.

use kilonova_store::Migration;

/// The schema, step by step.
pub const MIGRATIONS: &[Migration] = &[Migration {
    name: "image-1-tables",
    sql: "
CREATE TABLE images (
    id TEXT PRIMARY KEY, name TEXT, owner TEXT NOT NULL, status TEXT NOT NULL,
    visibility TEXT NOT NULL, disk_format TEXT, container_format TEXT,
    min_ram BIGINT NOT NULL, min_disk BIGINT NOT NULL, protected BIGINT NOT NULL,
    hidden BIGINT NOT NULL, size BIGINT, virtual_size BIGINT, checksum TEXT, hash TEXT,
    data TEXT UNIQUE, tags TEXT NOT NULL, properties TEXT NOT NULL,
    created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL);
CREATE INDEX images_name ON images (name);
CREATE INDEX images_owner ON images (owner);
CREATE INDEX images_order ON images (created_at, id);
",
}];

//! The tables of the image service.

use kilonova_store::Migration;

/// The schema migrations in order.
pub const MIGRATIONS: &[Migration] = &[
    Migration { name: "image-1-tables", sql: TABLES },
    Migration { name: "image-2-members", sql: MEMBERS },
    Migration { name: "image-3-stores", sql: STORES },
    Migration { name: "image-4-ids", sql: IDS },
];

const TABLES: &str = "
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
";

/// `image_owners` has a row for each project that ever had an image. Transactions that add to a project's usage write
/// this row, which serializes them.
const MEMBERS: &str = "
CREATE TABLE image_members (
    image_id TEXT NOT NULL REFERENCES images (id) ON DELETE CASCADE, member TEXT NOT NULL,
    status TEXT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
    PRIMARY KEY (image_id, member));
CREATE INDEX image_members_member ON image_members (member, status);
CREATE TABLE image_owners (owner TEXT PRIMARY KEY, changes BIGINT NOT NULL);
";

/// `store` is NULL for files that earlier versions wrote. `uploader` and `sign` describe an upload in progress: the
/// machine that receives it, and the number of its heartbeats. Earlier versions leave both NULL. `image_clouds` has one
/// row: the name of this cloud in stores that clouds may share.
const STORES: &str = "
ALTER TABLE images ADD COLUMN store TEXT;
ALTER TABLE images ADD COLUMN uploader TEXT;
ALTER TABLE images ADD COLUMN sign BIGINT;
CREATE INDEX images_saving ON images (id) WHERE status = 'saving';
CREATE TABLE image_clouds (one BIGINT PRIMARY KEY, cloud TEXT NOT NULL);
";

/// `image_ids` has the id of each image that ever existed, so that no id is used twice. Its key serializes a creation with
/// a concurrent deletion of the same id. Rows stay: one short row for each image that a project creates.
const IDS: &str = "
CREATE TABLE image_ids (id TEXT PRIMARY KEY);
INSERT INTO image_ids (id) SELECT id FROM images;
";

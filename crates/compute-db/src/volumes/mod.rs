//! The volumes of servers: the block devices, their attachments in Cinder, and the worker of each
//! server.
//!
//! `block_devices` has a row for each volume that a server has or will get. `volume_attachments` has a
//! row for each attachment; the row is written before the call to Cinder is sent. `volume_servers` has
//! a row for each server that has or had volumes. Its `due_at` is set while Cinder may differ from the
//! other rows and from the documents of the server. A worker leases the row until `taken_until`, and
//! the row's `token` fences an earlier worker. All these rows outlive the row of a deleted server until
//! Cinder has none of its attachments.
//!
//! These tables must never contain connection data: only the documents of hosts contain it.

use kilonova_store::Migration;

macro_rules! words {
    ($(#[$doc:meta])* $type:ident { $($(#[$member_doc:meta])* $name:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $type { $($(#[$member_doc])* $name,)* }

        impl $type {
            /// The word in the column.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            fn parse(text: &str) -> Result<Self, Error> {
                match text {
                    $($text => Ok(Self::$name),)*
                    other => Err(shape(format!(
                        concat!(stringify!($type), " of a volume: {:?}"), other
                    ))),
                }
            }
        }
    };
}

pub mod attachments;
pub mod devices;
pub mod servers;

pub use attachments::{
    Answered, AttachmentRow, Plug, RowId, State, add_attachment, attachments, awaited_hosts,
    connector, expect_attachments, forget_attachment, set_attachment, set_connector, set_plug,
};
pub use devices::{
    BlockDevice, Phase, Source, add, end_reimage, expect_of_server, forget, forget_in, of_server,
    of_servers, reimage, reimages, servers_with, set_delete, set_operation, set_phase, set_sent,
    set_size, set_volume,
};
pub use servers::{
    Taken, add_server, ask_has_any, ask_nudge, due, end, end_leases, forget_settled, give_back,
    has_any, renew, settle, take, take_or_add,
};

/// Adds the tables, the marker of documents that wait for volumes, and the connectors of hosts.
pub const VOLUMES: Migration = Migration {
    name: "compute-0730-volumes",
    sql: "
CREATE TABLE block_devices (
    id TEXT PRIMARY KEY,
    server_id TEXT NOT NULL,
    ordinal BIGINT NOT NULL,
    phase TEXT NOT NULL,
    volume_id TEXT,
    source TEXT NOT NULL,
    source_id TEXT,
    size_gb BIGINT NOT NULL,
    volume_type TEXT,
    zone TEXT,
    device TEXT NOT NULL,
    bus TEXT NOT NULL,
    medium TEXT,
    boot_index BIGINT,
    tag TEXT,
    is_shared BIGINT NOT NULL DEFAULT 0,
    delete_on_termination BIGINT NOT NULL DEFAULT 0,
    error TEXT,
    is_sent BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL
);
CREATE INDEX block_devices_by_server ON block_devices (server_id, ordinal);
CREATE UNIQUE INDEX block_devices_by_volume ON block_devices (volume_id, server_id);
CREATE TABLE volume_attachments (
    id TEXT PRIMARY KEY,
    server_id TEXT NOT NULL,
    device_id TEXT NOT NULL,
    volume_id TEXT NOT NULL,
    attachment_id TEXT,
    host TEXT,
    state TEXT NOT NULL,
    plug TEXT NOT NULL DEFAULT 'none',
    ordinal BIGINT NOT NULL
);
CREATE INDEX volume_attachments_by_server ON volume_attachments (server_id, ordinal);
CREATE TABLE volume_servers (
    server_id TEXT PRIMARY KEY,
    project_id TEXT NOT NULL,
    is_gone BIGINT NOT NULL DEFAULT 0,
    attempts BIGINT NOT NULL DEFAULT 0,
    due_at BIGINT,
    taken_until BIGINT NOT NULL DEFAULT 0,
    token TEXT
);
CREATE INDEX volume_servers_due ON volume_servers (due_at) WHERE due_at IS NOT NULL;
ALTER TABLE documents ADD COLUMN lacks_volumes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE hosts ADD COLUMN connector TEXT;",
};

/// Adds the column for the image that replaces the data of a root volume.
pub const REIMAGED: Migration = Migration {
    name: "compute-0770-reimaged-volumes",
    sql: "ALTER TABLE block_devices ADD COLUMN reimage TEXT",
};

/// Adds the column for the action of a volume that has not ended yet.
pub const ACTIONS: Migration = Migration {
    name: "compute-0890-volume-actions",
    sql: "ALTER TABLE block_devices ADD COLUMN operation TEXT",
};

//! The volumes of servers: the block devices, their attachments in Cinder, and the worker of each
//! server.
//!
//! `block_devices` has a row for each volume that a server has or gets, `volume_attachments` one
//! for each attachment, which is written before its call is sent, and `volume_servers` one for each
//! server that has or had any. Its `due_at` is set while Cinder may differ from the other rows and
//! from the documents of the server; a worker leases it until `taken_until`, and its `token` fences
//! an earlier worker. The rows outlive the server's until Cinder has none of its attachments.
//!
//! Connection data is in no row: only the documents of hosts have it.

use std::collections::HashMap;

use jiff::Timestamp;
use kilonova_ids::{
    AttachmentId, BlockDeviceId, HostName, ImageId, ServerId, SnapshotId, VolumeId,
};
use kilonova_node_api::{Bus, Medium};
use kilonova_store::{Asked, Migration, Row, Tx, Value, listed, params};

use super::servers::shape;
use crate::Error;

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

/// Adds the image that replaces the data of a root volume.
pub const REIMAGED: Migration = Migration {
    name: "compute-0770-reimaged-volumes",
    sql: "ALTER TABLE block_devices ADD COLUMN reimage TEXT",
};

/// The columns of a device.
macro_rules! device {
    () => {
        "id, server_id, ordinal, phase, volume_id, source, source_id, size_gb, volume_type, zone, device,
        bus, medium, boot_index, tag, is_shared, delete_on_termination, error, created_at, reimage"
    };
}

kilonova_store::statements! {
    /// Adds a device.
    ADD = concat!("INSERT INTO block_devices (", device!(), ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8,
        ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)");
    /// The devices of a server.
    OF_SERVER = concat!("SELECT ", device!(), " FROM block_devices WHERE server_id = ?1 ORDER BY ordinal");
    /// The devices of servers.
    OF_SERVERS = concat!("SELECT ", device!(), " FROM block_devices WHERE server_id IN ({})
        ORDER BY server_id, ordinal");
    /// Moves a device from one phase to another.
    SET_PHASE = "UPDATE block_devices SET phase = ?3, error = ?4 WHERE id = ?1 AND phase = ?2
        RETURNING id";
    /// Records the volume that was created for a device.
    SET_VOLUME = "UPDATE block_devices SET volume_id = ?2, size_gb = ?3, is_shared = ?4 WHERE id = ?1
        RETURNING id";
    /// Records that the creation of a volume is about to be sent. No row if it may have been sent
    /// before.
    SET_SENT = "UPDATE block_devices SET is_sent = 1 WHERE id = ?1 AND is_sent = 0 RETURNING id";
    /// Cinder replaces the data of a volume next.
    REIMAGE = "UPDATE block_devices SET phase = 'reimaging', reimage = ?2, error = NULL WHERE id = ?1
        AND phase = 'attached' RETURNING id";
    /// A row if the data of a volume are to be replaced by this image's.
    REIMAGES = "SELECT id FROM block_devices WHERE id = ?1 AND phase = 'reimaging' AND reimage = ?2";
    /// The server has its volumes again.
    END_REIMAGE = "UPDATE block_devices SET phase = 'attached', reimage = NULL, error = ?2
        WHERE server_id = ?1 AND phase = 'reimaging'";
    /// Sets whether a volume is deleted with its server.
    SET_DELETE = "UPDATE block_devices SET delete_on_termination = ?2 WHERE id = ?1";
    /// Sets the size of a volume.
    SET_SIZE = "UPDATE block_devices SET size_gb = ?2 WHERE id = ?1";
    /// Deletes a device's row.
    FORGET = "DELETE FROM block_devices WHERE id = ?1";
    /// Adds an attachment that is about to be reserved, or connected at once.
    ADD_ATTACHMENT = "INSERT INTO volume_attachments (id, server_id, device_id, volume_id, state, ordinal,
        host) VALUES (?1, ?2, ?3, ?4, 'reserving', ?5, ?6)";
    /// The attachments of a server.
    ATTACHMENTS = "SELECT id, server_id, device_id, volume_id, attachment_id, host, state, plug
        FROM volume_attachments WHERE server_id = ?1 ORDER BY ordinal, id";
    /// Records the answer to a call, if the attachment still waits for it.
    SET_ATTACHMENT = "UPDATE volume_attachments SET attachment_id = ?3, host = ?4, state = ?5
        WHERE id = ?1 AND state = ?2 RETURNING id";
    /// Records whether a guest has the disk of an attachment.
    SET_PLUG = "UPDATE volume_attachments SET plug = ?2 WHERE id = ?1";
    /// Deletes an attachment's row.
    FORGET_ATTACHMENT = "DELETE FROM volume_attachments WHERE id = ?1";
    /// Leases a server to a worker until a time; adds the server if it has no row.
    TAKE_OR_ADD = "INSERT INTO volume_servers (server_id, project_id, due_at, taken_until, token)
        VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (server_id) DO UPDATE SET due_at = excluded.due_at,
        taken_until = excluded.taken_until, token = excluded.token
        WHERE volume_servers.taken_until <= ?3 RETURNING server_id";
    /// Adds a server that is due.
    ADD_SERVER = "INSERT INTO volume_servers (server_id, project_id, due_at) VALUES (?1, ?2, ?3)";
    /// Takes a server that is due.
    TAKE = "UPDATE volume_servers SET taken_until = ?3, token = ?4 WHERE server_id = ?1
        AND due_at <= ?2 AND taken_until <= ?2 RETURNING project_id, is_gone, attempts, due_at";
    /// Shortens the leases of a controller: its workers' tokens begin with its id, which has 36 characters. A
    /// leased server is due.
    END_LEASES = "UPDATE volume_servers SET taken_until = ?2 WHERE due_at >= 0 AND taken_until > ?2
        AND SUBSTR(token, 1, 36) = ?1";
    /// Renews the lease of a server.
    RENEW = "UPDATE volume_servers SET taken_until = ?3 WHERE server_id = ?1 AND token = ?2
        RETURNING due_at, is_gone";
    /// Records that Cinder matches the rows, unless something changed since `due_at` was read.
    SETTLE = "UPDATE volume_servers SET due_at = NULL, taken_until = 0, attempts = 0
        WHERE server_id = ?1 AND token = ?2 AND due_at = ?3 RETURNING server_id";
    /// Ends the lease of a server, which is due again at a time.
    GIVE_BACK = "UPDATE volume_servers SET taken_until = 0, attempts = ?4,
        due_at = CASE WHEN due_at = ?3 OR due_at IS NULL THEN ?5 ELSE due_at END
        WHERE server_id = ?1 AND token = ?2";
    /// Makes a server due because something changed.
    NUDGE = "UPDATE volume_servers SET due_at = ?2, attempts = 0 WHERE server_id = ?1
        RETURNING server_id";
    /// Records that the server is gone.
    END = "UPDATE volume_servers SET is_gone = 1, due_at = ?2, attempts = 0 WHERE server_id = ?1
        RETURNING server_id";
    /// Deletes the row of a server that no worker leases.
    FORGET_SERVER = "DELETE FROM volume_servers WHERE server_id = ?1 AND taken_until = 0
        AND due_at IS NULL";
    /// The servers that are due and that no worker leases.
    DUE = "SELECT server_id FROM volume_servers WHERE due_at <= ?1 AND taken_until <= ?1
        ORDER BY due_at LIMIT 100";
    /// The connector of a host.
    CONNECTOR = "SELECT connector FROM hosts WHERE host = ?1";
    /// Sets it.
    SET_CONNECTOR = "UPDATE hosts SET connector = ?2 WHERE host = ?1";
}

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

words! {
    /// The phase of a block device.
    Phase {
        /// Its request is not complete: the volume is not reserved.
        Requested = "requested",
        /// The volume is being attached.
        Attaching = "attaching",
        /// The volume is attached.
        Attached = "attached",
        /// A detachment was requested, and Cinder may not know.
        BeginDetaching = "begin_detaching",
        /// The volume is being detached.
        Detaching = "detaching",
        /// The guest has refused to release the volume, and Cinder may not know.
        RollDetaching = "roll_detaching",
        /// Cinder replaces the data of the volume: no guest has it meanwhile.
        Reimaging = "reimaging",
        /// The volume cannot be attached: its attachment is being deleted.
        Failed = "failed",
    }
}

words! {
    /// The state of an attachment.
    State {
        /// Its reservation was sent, and may have been carried out; with a host, its connection too.
        Reserving = "reserving",
        /// Cinder has it, without a host.
        Reserved = "reserved",
        /// Its host was sent, and may be connected.
        Connecting = "connecting",
        /// Cinder has connected its host.
        Connected = "connected",
        /// Cinder knows that the server uses the volume.
        Complete = "complete",
        /// It is being deleted.
        Ending = "ending",
    }
}

words! {
    /// The disk of an attachment on its host.
    Plug {
        /// No document ever had it.
        None = "none",
        /// A document has it, or the host has not yet reported on the document without it.
        Given = "given",
        /// The host reported the disk.
        Plugged = "plugged",
        /// The host reported that it is disconnected.
        Unplugged = "unplugged",
    }
}

/// The source of a device's volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A volume that existed before.
    Volume,
    /// A new volume, created from an image.
    Image(ImageId),
    /// A new volume, created from a snapshot.
    Snapshot(SnapshotId),
    /// A new, empty volume.
    Blank,
}

impl Source {
    fn word(self) -> &'static str {
        match self {
            Self::Volume => "volume",
            Self::Image(_) => "image",
            Self::Snapshot(_) => "snapshot",
            Self::Blank => "blank",
        }
    }

    fn id(self) -> Option<String> {
        match self {
            Self::Image(id) => Some(id.to_string()),
            Self::Snapshot(id) => Some(id.to_string()),
            Self::Volume | Self::Blank => None,
        }
    }
}

/// A volume that a server has or gets (Nova's block device mapping).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockDevice {
    /// Its id (`bdm_uuid`).
    pub id: BlockDeviceId,
    /// The server.
    pub server: ServerId,
    /// Its place among the server's devices.
    pub ordinal: i64,
    /// Its state.
    pub phase: Phase,
    /// The volume; none before it is created.
    pub volume: Option<VolumeId>,
    /// Where the volume comes from.
    pub source: Source,
    /// GiB.
    pub size_gb: i64,
    /// The type of a volume to create.
    pub volume_type: Option<String>,
    /// The zone of a volume to create.
    pub zone: Option<String>,
    /// The name of the disk, without a directory.
    pub device: String,
    /// The bus of the disk.
    pub bus: Bus,
    /// The type of the disk.
    pub medium: Option<Medium>,
    /// Its place in the boot order.
    pub boot_index: Option<i64>,
    /// The tag shown to the guest.
    pub tag: Option<String>,
    /// True if other servers may have it too.
    pub is_shared: bool,
    /// True if the volume is deleted with the server.
    pub delete_on_termination: bool,
    /// The reason of its phase, for its instance action.
    pub error: Option<String>,
    /// When its row was written.
    pub created_at: Timestamp,
    /// The image that replaces its data.
    pub reimage: Option<ImageId>,
}

impl BlockDevice {
    /// True if it is the root disk.
    pub fn is_root(&self) -> bool {
        self.boot_index == Some(0)
    }
}

/// The id of an attachment's row, which it has before Cinder gives it one.
pub type RowId = BlockDeviceId;

/// An attachment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachmentRow {
    /// The id of the row.
    pub id: RowId,
    /// The server.
    pub server: ServerId,
    /// The device.
    pub device: BlockDeviceId,
    /// The volume.
    pub volume: VolumeId,
    /// Its id in Cinder; none before the answer.
    pub attachment: Option<AttachmentId>,
    /// The host that is connected.
    pub host: Option<HostName>,
    /// Its state.
    pub state: State,
    /// The disk on that host.
    pub plug: Plug,
}

/// The row of a server as leased by its worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The server.
    pub server: ServerId,
    /// Its project.
    pub project_id: String,
    /// True if the server is gone.
    pub is_gone: bool,
    /// Failed attempts since the last change.
    pub attempts: i64,
    /// The time of the change that the worker processes.
    pub due_at: Timestamp,
    /// The token that fences earlier workers.
    pub token: String,
}

/// Adds a device.
///
/// # Errors
/// Store errors only, among them a conflict with the same volume of the same server; also for all
/// functions below.
pub fn add(tx: &mut Tx<'_>, device: &BlockDevice) -> Result<(), Error> {
    tx.defer(
        ADD,
        params![
            device.id,
            device.server,
            device.ordinal,
            device.phase.as_str(),
            device.volume,
            device.source.word(),
            device.source.id(),
            device.size_gb,
            device.volume_type.clone(),
            device.zone.clone(),
            &device.device,
            device.bus.as_str(),
            device.medium.map(Medium::as_str),
            device.boot_index,
            device.tag.clone(),
            device.is_shared,
            device.delete_on_termination,
            device.error.clone(),
            device.created_at,
            device.reimage,
        ],
    )?;
    Ok(())
}

/// Announces [`of_server`].
pub fn expect_of_server(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    Ok(tx.expect(OF_SERVER, params![server])?)
}

/// The devices of a server, in order.
pub fn of_server(tx: &mut Tx<'_>, server: ServerId) -> Result<Vec<BlockDevice>, Error> {
    tx.rows(OF_SERVER, params![server])?.iter().map(read).collect()
}

/// The devices of servers, by server and in order.
pub fn of_servers(
    tx: &mut Tx<'_>,
    servers: &[ServerId],
) -> Result<HashMap<ServerId, Vec<BlockDevice>>, Error> {
    let mut found: HashMap<ServerId, Vec<BlockDevice>> = HashMap::new();
    for some in servers.chunks(100) {
        let values: Vec<Value> = some.iter().map(|id| Value::from(*id)).collect();
        for row in tx.rows(&listed(OF_SERVERS, some.len()), &values)? {
            let device = read(&row)?;
            found.entry(device.server).or_default().push(device);
        }
    }
    Ok(found)
}

/// Moves a device from one phase to another, with the reason. False if it is not in the first.
pub fn set_phase(
    tx: &mut Tx<'_>,
    device: BlockDeviceId,
    from: Phase,
    to: Phase,
    error: Option<&str>,
) -> Result<bool, Error> {
    let values = params![device, from.as_str(), to.as_str(), error];
    Ok(tx.row(SET_PHASE, values)?.is_some())
}

/// Records the volume that was created for a device. False if the device is gone.
pub fn set_volume(
    tx: &mut Tx<'_>,
    device: BlockDeviceId,
    volume: VolumeId,
    size_gb: i64,
    is_shared: bool,
) -> Result<bool, Error> {
    Ok(tx.row(SET_VOLUME, params![device, volume, size_gb, is_shared])?.is_some())
}

/// Records that the creation of a volume is about to be sent. False if it may have been sent before.
pub fn set_sent(tx: &mut Tx<'_>, device: BlockDeviceId) -> Result<bool, Error> {
    Ok(tx.row(SET_SENT, params![device])?.is_some())
}

/// Records that the data of a volume are replaced by an image's next. False unless the server has it, and it
/// does not change.
pub fn reimage(tx: &mut Tx<'_>, device: BlockDeviceId, image: ImageId) -> Result<bool, Error> {
    Ok(tx.row(REIMAGE, params![device, image])?.is_some())
}

/// True if the data of a volume are still to be replaced by this image's.
pub fn reimages(tx: &mut Tx<'_>, device: BlockDeviceId, image: ImageId) -> Result<bool, Error> {
    Ok(tx.row(REIMAGES, params![device, image])?.is_some())
}

/// The server has its volumes again whose data were to be replaced; `error` says why they were not. False if
/// there were none.
pub fn end_reimage(tx: &mut Tx<'_>, server: ServerId, error: Option<&str>) -> Result<bool, Error> {
    Ok(tx.execute(END_REIMAGE, params![server, error])? > 0)
}

/// Sets whether a volume is deleted with its server.
pub fn set_delete(tx: &mut Tx<'_>, device: BlockDeviceId, delete: bool) -> Result<(), Error> {
    tx.defer(SET_DELETE, params![device, delete])?;
    Ok(())
}

/// Sets the size of a volume.
pub fn set_size(tx: &mut Tx<'_>, device: BlockDeviceId, size_gb: i64) -> Result<(), Error> {
    tx.defer(SET_SIZE, params![device, size_gb])?;
    Ok(())
}

/// Deletes a device's row.
pub fn forget(tx: &mut Tx<'_>, device: BlockDeviceId) -> Result<(), Error> {
    tx.defer(FORGET, params![device])?;
    Ok(())
}

/// Adds an attachment of a device that is about to be reserved; with a host, it is about to be connected too.
pub fn add_attachment(
    tx: &mut Tx<'_>,
    id: RowId,
    device: &BlockDevice,
    volume: VolumeId,
    host: Option<&HostName>,
) -> Result<(), Error> {
    let values = params![id, device.server, device.id, volume, device.ordinal, host];
    tx.defer(ADD_ATTACHMENT, values)?;
    Ok(())
}

/// Announces [`attachments`].
pub fn expect_attachments(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    Ok(tx.expect(ATTACHMENTS, params![server])?)
}

/// The attachments of a server, in the order of its devices.
pub fn attachments(tx: &mut Tx<'_>, server: ServerId) -> Result<Vec<AttachmentRow>, Error> {
    tx.rows(ATTACHMENTS, params![server])?.iter().map(read_attachment).collect()
}

/// The state of an attachment after an answer of Cinder.
#[derive(Debug, Clone)]
pub struct Answered<'a> {
    /// Its id in Cinder.
    pub attachment: Option<AttachmentId>,
    /// Its host.
    pub host: Option<&'a HostName>,
    /// Its state.
    pub state: State,
}

/// Records the new state of an attachment that is in a given state. False if it is in another one,
/// or gone.
pub fn set_attachment(
    tx: &mut Tx<'_>,
    id: RowId,
    from: State,
    to: &Answered<'_>,
) -> Result<bool, Error> {
    let host = to.host.map(HostName::as_str);
    let values = params![id, from.as_str(), to.attachment, host, to.state.as_str()];
    Ok(tx.row(SET_ATTACHMENT, values)?.is_some())
}

/// Records whether a guest has the disk of an attachment.
pub fn set_plug(tx: &mut Tx<'_>, id: RowId, plug: Plug) -> Result<(), Error> {
    tx.defer(SET_PLUG, params![id, plug.as_str()])?;
    Ok(())
}

/// Deletes an attachment's row.
pub fn forget_attachment(tx: &mut Tx<'_>, id: RowId) -> Result<(), Error> {
    tx.defer(FORGET_ATTACHMENT, params![id])?;
    Ok(())
}

/// Leases a server until a time; adds it if it has no row. False if another worker leases it.
pub fn take_or_add(
    tx: &mut Tx<'_>,
    server: ServerId,
    project_id: &str,
    now: Timestamp,
    until: Timestamp,
    token: &str,
) -> Result<bool, Error> {
    let values = params![server, project_id, now, until, token];
    Ok(tx.row(TAKE_OR_ADD, values)?.is_some())
}

/// Adds a server that is due.
pub fn add_server(
    tx: &mut Tx<'_>,
    server: ServerId,
    project_id: &str,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(ADD_SERVER, params![server, project_id, now])?;
    Ok(())
}

/// Leases a server that is due, until a time. `None` if it is not due or another worker leases it.
pub fn take(
    tx: &mut Tx<'_>,
    server: ServerId,
    now: Timestamp,
    until: Timestamp,
    token: &str,
) -> Result<Option<Taken>, Error> {
    let Some(row) = tx.row(TAKE, params![server, now, until, token])? else { return Ok(None) };
    Ok(Some(Taken {
        server,
        project_id: row.string("project_id")?,
        is_gone: row.bool("is_gone")?,
        attempts: row.int("attempts")?,
        due_at: row.time("due_at")?,
        token: token.to_owned(),
    }))
}

/// Shortens the leases of a controller to a time. The tokens of its workers begin with its id.
pub fn end_leases(tx: &mut Tx<'_>, controller: &str, until: Timestamp) -> Result<(), Error> {
    tx.defer(END_LEASES, params![controller, until])?;
    Ok(())
}

/// Renews the lease of a server and returns its present row. `None` if another worker has taken it.
pub fn renew(tx: &mut Tx<'_>, taken: &Taken, until: Timestamp) -> Result<Option<Taken>, Error> {
    let values = params![taken.server, taken.token.as_str(), until];
    let Some(row) = tx.row(RENEW, values)? else { return Ok(None) };
    let due_at = row.time_opt("due_at")?.unwrap_or(taken.due_at);
    Ok(Some(Taken { is_gone: row.bool("is_gone")?, due_at, ..taken.clone() }))
}

/// Records that Cinder matches the rows. False if something has changed since.
pub fn settle(tx: &mut Tx<'_>, taken: &Taken) -> Result<bool, Error> {
    let values = params![taken.server, taken.token.as_str(), taken.due_at];
    Ok(tx.row(SETTLE, values)?.is_some())
}

/// Ends the lease of a server, with the time at which it is due again and the number of failed
/// attempts.
pub fn give_back(
    tx: &mut Tx<'_>,
    taken: &Taken,
    attempts: i64,
    due: Timestamp,
) -> Result<(), Error> {
    let values = params![taken.server, taken.token.as_str(), taken.due_at, attempts, due];
    tx.defer(GIVE_BACK, values)?;
    Ok(())
}

/// Asks to record that something changed for a server; the answer has a row if it has volumes.
pub fn ask_nudge(tx: &mut Tx<'_>, server: ServerId, now: Timestamp) -> Result<Asked, Error> {
    Ok(tx.ask(NUDGE, params![server, now])?)
}

/// Asks to record that a server is gone; the answer has a row if it had volumes.
pub fn ask_end(tx: &mut Tx<'_>, server: ServerId, now: Timestamp) -> Result<Asked, Error> {
    Ok(tx.ask(END, params![server, now])?)
}

/// Deletes the row of a server without devices and attachments, once it is settled.
pub fn forget_settled(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    tx.defer(FORGET_SERVER, params![server])?;
    Ok(())
}

/// At most a hundred servers that are due.
pub fn due(tx: &mut Tx<'_>, now: Timestamp) -> Result<Vec<ServerId>, Error> {
    tx.rows(DUE, params![now])?.iter().map(|row| Ok(row.id("server_id")?)).collect()
}

/// The connector of a host, as JSON.
pub fn connector(tx: &mut Tx<'_>, host: &HostName) -> Result<Option<String>, Error> {
    let Some(row) = tx.row(CONNECTOR, params![host])? else { return Ok(None) };
    Ok(row.string_opt("connector")?)
}

/// Records the connector of a host.
pub fn set_connector(
    tx: &mut Tx<'_>,
    host: &HostName,
    connector: Option<&str>,
) -> Result<(), Error> {
    tx.defer(SET_CONNECTOR, params![host, connector])?;
    Ok(())
}

fn bus(word: &str) -> Result<Bus, Error> {
    Bus::parse(word).ok_or_else(|| shape(format!("bus of a volume: {word:?}")))
}

fn medium(word: &str) -> Result<Medium, Error> {
    Medium::parse(word).ok_or_else(|| shape(format!("medium of a volume: {word:?}")))
}

fn read(row: &Row) -> Result<BlockDevice, Error> {
    let source = match row.text("source")? {
        "volume" => Source::Volume,
        "image" => Source::Image(row.id("source_id")?),
        "snapshot" => Source::Snapshot(row.id("source_id")?),
        "blank" => Source::Blank,
        other => return Err(shape(format!("source of a volume: {other:?}"))),
    };
    Ok(BlockDevice {
        id: row.id("id")?,
        server: row.id("server_id")?,
        ordinal: row.int("ordinal")?,
        phase: Phase::parse(row.text("phase")?)?,
        volume: row.id_opt("volume_id")?,
        source,
        size_gb: row.int("size_gb")?,
        volume_type: row.string_opt("volume_type")?,
        zone: row.string_opt("zone")?,
        device: row.string("device")?,
        bus: bus(row.text("bus")?)?,
        medium: row.text_opt("medium")?.map(medium).transpose()?,
        boot_index: row.int_opt("boot_index")?,
        tag: row.string_opt("tag")?,
        is_shared: row.bool("is_shared")?,
        delete_on_termination: row.bool("delete_on_termination")?,
        error: row.string_opt("error")?,
        created_at: row.time("created_at")?,
        reimage: row.id_opt("reimage")?,
    })
}

fn read_attachment(row: &Row) -> Result<AttachmentRow, Error> {
    Ok(AttachmentRow {
        id: row.id("id")?,
        server: row.id("server_id")?,
        device: row.id("device_id")?,
        volume: row.id("volume_id")?,
        attachment: row.id_opt("attachment_id")?,
        host: row.host_opt("host")?,
        state: State::parse(row.text("state")?)?,
        plug: Plug::parse(row.text("plug")?)?,
    })
}

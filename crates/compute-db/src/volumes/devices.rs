//! The block devices of servers.

use std::collections::HashMap;

use jiff::Timestamp;
use kilonova_ids::{BlockDeviceId, ImageId, OperationId, ServerId, SnapshotId, VolumeId};
use kilonova_node_api::{Bus, Medium};
use kilonova_store::{Row, Tx, Value, listed, params};

use crate::Error;
use crate::servers::shape;

/// The columns of a device.
macro_rules! device {
    () => {
        "id, server_id, ordinal, phase, volume_id, source, source_id, size_gb, volume_type, zone, device,
        bus, medium, boot_index, tag, is_shared, delete_on_termination, error, created_at, reimage,
        operation"
    };
}

kilonova_store::statements! {
    /// Adds a device.
    ADD = concat!("INSERT INTO block_devices (", device!(), ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8,
        ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)");
    /// The devices of a server.
    OF_SERVER = concat!("SELECT ", device!(), " FROM block_devices WHERE server_id = ?1 ORDER BY ordinal");
    /// The devices of servers.
    OF_SERVERS = concat!("SELECT ", device!(), " FROM block_devices WHERE server_id IN ({})
        ORDER BY server_id, ordinal");
    /// The servers that have volumes. A volume that is not reserved yet does not count, and neither does one that a
    /// server is releasing: Cinder decides when it is free. `CROSS JOIN` fixes SQLite's order of tables.
    SERVERS_WITH = "SELECT d.volume_id, d.server_id FROM block_devices d CROSS JOIN volume_servers s
        WHERE d.volume_id IN ({}) AND d.phase NOT IN ('requested', 'detaching', 'failed')
        AND s.server_id = d.server_id AND s.is_gone = 0 AND EXISTS (SELECT 1 FROM volume_attachments a
        WHERE a.server_id = d.server_id AND a.device_id = d.id) ORDER BY d.volume_id, d.server_id";
    /// Moves a device from one phase to another.
    SET_PHASE = "UPDATE block_devices SET phase = ?3, error = ?4 WHERE id = ?1 AND phase = ?2
        RETURNING id";
    /// Records the volume that was created for a device.
    SET_VOLUME = "UPDATE block_devices SET volume_id = ?2, size_gb = ?3, is_shared = ?4 WHERE id = ?1
        RETURNING id";
    /// Records that the request to create a volume is about to be sent. No row if it may have been sent
    /// before.
    SET_SENT = "UPDATE block_devices SET is_sent = 1 WHERE id = ?1 AND is_sent = 0 RETURNING id";
    /// Records that a volume is about to be re-imaged.
    REIMAGE = "UPDATE block_devices SET phase = 'reimaging', reimage = ?2, error = NULL WHERE id = ?1
        AND phase = 'attached' RETURNING id";
    /// A row if this image is replacing the data of a volume.
    REIMAGES = "SELECT id FROM block_devices WHERE id = ?1 AND phase = 'reimaging' AND reimage = ?2";
    /// Ends the re-imaging of a server's volumes.
    END_REIMAGE = "UPDATE block_devices SET phase = 'attached', reimage = NULL, error = ?2
        WHERE server_id = ?1 AND phase = 'reimaging'";
    /// Sets whether a volume is deleted with its server.
    SET_DELETE = "UPDATE block_devices SET delete_on_termination = ?2 WHERE id = ?1";
    /// Sets the recorded action that has not ended yet.
    SET_OPERATION = "UPDATE block_devices SET operation = ?2 WHERE id = ?1";
    /// Sets the size of a volume.
    SET_SIZE = "UPDATE block_devices SET size_gb = ?2 WHERE id = ?1";
    /// Deletes a device's row.
    FORGET = "DELETE FROM block_devices WHERE id = ?1";
    /// Deletes the row of a device in a phase.
    FORGET_IN = "DELETE FROM block_devices WHERE id = ?1 AND phase = ?2";
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
        /// A detachment was requested, and Cinder may not have been notified.
        BeginDetaching = "begin_detaching",
        /// The volume is being detached.
        Detaching = "detaching",
        /// The guest has refused to release the volume, and Cinder may not have been notified.
        RollDetaching = "roll_detaching",
        /// Cinder is replacing the data of the volume, which no guest uses meanwhile.
        Reimaging = "reimaging",
        /// The volume cannot be attached: its attachment is being deleted.
        Failed = "failed",
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
    /// Its index among the server's devices.
    pub ordinal: i64,
    /// Its state.
    pub phase: Phase,
    /// The volume; none before it is created.
    pub volume: Option<VolumeId>,
    /// Where the volume comes from.
    pub source: Source,
    /// Its size in GiB.
    pub size_gb: i64,
    /// The type of a volume to create.
    pub volume_type: Option<String>,
    /// The zone of a volume to create.
    pub zone: Option<String>,
    /// The name of the disk, without `/dev/`.
    pub device: String,
    /// The bus of the disk.
    pub bus: Bus,
    /// The type of the disk.
    pub medium: Option<Medium>,
    /// Its place in the boot order.
    pub boot_index: Option<i64>,
    /// The tag shown to the guest.
    pub tag: Option<String>,
    /// True if the volume is multiattach (Cinder).
    pub is_shared: bool,
    /// True if the volume is deleted with the server.
    pub delete_on_termination: bool,
    /// The error that led to its phase. The service stores it for operators, and never reads it.
    pub error: Option<String>,
    /// When its row was written.
    pub created_at: Timestamp,
    /// The image that is replacing its data.
    pub reimage: Option<ImageId>,
    /// The recorded action that attaches, detaches or extends it and has not ended yet.
    pub operation: Option<OperationId>,
}

impl BlockDevice {
    /// True if it is the root disk.
    pub fn is_root(&self) -> bool {
        self.boot_index == Some(0)
    }
}

/// Adds a device.
///
/// # Errors
/// Store errors only, including a unique violation if the server already has the volume; also for
/// all functions below.
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
            device.operation,
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

/// The servers that have volumes and are not releasing them, by volume.
pub fn servers_with(
    tx: &mut Tx<'_>,
    volumes: &[VolumeId],
) -> Result<Vec<(VolumeId, ServerId)>, Error> {
    let mut found = Vec::new();
    for some in volumes.chunks(100) {
        let values: Vec<Value> = some.iter().map(|id| Value::from(*id)).collect();
        for row in tx.rows(&listed(SERVERS_WITH, some.len()), &values)? {
            found.push((row.id("volume_id")?, row.id("server_id")?));
        }
    }
    Ok(found)
}

/// Moves a device from one phase to another, and records the error. False if it is not in phase `from`.
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

/// Records that the request to create a volume is about to be sent. False if it may have been sent before.
pub fn set_sent(tx: &mut Tx<'_>, device: BlockDeviceId) -> Result<bool, Error> {
    Ok(tx.row(SET_SENT, params![device])?.is_some())
}

/// Records that an image is about to replace the data of a volume. False if the volume is not attached or is changing.
pub fn reimage(tx: &mut Tx<'_>, device: BlockDeviceId, image: ImageId) -> Result<bool, Error> {
    Ok(tx.row(REIMAGE, params![device, image])?.is_some())
}

/// True if this image is still replacing the data of a volume.
pub fn reimages(tx: &mut Tx<'_>, device: BlockDeviceId, image: ImageId) -> Result<bool, Error> {
    Ok(tx.row(REIMAGES, params![device, image])?.is_some())
}

/// Ends the re-imaging of a server's volumes; `error` is the reason if it failed. False if no volume was being
/// re-imaged.
pub fn end_reimage(tx: &mut Tx<'_>, server: ServerId, error: Option<&str>) -> Result<bool, Error> {
    Ok(tx.execute(END_REIMAGE, params![server, error])? > 0)
}

/// Sets whether a volume is deleted with its server.
pub fn set_delete(tx: &mut Tx<'_>, device: BlockDeviceId, delete: bool) -> Result<(), Error> {
    tx.defer(SET_DELETE, params![device, delete])?;
    Ok(())
}

/// Sets the recorded action of a device that has not ended yet.
pub fn set_operation(
    tx: &mut Tx<'_>,
    device: BlockDeviceId,
    operation: Option<OperationId>,
) -> Result<(), Error> {
    tx.defer(SET_OPERATION, params![device, operation])?;
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

/// Deletes a device's row if the device is still in a phase.
pub fn forget_in(tx: &mut Tx<'_>, device: BlockDeviceId, phase: Phase) -> Result<(), Error> {
    tx.defer(FORGET_IN, params![device, phase.as_str()])?;
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
        operation: row.id_opt("operation")?,
    })
}

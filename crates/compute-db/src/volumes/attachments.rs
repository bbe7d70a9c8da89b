//! The attachments of block devices in Cinder, and the connectors of hosts.

use kilonova_ids::{AttachmentId, BlockDeviceId, HostName, ServerId, VolumeId};
use kilonova_store::{Row, Tx, params};

use super::devices::BlockDevice;
use crate::Error;
use crate::servers::shape;

kilonova_store::statements! {
    /// Adds an attachment whose volume is about to be reserved, with or without a host to connect.
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
    /// The hosts that have yet to report that a guest has a disk, or that a guest no longer has one. `CROSS JOIN` fixes
    /// SQLite's order of tables.
    AWAITED_HOSTS = "SELECT host FROM volume_attachments WHERE plug = 'given' AND host IS NOT NULL
        UNION SELECT a.host FROM block_devices d CROSS JOIN volume_attachments a
        WHERE d.phase IN ('detaching', 'failed', 'reimaging') AND a.server_id = d.server_id
        AND a.device_id = d.id AND a.host IS NOT NULL";
    /// Deletes an attachment's row.
    FORGET_ATTACHMENT = "DELETE FROM volume_attachments WHERE id = ?1";
    /// The connector of a host.
    CONNECTOR = "SELECT connector FROM hosts WHERE host = ?1";
    /// Sets the connector of a host.
    SET_CONNECTOR = "UPDATE hosts SET connector = ?2 WHERE host = ?1";
}

words! {
    /// The state of an attachment.
    State {
        /// The row is written before the reservation is sent, so Cinder may or may not have the attachment. If the row
        /// has a host, the call also connects the host.
        Reserving = "reserving",
        /// Cinder has the attachment, without a host.
        Reserved = "reserved",
        /// The state is written before the host's connector is sent, so Cinder may or may not have connected the host.
        Connecting = "connecting",
        /// Cinder has connected the host.
        Connected = "connected",
        /// Cinder has marked the attachment as complete.
        Complete = "complete",
        /// It is being deleted.
        Ending = "ending",
    }
}

words! {
    /// The state of an attachment's disk on its host.
    Plug {
        /// No document has ever contained the disk.
        None = "none",
        /// A document contains the disk, or the host has not yet reported on the document without it.
        Given = "given",
        /// The host reported the disk.
        Plugged = "plugged",
        /// The host reported that the disk is disconnected.
        Unplugged = "unplugged",
    }
}

/// The id of an attachment's row, which exists before Cinder assigns an id.
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
    /// The attachment's id in Cinder; `None` before Cinder has answered.
    pub attachment: Option<AttachmentId>,
    /// The host that is connected or is about to be.
    pub host: Option<HostName>,
    /// Its state.
    pub state: State,
    /// The state of the disk on that host.
    pub plug: Plug,
}

/// The hosts that have yet to report that a guest has a disk, or that a guest no longer has one.
///
/// # Errors
/// Store errors only.
pub fn awaited_hosts(tx: &mut Tx<'_>) -> Result<Vec<HostName>, Error> {
    let rows = tx.rows(AWAITED_HOSTS, params![])?;
    Ok(rows.iter().map(|row| row.host("host")).collect::<Result<_, kilonova_store::Error>>()?)
}

/// Adds an attachment of a device whose volume is about to be reserved. With a host, the volume is about to be
/// connected to it too.
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

/// The state of an attachment after an answer from Cinder.
#[derive(Debug, Clone)]
pub struct Answered<'a> {
    /// Its id in Cinder.
    pub attachment: Option<AttachmentId>,
    /// Its host.
    pub host: Option<&'a HostName>,
    /// Its state.
    pub state: State,
}

/// Records the new state of an attachment whose state is `from`. Returns false if it has another state
/// or no longer exists.
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

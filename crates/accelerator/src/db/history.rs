//! The past and present devices of a server and its migrations. Read-only.

use jiff::Timestamp;
use kilonova_ids::{
    ArqId, AttachHandleId, ConsumerId, DeviceId, HostName, ProviderId, ResourceClass, ServerId,
};
use kilonova_node_api::DeviceKind;
use kilonova_store::{Error, Row, Tx, params, statements};

use crate::states::{ArqState, AttachType, DeviceStatus, HealthState, OwnerChange, device_kind};

/// An accelerator request of a server, and its handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldAccelerator {
    /// The request.
    pub arq: ArqId,
    /// The server, or its migration for a request on the migration's other host.
    pub consumer: Option<ConsumerId>,
    /// The state of the request.
    pub state: ArqState,
    /// Its host.
    pub host: Option<HostName>,
    /// Its provider.
    pub provider: Option<ProviderId>,
    /// The device profile and the index of its group; `None` for a request of the flavor itself.
    pub profile: Option<(String, i64)>,
    /// Its handle.
    pub handle: Option<Handle>,
}

/// A handle and its device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handle {
    /// Its id; for a mediated device also its UUID on the host.
    pub id: AttachHandleId,
    /// How the guest gets it.
    pub attach_type: AttachType,
    /// Address of the function, or of the mediated device's parent.
    pub address: String,
    /// Type of a mediated device; otherwise empty.
    pub mdev_type: String,
    /// True if the host still has it.
    pub present: bool,
    /// Name of the deployable.
    pub deployable: String,
    /// `VGPU`, `FPGA`, …
    pub resource_class: ResourceClass,
    /// The device.
    pub device: DeviceId,
    /// Its address.
    pub device_address: String,
    /// Its kind.
    pub kind: DeviceKind,
    /// The model name for display.
    pub model: String,
    /// The health of the device.
    pub health: HealthState,
    /// Why it is not healthy.
    pub health_reason: Option<String>,
    /// The administrative status of the device.
    pub status: DeviceStatus,
}

/// A dirty handle on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftHandle {
    /// Its address.
    pub address: String,
    /// The host.
    pub host: HostName,
    /// The address of its device.
    pub device_address: String,
}

/// The assignment or release of a handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandleChange {
    /// When it happened.
    pub at: Timestamp,
    /// The change.
    pub change: OwnerChange,
    /// The handle's id at that time.
    pub handle: String,
    /// How the guest got it.
    pub attach_type: AttachType,
    /// Its address.
    pub address: String,
    /// Type of a mediated device; otherwise empty.
    pub mdev_type: String,
    /// Its host.
    pub host: HostName,
    /// `req-<uuid>`.
    pub request_id: Option<String>,
}

statements! {
    /// The requests of a server and of its migrations.
    HELD_FOR = "SELECT a.uuid, a.consumer_id, a.state, a.host, a.provider_id, a.group_id,
        f.name AS profile_name, h.uuid AS handle_id, h.attach_type, h.address, h.mdev_type,
        h.present, p.name AS deployable_name, p.resource_class, d.uuid AS device_id,
        d.address AS device_address, d.kind, d.model, d.health, d.health_reason, d.status
        FROM arqs a LEFT JOIN device_profiles f ON f.uuid = a.profile_id
        LEFT JOIN attach_handles h ON h.arq_id = a.uuid
        LEFT JOIN deployables p ON p.id = h.deployable_id LEFT JOIN devices d ON d.id = p.device_id
        WHERE a.server_id = ?1 ORDER BY a.consumer_id, a.ordinal, a.id";
    /// The dirty handles that a consumer left.
    LEFT_BY = "SELECT h.address, d.host, d.address AS device_address FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id JOIN devices d ON d.id = p.device_id
        WHERE h.dirty_of = ?1 ORDER BY h.id";
    /// The handle changes of a server, newest first.
    PAST_OF = "SELECT at, change, handle_id, attach_type, address, mdev_type, host, request_id
        FROM handle_changes WHERE server_id = ?1 ORDER BY id DESC LIMIT ?2";
}

/// The requests of a server and of its migrations.
pub(crate) fn accelerators_of(
    tx: &mut Tx<'_>,
    server: ServerId,
) -> Result<Vec<HeldAccelerator>, Error> {
    tx.rows(HELD_FOR, params![server])?.iter().map(held).collect()
}

fn held(row: &Row) -> Result<HeldAccelerator, Error> {
    let group = row.int("group_id")?;
    Ok(HeldAccelerator {
        arq: row.id("uuid")?,
        consumer: row.id_opt("consumer_id")?,
        state: ArqState::read(row, "state")?,
        host: row.host_opt("host")?,
        provider: row.id_opt("provider_id")?,
        profile: row.string_opt("profile_name")?.map(|name| (name, group)),
        handle: row.id_opt("handle_id")?.map(|id| handle(row, id)).transpose()?,
    })
}

fn handle(row: &Row, id: AttachHandleId) -> Result<Handle, Error> {
    Ok(Handle {
        id,
        attach_type: AttachType::read(row, "attach_type")?,
        address: row.string("address")?,
        mdev_type: row.string("mdev_type")?,
        present: row.bool("present")?,
        deployable: row.string("deployable_name")?,
        resource_class: row.class("resource_class")?,
        device: row.id("device_id")?,
        device_address: row.string("device_address")?,
        kind: device_kind(row, "kind")?,
        model: row.string("model")?,
        health: HealthState::read(row, "health")?,
        health_reason: row.string_opt("health_reason")?,
        status: DeviceStatus::read(row, "status")?,
    })
}

/// The handles that a consumer left dirty.
pub(crate) fn dirty_handles_of(
    tx: &mut Tx<'_>,
    consumer: ConsumerId,
) -> Result<Vec<LeftHandle>, Error> {
    let read = |row: &Row| {
        Ok(LeftHandle {
            address: row.string("address")?,
            host: row.host("host")?,
            device_address: row.string("device_address")?,
        })
    };
    tx.rows(LEFT_BY, params![consumer])?.iter().map(read).collect()
}

/// The handle changes of a server, newest first.
pub(crate) fn changes_of(
    tx: &mut Tx<'_>,
    server: ServerId,
    limit: i64,
) -> Result<Vec<HandleChange>, Error> {
    let read = |row: &Row| {
        Ok(HandleChange {
            at: row.time("at")?,
            change: OwnerChange::read(row, "change")?,
            handle: row.string("handle_id")?,
            attach_type: AttachType::read(row, "attach_type")?,
            address: row.string("address")?,
            mdev_type: row.string("mdev_type")?,
            host: row.host("host")?,
            request_id: row.string_opt("request_id")?,
        })
    };
    tx.rows(PAST_OF, params![server, limit])?.iter().map(read).collect()
}

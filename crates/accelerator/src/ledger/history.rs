//! The past and present devices of a server and its migrations, for explanations. Read-only.

use kilonova_ids::{ArqId, AttachHandleId, ConsumerId, DeviceId, ProviderId, ServerId};
use kilonova_store::{Row, Tx, params, statements};

use crate::Error;

statements! {
    /// The requests of a server and of its migrations.
    HELD_FOR = "SELECT a.uuid, a.consumer_id, a.state, a.host, a.provider_id, a.group_id, f.name,
        h.uuid, h.attach_type, h.address, h.mdev_type, h.present, p.name, p.resource_class, d.uuid,
        d.address, d.kind, d.model, d.health, d.health_reason, d.status
        FROM arqs a LEFT JOIN device_profiles f ON f.uuid = a.profile_id
        LEFT JOIN attach_handles h ON h.arq_id = a.uuid
        LEFT JOIN deployables p ON p.id = h.deployable_id LEFT JOIN devices d ON d.id = p.device_id
        WHERE a.server_id = ?1 ORDER BY a.consumer_id, a.ordinal, a.id";
    /// The dirty handles that a consumer left.
    LEFT_BY = "SELECT h.address, d.host, d.address FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id JOIN devices d ON d.id = p.device_id
        WHERE h.dirty_of = ?1 ORDER BY h.id";
    /// The handle changes of a server, newest first.
    PAST_OF = "SELECT at, change, handle_id, attach_type, address, mdev_type, host, request_id
        FROM handle_changes WHERE server_id = ?1 ORDER BY id DESC LIMIT ?2";
}

/// An accelerator request of a server, and its handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldAccelerator {
    /// The request.
    pub arq: ArqId,
    /// The server, or the migration that holds the other side.
    pub consumer: Option<ConsumerId>,
    /// `Bound`, `BindStarted`, …
    pub state: String,
    /// Its host.
    pub host: Option<String>,
    /// Its provider.
    pub provider: Option<ProviderId>,
    /// The device profile and the index of its group; `None` for a request of a flavor itself.
    pub profile: Option<(String, i64)>,
    /// Its handle.
    pub handle: Option<Handle>,
}

/// A handle and its device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handle {
    /// Its id; for a mediated device also its uuid on the host.
    pub id: AttachHandleId,
    /// `MDEV`, `PCI`, `VFIO` or `TEST_PCI`.
    pub attach_type: String,
    /// Address of the function, or of the mediated device's parent.
    pub address: String,
    /// Type of a mediated device; otherwise empty.
    pub mdev_type: String,
    /// True if the host still has it.
    pub present: bool,
    /// Name of the deployable.
    pub deployable: String,
    /// `VGPU`, `FPGA`, …
    pub resource_class: String,
    /// The device.
    pub device: DeviceId,
    /// Its address.
    pub device_address: String,
    /// `GPU`, `FPGA`, …
    pub kind: String,
    /// The model name for display.
    pub model: String,
    /// `healthy`, `degraded` or `failed`.
    pub health: String,
    /// Why it is not healthy.
    pub health_reason: Option<String>,
    /// `enabled` or `maintaining`.
    pub status: String,
}

/// A dirty handle on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftHandle {
    /// Its address.
    pub address: String,
    /// The host.
    pub host: String,
    /// The address of its device.
    pub device_address: String,
}

/// The assignment or release of a handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandleChange {
    /// Microseconds since 1970.
    pub at: i64,
    /// `taken` or `freed`.
    pub change: String,
    /// The handle's id at that time.
    pub handle: String,
    /// `MDEV`, `PCI`, …
    pub attach_type: String,
    /// Its address.
    pub address: String,
    /// Type of a mediated device; otherwise empty.
    pub mdev_type: String,
    /// Its host.
    pub host: String,
    /// `req-<uuid>`.
    pub request_id: Option<String>,
}

/// The requests of a server and of its migrations.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn held_for(tx: &mut Tx<'_>, server: ServerId) -> Result<Vec<HeldAccelerator>, Error> {
    let rows = tx.rows(HELD_FOR, params![server])?;
    Ok(rows.iter().map(held).collect::<Result<_, kilonova_store::Error>>()?)
}

fn held(row: &Row) -> Result<HeldAccelerator, kilonova_store::Error> {
    let group = row.int(5)?;
    Ok(HeldAccelerator {
        arq: row.id(0)?,
        consumer: row.id_opt(1)?,
        state: row.string(2)?,
        host: row.string_opt(3)?,
        provider: row.id_opt(4)?,
        profile: row.string_opt(6)?.map(|name| (name, group)),
        handle: row.id_opt(7)?.map(|id| handle(row, id)).transpose()?,
    })
}

fn handle(row: &Row, id: AttachHandleId) -> Result<Handle, kilonova_store::Error> {
    Ok(Handle {
        id,
        attach_type: row.string(8)?,
        address: row.string(9)?,
        mdev_type: row.string(10)?,
        present: row.bool(11)?,
        deployable: row.string(12)?,
        resource_class: row.string(13)?,
        device: row.id(14)?,
        device_address: row.string(15)?,
        kind: row.string(16)?,
        model: row.string(17)?,
        health: row.string(18)?,
        health_reason: row.string_opt(19)?,
        status: row.string(20)?,
    })
}

/// The handles that a consumer left dirty.
pub fn left_by(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<Vec<LeftHandle>, Error> {
    let rows = tx.rows(LEFT_BY, params![consumer])?;
    let left = |row: &Row| {
        Ok(LeftHandle {
            address: row.string(0)?,
            host: row.string(1)?,
            device_address: row.string(2)?,
        })
    };
    Ok(rows.iter().map(left).collect::<Result<_, kilonova_store::Error>>()?)
}

/// The handle changes of a server, newest first.
pub fn handle_history(
    tx: &mut Tx<'_>,
    server: ServerId,
    limit: i64,
) -> Result<Vec<HandleChange>, Error> {
    let rows = tx.rows(PAST_OF, params![server, limit])?;
    let change = |row: &Row| {
        Ok(HandleChange {
            at: row.int(0)?,
            change: row.string(1)?,
            handle: row.string(2)?,
            attach_type: row.string(3)?,
            address: row.string(4)?,
            mdev_type: row.string(5)?,
            host: row.string(6)?,
            request_id: row.string_opt(7)?,
        })
    };
    Ok(rows.iter().map(change).collect::<Result<_, kilonova_store::Error>>()?)
}

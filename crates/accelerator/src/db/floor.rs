//! The devices of many hosts, with everybody who uses a part of them. Read-only.
//!
//! Handles that are free are not read: an idle cloud has many, and the amounts of providers tell of them.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use kilonova_ids::{DeviceId, HostName, ProviderId, ResourceClass, ServerId};
use kilonova_node_api::DeviceKind;
use kilonova_store::{Asked, Error, Row, Tx, Value, statements};

use crate::states::{AttachType, DeviceStatus, HandleState, HealthState, device_kind};

/// A device on the floor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FloorDevice {
    /// The device.
    pub device: DeviceId,
    /// Its address on its host.
    pub address: String,
    /// The address of the physical function that it belongs to, usually its own.
    pub card: String,
    /// Its kind.
    pub kind: DeviceKind,
    /// PCI vendor id.
    pub vendor_id: String,
    /// PCI product id.
    pub product_id: String,
    /// The product name; empty if unknown.
    pub model: String,
    /// Its NUMA node; `None` if the kernel reports none.
    pub numa_node: Option<i64>,
    /// The PCIe switch above it.
    pub switch: Option<String>,
    /// The first card of its island.
    pub island: Option<String>,
    /// The administrative status.
    pub status: DeviceStatus,
    /// False if its host no longer has it.
    pub present: bool,
    /// Its health.
    pub health: HealthState,
    /// Why it is not healthy.
    pub reason: Option<String>,
    /// Since when.
    pub since: Option<Timestamp>,
    /// True while a bitstream is loaded into it.
    pub programming: bool,
    /// Its parts.
    pub parts: Vec<FloorPart>,
}

/// A deployable on the floor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FloorPart {
    /// Its resource provider.
    pub provider: ProviderId,
    /// Its name.
    pub name: String,
    /// Its resource class.
    pub resource_class: ResourceClass,
    /// Its handles that are not free.
    pub handles: Vec<FloorHandle>,
}

/// A handle that is not free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FloorHandle {
    /// How a guest gets it.
    pub attach_type: AttachType,
    /// Its address, or that of the mediated device's parent.
    pub address: String,
    /// The type of a mediated device; otherwise empty.
    pub mdev_type: String,
    /// Its state.
    pub state: HandleState,
    /// True if it waits to be cleaned.
    pub cleaning: bool,
    /// The server that has it; `None` if it has no owner, or another Nova's instance.
    pub server: Option<ServerId>,
    /// The project of the owner.
    pub project: Option<String>,
}

statements! {
    /// The devices of some hosts.
    DEVICES = "SELECT id, uuid, host, address, card, kind, vendor_id, product_id, model, numa_node,
        pcie_switch, island, status, present, health, health_reason, health_since FROM devices
        WHERE host IN ({}) ORDER BY id";
    /// Their deployables.
    PARTS = "SELECT p.id, p.device_id, p.provider_id, p.name, p.resource_class
        FROM devices d JOIN deployables p ON p.device_id = d.id WHERE d.host IN ({}) ORDER BY p.id";
    /// The handles of some deployables that are not free. Neither an order nor a join with the deployables: for both
    /// PostgreSQL without statistics would read all handles.
    HANDLES = "SELECT h.id, h.deployable_id, h.attach_type, h.address, h.mdev_type, h.state, h.parked,
        a.server_id, a.project_id FROM attach_handles h LEFT JOIN arqs a ON a.uuid = h.arq_id
        WHERE h.deployable_id IN ({}) AND h.state IN ('owned', 'dirty', 'failed')";
    /// The devices that are being programmed.
    PROGRAMMED = "SELECT device_id FROM device_orders
        WHERE host IN ({}) AND state = 'open' AND task = 'program'";
}

/// The devices of those hosts, in the order of their rows.
pub(crate) fn devices(
    tx: &mut Tx<'_>,
    hosts: &[HostName],
) -> Result<HashMap<HostName, Vec<FloorDevice>>, Error> {
    let hosts: Vec<Value> = hosts.iter().map(Value::from).collect();
    let mut ask = |statement| tx.ask_list(statement, &hosts);
    let (devices, parts, programmed) = (ask(DEVICES)?, ask(PARTS)?, ask(PROGRAMMED)?);
    let parts = tx.answers(parts)?;
    let ids = parts.iter().map(|row| Ok(Value::from(row.int("id")?)));
    let handles = tx.ask_list(HANDLES, &ids.collect::<Result<Vec<_>, Error>>()?)?;
    let mut handles = read_handles(tx, handles)?;
    let mut parts = read_parts(&parts, &mut handles)?;
    let programmed: HashSet<DeviceId> =
        tx.answers(programmed)?.iter().map(|row| row.id("device_id")).collect::<Result<_, _>>()?;
    let mut found: HashMap<HostName, Vec<FloorDevice>> = HashMap::new();
    for row in tx.answers(devices)? {
        let device = row.id("uuid")?;
        found.entry(row.host("host")?).or_default().push(FloorDevice {
            device,
            address: row.string("address")?,
            card: row.string("card")?,
            kind: device_kind(&row, "kind")?,
            vendor_id: row.string("vendor_id")?,
            product_id: row.string("product_id")?,
            model: row.string("model")?,
            numa_node: Some(row.int("numa_node")?).filter(|node| *node >= 0),
            switch: row.string_opt("pcie_switch")?,
            island: row.string_opt("island")?,
            status: DeviceStatus::read(&row, "status")?,
            present: row.bool("present")?,
            health: HealthState::read(&row, "health")?,
            reason: row.string_opt("health_reason")?,
            since: row.time_opt("health_since")?,
            programming: programmed.contains(&device),
            parts: parts.remove(&row.int("id")?).unwrap_or_default(),
        });
    }
    Ok(found)
}

/// The deployables by the row of their device.
fn read_parts(
    rows: &[Row],
    handles: &mut HashMap<i64, Vec<FloorHandle>>,
) -> Result<HashMap<i64, Vec<FloorPart>>, Error> {
    let mut parts: HashMap<i64, Vec<FloorPart>> = HashMap::new();
    for row in rows {
        parts.entry(row.int("device_id")?).or_default().push(FloorPart {
            provider: row.id("provider_id")?,
            name: row.string("name")?,
            resource_class: row.class("resource_class")?,
            handles: handles.remove(&row.int("id")?).unwrap_or_default(),
        });
    }
    Ok(parts)
}

/// The handles by the row of their deployable.
fn read_handles(
    tx: &mut Tx<'_>,
    asked: Vec<Asked>,
) -> Result<HashMap<i64, Vec<FloorHandle>>, Error> {
    let read = |row: &Row| {
        Ok::<_, Error>(FloorHandle {
            attach_type: AttachType::read(row, "attach_type")?,
            address: row.string("address")?,
            mdev_type: row.string("mdev_type")?,
            state: HandleState::read(row, "state")?,
            cleaning: row.string_opt("parked")?.is_some(),
            server: row.id_opt("server_id")?,
            project: row.string_opt("project_id")?,
        })
    };
    let mut handles: HashMap<i64, Vec<FloorHandle>> = HashMap::new();
    let mut rows = tx.answers(asked)?;
    rows.sort_by_key(|row| row.int("id").unwrap_or_default());
    for row in rows {
        handles.entry(row.int("deployable_id")?).or_default().push(read(&row)?);
    }
    Ok(handles)
}

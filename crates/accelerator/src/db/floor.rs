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
    /// The devices of some hosts, each with its deployables. Sorting the rows here is cheaper than in the database.
    DEVICES = "SELECT d.id, d.uuid, d.host, d.address, d.card, d.kind, d.vendor_id, d.product_id, d.model,
        d.numa_node, d.pcie_switch, d.island, d.status, d.present, d.health, d.health_reason, d.health_since,
        p.id AS part, p.provider_id, p.name, p.resource_class
        FROM devices d LEFT JOIN deployables p ON p.device_id = d.id WHERE d.host IN ({})";
    /// The handles of some deployables that are not free. Neither an order nor a join with the deployables: for both
    /// PostgreSQL without statistics would read all handles.
    HANDLES = "SELECT id, deployable_id, attach_type, address, mdev_type, state, parked, arq_id
        FROM attach_handles WHERE deployable_id IN ({}) AND state <> 'free'";
    /// The requests on some hosts. A handle's request is on the host of its device.
    OWNERS = "SELECT uuid, server_id, project_id FROM arqs WHERE host IN ({})";
    /// Some requests.
    OTHER_OWNERS = "SELECT uuid, server_id, project_id FROM arqs WHERE uuid IN ({})";
    /// The devices that are being programmed.
    PROGRAMMED = "SELECT device_id FROM device_orders
        WHERE host IN ({}) AND state = 'open' AND task = 'program'";
}

/// The devices of those hosts, in the order of their rows.
pub(crate) fn devices(
    tx: &mut Tx<'_>,
    hosts: &[HostName],
) -> Result<HashMap<HostName, Vec<FloorDevice>>, Error> {
    let values: Vec<Value> = hosts.iter().map(Value::from).collect();
    let mut ask = |statement| tx.ask_list(statement, &values);
    let (devices, programmed, owners) = (ask(DEVICES)?, ask(PROGRAMMED)?, ask(OWNERS)?);
    let mut rows = tx.answers(devices)?;
    rows.sort_by_cached_key(|row| (row.int("id").ok(), row.int_opt("part").ok()));
    let mut parts = Vec::with_capacity(rows.len());
    for row in &rows {
        parts.extend(row.int_opt("part")?.map(Value::from));
    }
    let handles = tx.ask_list(HANDLES, &parts)?;
    let programmed: HashSet<DeviceId> =
        tx.answers(programmed)?.iter().map(|row| row.id("device_id")).collect::<Result<_, _>>()?;
    let owners = tx.answers(owners)?;
    let mut handles = read_handles(tx, handles, owners)?;
    let mut found: HashMap<HostName, Vec<FloorDevice>> =
        hosts.iter().map(|host| (host.clone(), Vec::new())).collect();
    let mut last = None;
    for mut row in rows {
        let id = row.int("id")?;
        // A list may name a host twice, and its rows then come twice.
        let Some(of_host) = found.get_mut(row.text("host")?) else { continue };
        if last != Some(id) {
            last = Some(id);
            of_host.push(read_device(&mut row, &programmed)?);
        }
        if let (Some(part), Some(device)) = (row.int_opt("part")?, of_host.last_mut()) {
            device.parts.push(FloorPart {
                provider: row.id("provider_id")?,
                name: row.take_string("name")?,
                resource_class: row.class("resource_class")?,
                handles: handles.remove(&part).unwrap_or_default(),
            });
        }
    }
    Ok(found)
}

fn read_device(row: &mut Row, programmed: &HashSet<DeviceId>) -> Result<FloorDevice, Error> {
    let device = row.id("uuid")?;
    Ok(FloorDevice {
        device,
        address: row.take_string("address")?,
        card: row.take_string("card")?,
        kind: device_kind(row, "kind")?,
        vendor_id: row.take_string("vendor_id")?,
        product_id: row.take_string("product_id")?,
        model: row.take_string("model")?,
        numa_node: Some(row.int("numa_node")?).filter(|node| *node >= 0),
        switch: row.string_opt("pcie_switch")?,
        island: row.string_opt("island")?,
        status: DeviceStatus::read(row, "status")?,
        present: row.bool("present")?,
        health: HealthState::read(row, "health")?,
        reason: row.string_opt("health_reason")?,
        since: row.time_opt("health_since")?,
        programming: programmed.contains(&device),
        parts: Vec::new(),
    })
}

/// The handles by the row of their deployable, in the order of their rows.
fn read_handles(
    tx: &mut Tx<'_>,
    asked: Vec<Asked>,
    owners: Vec<Row>,
) -> Result<HashMap<i64, Vec<FloorHandle>>, Error> {
    let mut rows = tx.answers(asked)?;
    rows.sort_by_cached_key(|row| row.int("id").unwrap_or_default());
    let mut known: HashMap<&str, &Row> = HashMap::with_capacity(owners.len());
    for row in &owners {
        known.insert(row.text("uuid")?, row);
    }
    let mut elsewhere = Vec::new();
    for row in &rows {
        let arq = row.text_opt("arq_id")?.filter(|arq| !known.contains_key(arq));
        elsewhere.extend(arq.map(Value::from));
    }
    let others = tx.ask_list(OTHER_OWNERS, &elsewhere)?;
    let others = tx.answers(others)?;
    for row in &others {
        known.insert(row.text("uuid")?, row);
    }
    let mut handles: HashMap<i64, Vec<FloorHandle>> = HashMap::new();
    for mut row in rows {
        let owner = row.text_opt("arq_id")?.and_then(|arq| known.get(arq)).copied();
        handles.entry(row.int("deployable_id")?).or_default().push(FloorHandle {
            attach_type: AttachType::read(&row, "attach_type")?,
            address: row.take_string("address")?,
            mdev_type: row.take_string("mdev_type")?,
            state: HandleState::read(&row, "state")?,
            cleaning: row.text_opt("parked")?.is_some(),
            server: owner.map(|owner| owner.id_opt("server_id")).transpose()?.flatten(),
            project: owner.map(|owner| owner.string("project_id")).transpose()?,
        });
    }
    Ok(handles)
}

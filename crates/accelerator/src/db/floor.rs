//! The devices of many hosts, with the users of their parts. Read-only.
//!
//! Free handles are not read: an idle cloud has many, and the providers' amounts already include them.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use kilonova_ids::{ArqId, DeviceId, HostName, ProviderId, ResourceClass, ServerId};
use kilonova_node_api::DeviceKind;
use kilonova_store::{Error, Row, Tx, Value, statements};

use crate::states::{AttachType, DeviceStatus, HandleState, HealthState, device_kind};

/// A device on the floor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FloorDevice {
    /// Its row id, by which the devices of a host are sorted.
    row: i64,
    /// The device.
    pub device: DeviceId,
    /// Its address on its host.
    pub address: Arc<str>,
    /// The address of the physical function that it belongs to, usually its own.
    pub card: Arc<str>,
    /// Its kind.
    pub kind: DeviceKind,
    /// PCI vendor id.
    pub vendor_id: Arc<str>,
    /// PCI product id.
    pub product_id: Arc<str>,
    /// The product name; empty if unknown.
    pub model: Arc<str>,
    /// Its NUMA node; `None` if the kernel reports none.
    pub numa_node: Option<i64>,
    /// The PCIe switch above it.
    pub switch: Option<Arc<str>>,
    /// The first card of its island.
    pub island: Option<Arc<str>>,
    /// The administrative status.
    pub status: DeviceStatus,
    /// False if its host no longer has it.
    pub present: bool,
    /// Its health.
    pub health: HealthState,
    /// Why it is not healthy.
    pub reason: Option<String>,
    /// When the health changed.
    pub since: Option<Timestamp>,
    /// True while a bitstream is loaded into it.
    pub programming: bool,
    /// Its parts.
    pub parts: Vec<FloorPart>,
}

/// A deployable on the floor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FloorPart {
    /// Its row id, by which the parts of a device are sorted.
    row: i64,
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
    pub address: Arc<str>,
    /// The type of a mediated device; otherwise empty.
    pub mdev_type: Arc<str>,
    /// Its state.
    pub state: HandleState,
    /// True if it waits to be cleaned.
    pub cleaning: bool,
    /// The server that owns it; `None` if it has no owner.
    pub server: Option<ServerId>,
    /// The project of the owner.
    pub project: Option<Arc<str>>,
}

statements! {
    /// The devices of some hosts, each with its deployables. The caller sorts them, which is cheaper than in the
    /// database.
    DEVICES = "SELECT d.id, d.host, d.uuid, d.address, d.card, d.kind, d.vendor_id, d.product_id, d.model,
        d.numa_node, d.pcie_switch, d.island, d.status, d.present, d.health, d.health_reason, d.health_since,
        p.id AS part, p.provider_id, p.name, p.resource_class
        FROM devices d LEFT JOIN deployables p ON p.device_id = d.id WHERE d.host IN ({})";
    /// Some deployables' handles that are not free. The statement has no ORDER BY and no join with the deployables,
    /// because for either PostgreSQL would read all handles if it has no statistics.
    HANDLES = "SELECT id, deployable_id, attach_type, address, mdev_type, state, parked, arq_id
        FROM attach_handles WHERE deployable_id IN ({}) AND state <> 'free'";
    /// The requests on some hosts. A handle's request is on the host of its device.
    OWNERS = "SELECT uuid, server_id, project_id FROM arqs WHERE host IN ({})";
    /// Requests by id.
    OTHER_OWNERS = "SELECT uuid, server_id, project_id FROM arqs WHERE uuid IN ({})";
    /// The devices that are being programmed.
    PROGRAMMED = "SELECT device_id FROM device_orders
        WHERE host IN ({}) AND state = 'open' AND task = 'program'";
}

/// The devices of these hosts, sorted by row id.
pub(crate) fn devices(
    tx: &mut Tx<'_>,
    hosts: &[HostName],
) -> Result<HashMap<HostName, Vec<FloorDevice>>, Error> {
    // Sorted like the index.
    let mut names: Vec<&HostName> = hosts.iter().collect();
    names.sort_unstable();
    names.dedup();
    let names: Vec<Value> = names.into_iter().map(Value::from).collect();
    for statement in [PROGRAMMED, DEVICES, OWNERS] {
        tx.expect_list(statement, &names)?;
    }
    let mut reading = Reading::of(hosts);
    tx.visit_list(PROGRAMMED, &names, |row| reading.programmed(row))?;
    tx.visit_list(DEVICES, &names, |row| reading.device(row))?;
    let mut owners = Owners::new();
    tx.visit_list(OWNERS, &names, |row| reading.owner(row, &mut owners))?;
    let handles = read_handles(tx, &mut reading, owners)?;
    Ok(reading.with(handles))
}

/// The handles by the row id of their deployable.
type Handles = HashMap<i64, Vec<FloorHandle>>;
/// The server and the project of each request.
type Owners = HashMap<ArqId, (Option<ServerId>, Arc<str>)>;

/// The devices read so far.
struct Reading {
    texts: Texts,
    programmed: HashSet<DeviceId>,
    found: HashMap<HostName, Vec<FloorDevice>>,
    /// The position of each device among the devices of its host, by row id.
    places: HashMap<i64, usize>,
    /// The rows of all deployables.
    parts: Vec<i64>,
}

impl Reading {
    fn of(hosts: &[HostName]) -> Self {
        Self {
            texts: Texts::default(),
            programmed: HashSet::new(),
            found: hosts.iter().map(|host| (host.clone(), Vec::new())).collect(),
            places: HashMap::new(),
            parts: Vec::new(),
        }
    }

    fn programmed(&mut self, row: &Row) -> Result<(), Error> {
        self.programmed.insert(row.id("device_id")?);
        Ok(())
    }

    /// Adds a row: a device with one of its deployables. A device with several deployables has a row for each.
    fn device(&mut self, row: &Row) -> Result<(), Error> {
        let Self { texts, programmed, found, places, parts } = self;
        let id = row.int("id")?;
        let Some(of_host) = found.get_mut(row.text("host")?) else { return Ok(()) };
        let place = match places.entry(id) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                of_host.push(read_device(row, id, texts, programmed)?);
                *new.insert(of_host.len() - 1)
            }
        };
        if let (Some(part), Some(device)) = (row.int_opt("part")?, of_host.get_mut(place)) {
            parts.push(part);
            device.parts.push(FloorPart {
                row: part,
                provider: row.id("provider_id")?,
                name: row.string("name")?,
                resource_class: texts.class(row, "resource_class")?,
                handles: Vec::new(),
            });
        }
        Ok(())
    }

    fn owner(&mut self, row: &Row, owners: &mut Owners) -> Result<(), Error> {
        let (request, server) = (row.id("uuid")?, row.id_opt("server_id")?);
        owners.insert(request, (server, self.texts.get(row, "project_id")?));
        Ok(())
    }

    /// Adds the handles to their deployables, and returns the devices.
    fn with(self, mut handles: Handles) -> HashMap<HostName, Vec<FloorDevice>> {
        let mut found = self.found;
        for of_host in found.values_mut() {
            of_host.sort_unstable_by_key(|device| device.row);
            for device in of_host {
                device.parts.sort_unstable_by_key(|part| part.row);
                for part in &mut device.parts {
                    part.handles = handles.remove(&part.row).unwrap_or_default();
                }
            }
        }
        found
    }
}

fn read_device(
    row: &Row,
    id: i64,
    texts: &mut Texts,
    programmed: &HashSet<DeviceId>,
) -> Result<FloorDevice, Error> {
    let device = row.id("uuid")?;
    Ok(FloorDevice {
        row: id,
        device,
        address: texts.get(row, "address")?,
        card: texts.get(row, "card")?,
        kind: device_kind(row, "kind")?,
        vendor_id: texts.get(row, "vendor_id")?,
        product_id: texts.get(row, "product_id")?,
        model: texts.get(row, "model")?,
        numa_node: Some(row.int("numa_node")?).filter(|node| *node >= 0),
        switch: texts.get_opt(row, "pcie_switch")?,
        island: texts.get_opt(row, "island")?,
        status: DeviceStatus::read(row, "status")?,
        present: row.bool("present")?,
        health: HealthState::read(row, "health")?,
        reason: row.string_opt("health_reason")?,
        since: row.time_opt("health_since")?,
        programming: programmed.contains(&device),
        parts: Vec::new(),
    })
}

/// The handles by the row id of their deployable, sorted by their own row ids.
fn read_handles(
    tx: &mut Tx<'_>,
    reading: &mut Reading,
    mut owners: Owners,
) -> Result<Handles, Error> {
    reading.parts.sort_unstable();
    let parts: Vec<Value> = reading.parts.iter().map(|part| Value::from(*part)).collect();
    tx.expect_list(HANDLES, &parts)?;
    let mut found: Vec<(i64, i64, Option<ArqId>, FloorHandle)> = Vec::new();
    let texts = &mut reading.texts;
    tx.visit_list(HANDLES, &parts, |row| {
        let (id, part) = (row.int("id")?, row.int("deployable_id")?);
        let handle = FloorHandle {
            attach_type: AttachType::read(row, "attach_type")?,
            address: texts.get(row, "address")?,
            mdev_type: texts.get(row, "mdev_type")?,
            state: HandleState::read(row, "state")?,
            cleaning: row.text_opt("parked")?.is_some(),
            server: None,
            project: None,
        };
        found.push((part, id, row.id_opt("arq_id")?, handle));
        Ok::<_, Error>(())
    })?;
    let requests = found.iter().filter_map(|(_, _, request, _)| *request);
    let elsewhere: Vec<Value> =
        requests.filter(|request| !owners.contains_key(request)).map(Value::from).collect();
    tx.expect_list(OTHER_OWNERS, &elsewhere)?;
    tx.visit_list(OTHER_OWNERS, &elsewhere, |row| reading.owner(row, &mut owners))?;
    found.sort_unstable_by_key(|(part, id, _, _)| (*part, *id));
    let mut handles = Handles::new();
    for (part, _, request, mut handle) in found {
        if let Some((server, project)) = request.and_then(|request| owners.get(&request)) {
            (handle.server, handle.project) = (*server, Some(Arc::clone(project)));
        }
        handles.entry(part).or_default().push(handle);
    }
    Ok(handles)
}

/// The strings of a page, each stored once, because similar hosts have equal addresses and models.
#[derive(Default)]
struct Texts {
    all: HashSet<Arc<str>>,
    classes: HashSet<ResourceClass>,
}

impl Texts {
    fn of(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.all.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = text.into();
        self.all.insert(Arc::clone(&new));
        new
    }

    /// Reads a text column.
    fn get(&mut self, row: &Row, column: &str) -> Result<Arc<str>, Error> {
        Ok(self.of(row.text(column)?))
    }

    /// Reads a text column that may be NULL.
    fn get_opt(&mut self, row: &Row, column: &str) -> Result<Option<Arc<str>>, Error> {
        Ok(row.text_opt(column)?.map(|text| self.of(text)))
    }

    /// Reads a resource class.
    fn class(&mut self, row: &Row, column: &str) -> Result<ResourceClass, Error> {
        if let Some(known) = self.classes.get(row.text(column)?) {
            return Ok(known.clone());
        }
        let new = row.class(column)?;
        self.classes.insert(new.clone());
        Ok(new)
    }
}

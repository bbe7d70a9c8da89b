//! The devices of many hosts, with the users of their parts. Read-only.
//!
//! Free handles are not read: an idle cloud has many, and the providers' amounts already include them. A drawing of
//! many hosts needs only a few columns, so the others, the *details*, are read on request.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use foldhash::{HashMap, HashSet};
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
    /// The device; a detail.
    pub device: Option<DeviceId>,
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
    /// The PCIe switch above it; a detail.
    pub switch: Option<Arc<str>>,
    /// The first card of its island; a detail.
    pub island: Option<Arc<str>>,
    /// The administrative status.
    pub status: DeviceStatus,
    /// False if its host no longer has it.
    pub present: bool,
    /// Its health.
    pub health: HealthState,
    /// Why it is not healthy; a detail.
    pub reason: Option<String>,
    /// When the health changed; a detail.
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
    /// Its name; a detail.
    pub name: Option<String>,
    /// Its resource class.
    pub resource_class: ResourceClass,
    /// Its handles that are not free.
    pub handles: Vec<FloorHandle>,
}

/// A handle that is not free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FloorHandle {
    /// How a guest gets it; a detail.
    pub attach_type: Option<AttachType>,
    /// Its address, or that of the mediated device's parent; a detail.
    pub address: Option<Arc<str>>,
    /// The type of a mediated device; a detail.
    pub mdev_type: Option<Arc<str>>,
    /// Its state.
    pub state: HandleState,
    /// True if it waits to be cleaned.
    pub cleaning: bool,
    /// The server that owns it; `None` if it has no owner.
    pub server: Option<ServerId>,
    /// The project of the owner.
    pub project: Option<Arc<str>>,
}

/// The values to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    /// All values except the details, which are `None`.
    Drawing,
    /// All values.
    Details,
}

statements! {
    /// The devices of some hosts, each with its deployables. The caller sorts them, which is cheaper than in the
    /// database.
    DRAWN_DEVICES = "SELECT d.id, d.host, d.address, d.card, d.kind, d.vendor_id, d.product_id, d.model,
        d.numa_node, d.status, d.present, d.health, p.id AS part, p.provider_id, p.resource_class
        FROM devices d LEFT JOIN deployables p ON p.device_id = d.id WHERE d.host IN ({})";
    /// The same with the details.
    DETAILED_DEVICES = "SELECT d.id, d.host, d.address, d.card, d.kind, d.vendor_id, d.product_id, d.model,
        d.numa_node, d.status, d.present, d.health, d.uuid, d.pcie_switch, d.island, d.health_reason, d.health_since,
        p.id AS part, p.provider_id, p.resource_class, p.name
        FROM devices d LEFT JOIN deployables p ON p.device_id = d.id WHERE d.host IN ({})";
    /// Some deployables' handles that are not free. The statement has no ORDER BY and no join with the deployables,
    /// because for either PostgreSQL would read all handles if it has no statistics.
    DRAWN_HANDLES = "SELECT id, deployable_id, state, parked, arq_id
        FROM attach_handles WHERE deployable_id IN ({}) AND state <> 'free'";
    /// The same with the details.
    DETAILED_HANDLES = "SELECT id, deployable_id, state, parked, arq_id, attach_type, address, mdev_type
        FROM attach_handles WHERE deployable_id IN ({}) AND state <> 'free'";
    /// The requests on some hosts. A handle's request is usually on the host of its device.
    OWNERS = "SELECT uuid, server_id, project_id FROM arqs WHERE host IN ({})";
    /// Requests by id.
    OTHER_OWNERS = "SELECT uuid, server_id, project_id FROM arqs WHERE uuid IN ({})";
    /// The row ids of the devices that are being programmed.
    PROGRAMMED = "SELECT d.id FROM device_orders o JOIN devices d ON d.uuid = o.device_id
        WHERE o.host IN ({}) AND o.state = 'open' AND o.task = 'program'";
}

impl Extent {
    fn devices(self) -> &'static str {
        match self {
            Self::Drawing => DRAWN_DEVICES,
            Self::Details => DETAILED_DEVICES,
        }
    }

    fn handles(self) -> &'static str {
        match self {
            Self::Drawing => DRAWN_HANDLES,
            Self::Details => DETAILED_HANDLES,
        }
    }
}

/// The devices of these hosts, sorted by row id.
pub(crate) fn devices(
    tx: &mut Tx<'_>,
    hosts: &[HostName],
    extent: Extent,
) -> Result<FloorDevices, Error> {
    // In the order of the index.
    let mut names: Vec<&HostName> = hosts.iter().collect();
    names.sort_unstable();
    names.dedup();
    let names: Vec<Value> = names.into_iter().map(Value::from).collect();
    for statement in [PROGRAMMED, extent.devices(), OWNERS] {
        tx.expect_list(statement, &names)?;
    }
    let mut reading = Reading::of(hosts, extent);
    tx.visit_list(PROGRAMMED, &names, |row| reading.programmed(row))?;
    tx.visit_list(extent.devices(), &names, |row| reading.device(row))?;
    let mut owners = Owners::default();
    tx.visit_list(OWNERS, &names, |row| reading.owner(row, &mut owners))?;
    let handles = read_handles(tx, &mut reading, owners)?;
    Ok(reading.with(handles))
}

/// The devices by the name of their host.
pub type FloorDevices = HashMap<HostName, Vec<FloorDevice>>;
/// The handles by the row id of their deployable.
type Handles = HashMap<i64, Vec<FloorHandle>>;
/// The server and the project of each request.
type Owners = HashMap<ArqId, (Option<ServerId>, Arc<str>)>;

/// The devices read so far.
struct Reading {
    extent: Extent,
    texts: Texts,
    programmed: HashSet<i64>,
    found: FloorDevices,
    /// The position of each device among the devices of its host, by row id.
    places: HashMap<i64, usize>,
    /// The rows of all deployables.
    parts: Vec<i64>,
}

impl Reading {
    fn of(hosts: &[HostName], extent: Extent) -> Self {
        Self {
            extent,
            texts: Texts::default(),
            programmed: HashSet::default(),
            found: hosts.iter().map(|host| (host.clone(), Vec::new())).collect(),
            places: HashMap::default(),
            parts: Vec::new(),
        }
    }

    fn programmed(&mut self, row: &Row) -> Result<(), Error> {
        self.programmed.insert(row.int("id")?);
        Ok(())
    }

    /// Adds a row: a device with one of its deployables. A device with several deployables has a row for each.
    fn device(&mut self, row: &Row) -> Result<(), Error> {
        let id = row.int("id")?;
        let Some(of_host) = self.found.get_mut(row.text("host")?) else { return Ok(()) };
        let place = match self.places.entry(id) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let programming = self.programmed.contains(&id);
                let mut device = read_device(row, id, &mut self.texts, programming)?;
                if self.extent == Extent::Details {
                    read_details(row, &mut device, &mut self.texts)?;
                }
                of_host.push(device);
                *new.insert(of_host.len() - 1)
            }
        };
        if let (Some(part), Some(device)) = (row.int_opt("part")?, of_host.get_mut(place)) {
            self.parts.push(part);
            device.parts.push(FloorPart {
                row: part,
                provider: row.id("provider_id")?,
                resource_class: self.texts.class(row, "resource_class")?,
                name: match self.extent {
                    Extent::Drawing => None,
                    Extent::Details => Some(row.string("name")?),
                },
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

    fn handle(&mut self, row: &Row) -> Result<ReadHandle, Error> {
        let (id, part) = (row.int("id")?, row.int("deployable_id")?);
        let state = HandleState::read(row, "state")?;
        let cleaning = row.text_opt("parked")?.is_some();
        let request = row.id_opt("arq_id")?;
        let mut handle = FloorHandle {
            attach_type: None,
            address: None,
            mdev_type: None,
            state,
            cleaning,
            server: None,
            project: None,
        };
        if self.extent == Extent::Details {
            handle.attach_type = Some(AttachType::read(row, "attach_type")?);
            handle.address = Some(self.texts.get(row, "address")?);
            handle.mdev_type = Some(row.text("mdev_type")?)
                .filter(|name| !name.is_empty())
                .map(|name| self.texts.of(name));
        }
        Ok(ReadHandle { id, part, request, handle })
    }

    /// Adds the handles to their deployables, and returns the devices.
    fn with(self, mut handles: Handles) -> FloorDevices {
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

/// A handle with its row id, the row id of its deployable, and the request that owns it.
struct ReadHandle {
    id: i64,
    part: i64,
    request: Option<ArqId>,
    handle: FloorHandle,
}

fn read_device(
    row: &Row,
    id: i64,
    texts: &mut Texts,
    programming: bool,
) -> Result<FloorDevice, Error> {
    Ok(FloorDevice {
        row: id,
        address: texts.get(row, "address")?,
        card: texts.get(row, "card")?,
        kind: device_kind(row, "kind")?,
        vendor_id: texts.get(row, "vendor_id")?,
        product_id: texts.get(row, "product_id")?,
        model: texts.get(row, "model")?,
        numa_node: Some(row.int("numa_node")?).filter(|node| *node >= 0),
        status: DeviceStatus::read(row, "status")?,
        present: row.bool("present")?,
        health: HealthState::read(row, "health")?,
        device: None,
        switch: None,
        island: None,
        reason: None,
        since: None,
        programming,
        parts: Vec::new(),
    })
}

fn read_details(row: &Row, device: &mut FloorDevice, texts: &mut Texts) -> Result<(), Error> {
    device.device = Some(row.id("uuid")?);
    device.switch = texts.get_opt(row, "pcie_switch")?;
    device.island = texts.get_opt(row, "island")?;
    device.reason = row.string_opt("health_reason")?;
    device.since = row.time_opt("health_since")?;
    Ok(())
}

/// The handles by the row id of their deployable, sorted by their own row ids.
fn read_handles(
    tx: &mut Tx<'_>,
    reading: &mut Reading,
    mut owners: Owners,
) -> Result<Handles, Error> {
    reading.parts.sort_unstable();
    let parts: Vec<Value> = reading.parts.iter().map(|part| Value::from(*part)).collect();
    let statement = reading.extent.handles();
    tx.expect_list(statement, &parts)?;
    let mut found: Vec<ReadHandle> = Vec::new();
    tx.visit_list(statement, &parts, |row| {
        found.push(reading.handle(row)?);
        Ok::<_, Error>(())
    })?;
    let requests = found.iter().filter_map(|one| one.request);
    let elsewhere: Vec<Value> =
        requests.filter(|request| !owners.contains_key(request)).map(Value::from).collect();
    tx.expect_list(OTHER_OWNERS, &elsewhere)?;
    tx.visit_list(OTHER_OWNERS, &elsewhere, |row| reading.owner(row, &mut owners))?;
    found.sort_unstable_by_key(|one| (one.part, one.id));
    let mut handles = Handles::default();
    for ReadHandle { part, request, mut handle, .. } in found {
        if let Some((server, project)) = request.and_then(|request| owners.get(&request)) {
            (handle.server, handle.project) = (*server, Some(Arc::clone(project)));
        }
        handles.entry(part).or_default().push(handle);
    }
    Ok(handles)
}

/// The strings of one read, each stored once, because similar hosts have equal addresses and models.
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

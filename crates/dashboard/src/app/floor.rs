//! The floor as pages draw it: hosts, their cards, and what each unit of a part is used for. Performs no I/O.
//!
//! ```text
//!   host ── NUMA node ── card (a physical function) ── device ── part ── units
//! ```
//!
//! A unit is what a guest can get: a vGPU, a virtual function, a whole card. The service reports the amounts of a
//! part and its handles that are not free; the units follow from both. Small drawings omit the *details*, so a host
//! that was read for a small drawing has `None` there.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use foldhash::quality::FixedState;
use kilonova_compute_app::floor as service;
pub(crate) use kilonova_compute_app::floor::Amounts;
use kilonova_ids::{DeviceId, ResourceClass, ServerId};
use kilonova_wire::time::zulu;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Number of colours for owners.
pub(crate) const COLOURS: usize = 8;

/// A word from the service, such as a status.
type Word = Cow<'static, str>;

/// A host as the service reports it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Host {
    pub name: String,
    pub state: Word,
    pub forced_down: bool,
    pub status: Word,
    pub zone: String,
    pub aggregates: Vec<String>,
    pub servers: usize,
    pub inventories: BTreeMap<ResourceClass, Amounts>,
    pub devices: Vec<Device>,
    pub derived: Derived,
}

/// Values that are derived from a host and kept with it. They are not part of the host's state: comparisons ignore
/// them, and a copy of the host has none.
#[derive(Debug, Default)]
pub(crate) struct Derived {
    fingerprint: OnceLock<u64>,
    sums: OnceLock<Sums>,
    drawing: Mutex<Option<(DrawnFor, Arc<str>)>>,
}

/// The inputs of a host's drawing other than the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DrawnFor {
    /// The meaning of colours.
    pub colour: &'static str,
    /// The digest of the projects.
    pub projects: [u8; 32],
}

impl Clone for Derived {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Derived {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Derived {}

impl Hash for Derived {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// The units of a host, added up.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    /// By state.
    pub states: BTreeMap<Use, i64>,
    /// By resource class and state.
    pub classes: BTreeMap<ResourceClass, BTreeMap<Use, i64>>,
    /// Units in use with an owner's handle, by project.
    pub owners: BTreeMap<Arc<str>, i64>,
}

/// A device of a host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(crate) struct Device {
    /// The device; a detail.
    pub uuid: Option<DeviceId>,
    pub address: Arc<str>,
    pub card: Arc<str>,
    #[cfg_attr(test, serde(rename = "type"))]
    pub kind: Word,
    pub vendor_id: Arc<str>,
    pub product_id: Arc<str>,
    pub model: Arc<str>,
    pub numa_node: Option<i64>,
    /// The address of the PCIe switch above it; a detail.
    pub pcie_switch: Option<Arc<str>>,
    /// The first card of its NVLink island; a detail.
    pub island: Option<Arc<str>>,
    pub status: Word,
    pub present: bool,
    pub health: Word,
    /// A detail.
    pub health_reason: Option<String>,
    /// A detail.
    pub health_since: Option<String>,
    pub programming: bool,
    pub parts: Vec<Part>,
}

/// A part of a device that is scheduled on its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(crate) struct Part {
    pub resource_class: ResourceClass,
    pub total: i64,
    pub reserved: i64,
    pub used: i64,
    pub free: i64,
    pub handles: Vec<Handle>,
}

/// A handle that is not free.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(crate) struct Handle {
    pub state: Word,
    pub cleaning: bool,
    /// A detail.
    pub address: Option<Arc<str>>,
    /// A detail.
    pub mdev_type: Option<Arc<str>>,
    pub server: Option<ServerId>,
    /// A detail.
    pub server_name: Option<String>,
    pub project_id: Option<Arc<str>>,
}

/// The state of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    /// A server, or another consumer in the accelerator API, owns it.
    Owned,
    /// Allocated through Placement, without a handle of ours.
    WithoutHandle,
    /// It cannot be allocated until its host reports it clean.
    Dirty,
    /// It is being cleaned.
    Cleaning,
    /// An operator excluded it.
    Failed,
    /// Its device has failed.
    Unhealthy,
    /// Its device is administratively out of scheduling.
    Maintaining,
    /// Its device is being programmed.
    Programming,
    /// Its host no longer has the device.
    Absent,
    /// Excluded by another use of the same card, or by the operator.
    Reserved,
    /// A guest can get it.
    Free,
}

impl Use {
    /// All states, in the order of a legend.
    pub const ALL: [Self; 11] = [
        Self::Owned,
        Self::WithoutHandle,
        Self::Free,
        Self::Reserved,
        Self::Dirty,
        Self::Cleaning,
        Self::Programming,
        Self::Maintaining,
        Self::Unhealthy,
        Self::Failed,
        Self::Absent,
    ];

    /// True if it needs the attention of an operator.
    pub fn is_problem(self) -> bool {
        match self {
            Self::Owned | Self::WithoutHandle | Self::Reserved | Self::Free | Self::Programming => {
                false
            }
            Self::Dirty
            | Self::Cleaning
            | Self::Failed
            | Self::Unhealthy
            | Self::Maintaining
            | Self::Absent => true,
        }
    }
}

/// Equal units of a part: one unit with a handle that is not free, or several units without a handle.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unit<'a> {
    pub state: Use,
    pub count: i64,
    pub handle: Option<&'a Handle>,
    pub part: &'a Part,
}

/// The devices of one card, in the order of their addresses.
#[derive(Debug)]
pub(crate) struct Card<'a> {
    /// The card itself, or its first function.
    pub device: &'a Device,
    /// All its functions.
    pub functions: Vec<&'a Device>,
}

impl<'a> Card<'a> {
    /// Its units in the order of its functions; of each part, the owned units come first.
    pub fn units(&self) -> Vec<Unit<'a>> {
        self.functions.iter().flat_map(|device| units_of(device)).collect()
    }

    /// The worst health of its functions.
    pub fn health(&self) -> &'a str {
        let rank = |health: &str| match health {
            "healthy" => 0,
            "degraded" => 1,
            _ => 2,
        };
        let all = self.functions.iter().map(|device| &*device.health);
        all.max_by_key(|health| rank(health)).unwrap_or("healthy")
    }
}

/// The units of a device.
pub(crate) fn units_of(device: &Device) -> impl Iterator<Item = Unit<'_>> {
    device.parts.iter().flat_map(move |part| units_of_part(device, part))
}

fn units_of_part<'a>(device: &'a Device, part: &'a Part) -> Vec<Unit<'a>> {
    let unit = |state, count, handle| Unit { state, count, handle, part };
    let state_of = |handle: &Handle| match &*handle.state {
        "owned" => Use::Owned,
        "failed" => Use::Failed,
        _ if handle.cleaning => Use::Cleaning,
        _ => Use::Dirty,
    };
    let mut units: Vec<Unit<'a>> =
        part.handles.iter().map(|handle| unit(state_of(handle), 1, Some(handle))).collect();
    units.sort_by_key(|unit| unit.state);
    let owned = units.iter().filter(|unit| unit.state == Use::Owned).count();
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let mut left = part.total.saturating_sub(count(units.len())).max(0);
    let mut add = |state, wanted: i64, left: &mut i64| {
        let count = wanted.clamp(0, *left);
        if count > 0 {
            units.push(unit(state, count, None));
            *left -= count;
        }
    };
    add(Use::WithoutHandle, part.used.saturating_sub(count(owned)), &mut left);
    let withheld = left.saturating_sub(part.free.max(0));
    add(withheld_by(device), withheld, &mut left);
    let rest = left;
    add(Use::Free, rest, &mut left);
    units
}

/// The state of a device's unowned units that cannot be allocated.
fn withheld_by(device: &Device) -> Use {
    if !device.present {
        Use::Absent
    } else if device.health == "failed" {
        Use::Unhealthy
    } else if device.status == "maintaining" {
        Use::Maintaining
    } else if device.programming {
        Use::Programming
    } else {
        Use::Reserved
    }
}

/// The sort key of an address: PCI addresses (domain, bus, device, function) are in numerical order, and all other
/// addresses follow.
fn address_order(address: &str) -> ([u64; 4], &str) {
    let mut parts = address.split([':', '.']);
    let mut numbers = [0; 4];
    for number in &mut numbers {
        let part = parts.next().and_then(|part| u64::from_str_radix(part, 16).ok());
        let Some(part) = part else { return ([u64::MAX; 4], address) };
        *number = part;
    }
    (numbers, address)
}

impl Host {
    /// A host from a page of the service.
    pub fn of(floor: &service::Floor, shown: service::FloorHost) -> Self {
        let service::FloorHost { host, aggregates, servers, devices } = shown;
        let providers = floor.providers(&host);
        let own = providers.of(host.root).map(|(class, one)| (class.clone(), one));
        let state = if host.is_up(floor.at) { "up" } else { "down" };
        let status = if host.is_enabled() { "enabled" } else { "disabled" };
        Self {
            name: host.name.to_string(),
            state: state.into(),
            forced_down: host.is_forced_down(),
            status: status.into(),
            zone: host.zone(),
            aggregates,
            servers,
            inventories: own.collect(),
            devices: devices.into_iter().map(|one| Device::of(floor, &providers, one)).collect(),
            derived: Derived::default(),
        }
    }

    /// True if it is disabled.
    pub fn is_disabled(&self) -> bool {
        self.status == "disabled"
    }

    /// True if its agent reports.
    pub fn is_up(&self) -> bool {
        self.state == "up"
    }

    /// Its cards by NUMA node, in the order of their addresses. Cards without a known node come last.
    pub fn cards(&self) -> BTreeMap<(bool, i64), Vec<Card<'_>>> {
        let mut cards: BTreeMap<&str, Vec<&Device>> = BTreeMap::new();
        for device in &self.devices {
            cards.entry(&*device.card).or_default().push(device);
        }
        let mut nodes: BTreeMap<(bool, i64), Vec<Card<'_>>> = BTreeMap::new();
        for (address, mut functions) in cards {
            functions.sort_by_cached_key(|device| address_order(&device.address));
            let own = functions.iter().find(|device| *device.address == *address);
            let Some(device) = own.or(functions.first()).copied() else { continue };
            let node = (device.numa_node.is_none(), device.numa_node.unwrap_or_default());
            nodes.entry(node).or_default().push(Card { device, functions });
        }
        for cards in nodes.values_mut() {
            cards.sort_by_cached_key(|card| address_order(&card.device.card));
        }
        nodes
    }

    /// The models of its devices, without duplicates.
    pub fn models(&self) -> Vec<String> {
        let mut models: Vec<String> = self.devices.iter().map(model_of).collect();
        models.sort_unstable();
        models.dedup();
        models
    }

    /// True if it, or one of its devices, needs the attention of an operator.
    pub fn has_problem(&self) -> bool {
        let unhealthy = |device: &Device| device.health != "healthy" || !device.present;
        !self.is_up()
            || self.is_disabled()
            || self.devices.iter().any(unhealthy)
            || self.sums().states.keys().any(|state| state.is_problem())
    }

    /// Its units, added up once.
    pub fn sums(&self) -> &Sums {
        self.derived.sums.get_or_init(|| {
            let mut sums = Sums::default();
            for unit in self.devices.iter().flat_map(units_of) {
                *sums.states.entry(unit.state).or_default() += unit.count;
                let class = &unit.part.resource_class;
                let of_class = match sums.classes.get_mut(class) {
                    Some(known) => known,
                    None => sums.classes.entry(class.clone()).or_default(),
                };
                *of_class.entry(unit.state).or_default() += unit.count;
                if let (Use::Owned, Some(handle)) = (unit.state, unit.handle) {
                    let project = handle.project_id.clone().unwrap_or_default();
                    *sums.owners.entry(project).or_default() += 1;
                }
            }
            sums
        })
    }

    /// A digest of the state, computed once: two states that are drawn differently have different fingerprints.
    pub fn fingerprint(&self) -> u64 {
        *self.derived.fingerprint.get_or_init(|| {
            // The seed is fixed, so that the hash is the same on every controller of one build.
            FixedState::default().hash_one(self)
        })
    }

    /// Its drawing, drawn once for all readers with the same `key`.
    pub fn drawing(&self, key: DrawnFor, draw: impl FnOnce() -> String) -> Arc<str> {
        let lock = || self.derived.drawing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, drawn)) = lock().as_ref().filter(|(known, _)| *known == key) {
            return Arc::clone(drawn);
        }
        let drawn: Arc<str> = draw().into();
        *lock() = Some((key, Arc::clone(&drawn)));
        drawn
    }
}

impl Device {
    fn of(
        floor: &service::Floor,
        providers: &service::Providers<'_>,
        device: service::FloorDevice,
    ) -> Self {
        let part = |part: service::FloorPart| {
            let Amounts { total, reserved, used, free } = providers.of_part(&part);
            let handles = part.handles.into_iter().map(|handle| Handle {
                state: handle.state.as_str().into(),
                cleaning: handle.cleaning,
                address: handle.address,
                mdev_type: handle.mdev_type,
                server_name: handle.server.and_then(|id| floor.names.get(&id).cloned()),
                server: handle.server,
                project_id: handle.project,
            });
            let handles = handles.collect();
            Part { resource_class: part.resource_class, total, reserved, used, free, handles }
        };
        Self {
            uuid: device.device,
            address: device.address,
            card: device.card,
            kind: device.kind.as_str().into(),
            vendor_id: device.vendor_id,
            product_id: device.product_id,
            model: device.model,
            numa_node: device.numa_node,
            pcie_switch: device.switch,
            island: device.island,
            status: device.status.as_str().into(),
            present: device.present,
            health: device.health.as_str().into(),
            health_reason: device.reason,
            health_since: device.since.map(zulu),
            programming: device.programming,
            parts: device.parts.into_iter().map(part).collect(),
        }
    }
}

/// The suffix that `lspci` shows after the vendor of a product that it does not know.
const UNKNOWN: &str = " Device";

/// The displayed model of a device. The name in brackets replaces the whole model: `H100 SXM5 80GB` for
/// `NVIDIA Corporation GH100 [H100 SXM5 80GB]`. The PCI identifiers replace a model that names only the kind or the
/// vendor.
pub(crate) fn model_of(device: &Device) -> String {
    let model = &*device.model;
    let known = !model.is_empty() && device.kind != model && !model.ends_with(UNKNOWN);
    if !known {
        return format!("{}:{}", device.vendor_id, device.product_id);
    }
    product_of(model).to_owned()
}

/// The name in brackets of a model from `pci.ids`, or the whole model.
pub(crate) fn product_of(model: &str) -> &str {
    let product = model.rsplit_once('[').and_then(|(_, rest)| rest.strip_suffix(']'));
    product.filter(|product| !product.is_empty()).unwrap_or(model)
}

/// The projects of a cloud by their ids, each with its place in the order of their names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Projects {
    by_id: BTreeMap<String, (usize, String)>,
    /// A digest that differs between different lists.
    pub digest: [u8; 32],
}

impl Projects {
    /// Reads Keystone's list.
    pub fn of(list: &Value) -> Self {
        let all = list["projects"].as_array().into_iter().flatten();
        let text = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
        let mut all: Vec<(String, String)> =
            all.map(|one| (text(one, "name"), text(one, "id"))).collect();
        all.sort();
        let mut digest = Sha256::new();
        for text in all.iter().flat_map(|(name, id)| [name, id]) {
            digest.update(text.len().to_le_bytes());
            digest.update(text);
        }
        let numbered = all.into_iter().enumerate();
        let by_id = numbered.map(|(at, (name, id))| (id, (at, name))).collect();
        Self { by_id, digest: digest.finalize().into() }
    }

    /// The place of a project; a project that is not in the list has a place derived from its id.
    pub fn place(&self, id: &str) -> usize {
        self.by_id.get(id).map_or_else(|| number_of(id) % (26 * 26), |(at, _)| *at)
    }

    /// Its name, or its id.
    pub fn name<'a>(&'a self, id: &'a str) -> &'a str {
        self.by_id.get(id).map_or(id, |(_, name)| name)
    }
}

/// A number that depends only on the text.
pub(crate) fn number_of(text: &str) -> usize {
    let hash = Sha256::digest(text);
    hash.iter().take(3).fold(0, |number, byte| (number << 8) | usize::from(*byte))
}

/// The id of a page's element, derived from a text by a hash because names may contain any character.
pub(crate) fn key_of(text: &str) -> String {
    let first =
        Sha256::digest(text).iter().take(8).fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
    format!("{first:016x}")
}

/// The letters for a place: A to Z, AA, AB, …
pub(crate) fn letters(place: usize) -> String {
    let letter = |n: usize| char::from(b'A' + u8::try_from(n % 26).unwrap_or_default());
    match place / 26 {
        0 => letter(place).to_string(),
        more => [letter(more - 1), letter(place)].iter().collect(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// A UUID for a text.
    fn uuid_of(text: &str) -> String {
        let hash = Sha256::digest(text);
        let hex: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let group = |from, to| &hex[from..to];
        let groups = [group(0, 8), group(8, 12), group(12, 16), group(16, 20), group(20, 32)];
        groups.join("-")
    }

    /// A device with one part.
    pub(crate) fn device(address: &str, part: Value) -> Device {
        serde_json::from_value(json!({
            "uuid": uuid_of(address), "address": address, "card": address, "type": "GPU",
            "vendor_id": "10de", "product_id": "13bd", "model": "Tesla M10", "numa_node": 1,
            "status": "enabled", "present": true, "health": "healthy", "health_reason": null,
            "health_since": null, "programming": false, "parts": [part],
        }))
        .expect("it is a device")
    }

    #[test]
    fn a_model_is_the_name_of_the_product() {
        let mut one = device("0000:84:00.0", part([1, 0, 0, 1], json!([])));
        for (model, shown) in [
            ("Tesla M10", "Tesla M10"),
            ("NVIDIA Corporation GH100 [H100 SXM5 80GB]", "H100 SXM5 80GB"),
            (
                "Intel Corporation Ethernet Virtual Function 700 Series",
                "Intel Corporation Ethernet Virtual Function 700 Series",
            ),
            ("NVIDIA Corporation Device", "10de:13bd"),
            ("GPU", "10de:13bd"),
            ("", "10de:13bd"),
        ] {
            one.model = model.into();
            assert_eq!(model_of(&one), shown);
        }
    }

    pub(crate) fn part(amounts: [i64; 4], handles: Value) -> Value {
        let [total, reserved, used, free] = amounts;
        json!({"name": "p", "resource_class": "VGPU", "total": total, "reserved": reserved,
            "used": used, "free": free, "handles": handles})
    }

    pub(crate) fn handle(state: &str, server: Option<&str>) -> Value {
        json!({"state": state, "cleaning": false, "type": "MDEV", "address": "0000:84:00.0",
            "mdev_type": "nvidia-35", "server": server.map(uuid_of), "server_name": server,
            "project_id": server.map(|_| "red")})
    }

    pub(crate) fn host(name: &str, devices: Vec<Device>) -> Host {
        Host {
            name: name.to_owned(),
            state: "up".into(),
            forced_down: false,
            status: "enabled".into(),
            zone: "nova".into(),
            aggregates: vec![],
            servers: 0,
            inventories: BTreeMap::new(),
            devices,
            derived: Derived::default(),
        }
    }

    #[test]
    fn what_is_derived_from_a_host_is_no_part_of_it() {
        let owned = json!([handle("owned", Some("s"))]);
        let one = host("a", vec![device("0000:84:00.0", part([4, 0, 1, 3], owned))]);
        let key = DrawnFor { colour: "project", projects: Projects::default().digest };
        let drawn = one.drawing(key, || "first".to_owned());
        assert_eq!((&*drawn, &*one.drawing(key, || "again".to_owned())), ("first", "first"));
        let other = Projects::of(&json!({"projects": [{"id": "red", "name": "red"}]}));
        let key = DrawnFor { projects: other.digest, ..key };
        assert_eq!(
            &*one.drawing(key, || "second".to_owned()),
            "second",
            "another list of projects"
        );
        let mut copy = one.clone();
        assert_eq!((&copy, copy.fingerprint()), (&one, one.fingerprint()));
        assert_eq!(one.sums().owners, BTreeMap::from([("red".into(), 1)]));
        assert_eq!(one.sums().classes["VGPU"], BTreeMap::from([(Use::Owned, 1), (Use::Free, 3)]));
        copy = one.clone();
        copy.devices.clear();
        assert_ne!((&copy, copy.fingerprint()), (&one, one.fingerprint()));
        assert!(copy.sums().states.is_empty(), "a copy has sums of its own");
        assert_eq!(&*copy.drawing(key, || "its own".to_owned()), "its own");
    }

    fn counts(device: &Device) -> Vec<(Use, i64)> {
        units_of(device).map(|unit| (unit.state, unit.count)).collect()
    }

    #[test]
    fn units_follow_from_amounts_and_handles() {
        let handles =
            json!([handle("dirty", None), handle("owned", Some("s")), handle("failed", None)]);
        let one = device("0000:84:00.0", part([16, 3, 3, 10], handles));
        assert_eq!(
            counts(&one),
            [
                (Use::Owned, 1),
                (Use::Dirty, 1),
                (Use::Failed, 1),
                (Use::WithoutHandle, 2),
                (Use::Reserved, 1),
                (Use::Free, 10)
            ]
        );
        assert_eq!(counts(&one).iter().map(|(_, count)| count).sum::<i64>(), 16);
        // An amount that contradicts the handles does not draw a unit twice.
        let none = device("0000:84:00.0", part([1, 5, 9, -3], json!([handle("owned", None)])));
        assert_eq!(counts(&none), [(Use::Owned, 1)]);
        let mut cleaned = handle("dirty", None);
        cleaned["cleaning"] = true.into();
        let cleaned = device("0000:84:00.0", part([1, 1, 0, 0], json!([cleaned])));
        assert_eq!(counts(&cleaned), [(Use::Cleaning, 1)]);
    }

    #[test]
    fn what_is_withheld_has_a_reason() {
        let withheld = part([4, 4, 0, 0], json!([]));
        let mut one = device("0000:84:00.0", withheld);
        assert_eq!(counts(&one), [(Use::Reserved, 4)]);
        one.programming = true;
        assert_eq!(counts(&one), [(Use::Programming, 4)]);
        one.status = "maintaining".into();
        assert_eq!(counts(&one), [(Use::Maintaining, 4)]);
        one.health = "failed".into();
        assert_eq!(counts(&one), [(Use::Unhealthy, 4)]);
        one.present = false;
        assert_eq!(counts(&one), [(Use::Absent, 4)]);
        assert!(host("a", vec![one]).has_problem());
    }

    #[test]
    fn functions_are_parts_of_their_card_in_the_order_of_addresses() {
        let whole = || part([1, 0, 0, 1], json!([]));
        let mut devices = Vec::new();
        for address in ["0000:41:00.2", "0000:41:00.10", "0000:41:00.0", "0000:a:00.0", "mtty_mtty"]
        {
            let mut one = device(address, whole());
            if address.contains("41:") {
                one.card = "0000:41:00.0".into();
            }
            one.numa_node = (address != "mtty_mtty").then_some(0);
            devices.push(one);
        }
        let host = host("a", devices);
        let nodes = host.cards();
        assert_eq!(nodes.keys().collect::<Vec<_>>(), [&(false, 0), &(true, 0)]);
        let cards = &nodes[&(false, 0)];
        let of =
            |card: &Card<'_>| card.functions.iter().map(|one| one.address.to_string()).collect();
        let functions: Vec<Vec<String>> = cards.iter().map(of).collect();
        assert_eq!(functions[0], ["0000:a:00.0"]);
        assert_eq!(functions[1], ["0000:41:00.0", "0000:41:00.2", "0000:41:00.10"]);
        assert_eq!(&*cards[1].device.address, "0000:41:00.0");
    }

    #[test]
    fn projects_have_letters_in_the_order_of_their_names() {
        let list = json!({"projects": [{"id": "2", "name": "red"}, {"id": "1", "name": "blue"}]});
        let projects = Projects::of(&list);
        assert_eq!((projects.place("1"), projects.place("2")), (0, 1));
        assert_eq!((projects.name("2"), projects.name("gone")), ("red", "gone"));
        assert!(projects.place("gone") < 26 * 26);
        let all = [0, 25, 26, 27, 51, 52].map(letters);
        assert_eq!(all, ["A", "Z", "AA", "AB", "AZ", "BA"]);
    }
}

//! Kinds of devices; translates hosts and requests into states and shapes of these kinds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kilonova_engine::{Inventory, NodeView, TreeView};
use kilonova_ids::{ResourceClass, nearness};
use kilonova_packing::{Device, Host, Model, Models, Shape, WHOLE};

use super::demand::{Devices, Request};

/// Resource classes that are not devices. [`is_device`] also excludes network classes, by their prefixes.
const NO_DEVICES: [&str; 5] = ["VCPU", "PCPU", "MEMORY_MB", "DISK_GB", "MEM_ENCRYPTION_CONTEXT"];

/// True if units of a class are parts of devices.
pub fn is_device(class: &ResourceClass) -> bool {
    let class = class.as_str();
    !NO_DEVICES.contains(&class) && !class.starts_with("NET_") && !class.starts_with("IPV4_")
}

/// The traits that describe a device, sorted. Traits that describe its place are not included.
pub(crate) fn kind_traits(node: &NodeView<'_>) -> Vec<Arc<str>> {
    kind_and_island(node).0
}

/// The result of [`kind_traits`], and the trait of the device's island: the first by name if an operator has set
/// several.
fn kind_and_island<'a>(node: &NodeView<'a>) -> (Vec<Arc<str>>, Option<&'a str>) {
    let (mut traits, mut island) = (Vec::new(), None::<&'a str>);
    for name in node.traits() {
        if !nearness::is_place(name) {
            traits.push(Arc::clone(name));
        } else if name.starts_with(nearness::GPU_ISLAND)
            && island.is_none_or(|first| **name < *first)
        {
            island = Some(&**name);
        }
    }
    traits.sort_unstable();
    (traits, island)
}

/// The position of a name, which is added if it is new.
fn number<'a>(names: &mut Vec<&'a str>, name: &'a str) -> u16 {
    let at = names.iter().position(|known| *known == name).unwrap_or_else(|| {
        names.push(name);
        names.len() - 1
    });
    u16::try_from(at).unwrap_or(u16::MAX)
}

/// The free share of a device, in thousandths.
pub(super) fn free_of(inventory: &Inventory) -> u16 {
    let free = inventory.capacity().saturating_sub(inventory.used).max(0);
    let thousandths = free.saturating_mul(i64::from(WHOLE)) / inventory.total.max(1);
    u16::try_from(thousandths).unwrap_or(WHOLE).min(WHOLE)
}

/// The cards of a tree that have one provider for each of their types. The use of one type reduces the capacity of the
/// others.
///
/// Cards are recognized only by the names of their providers. A wrong name affects only preferences.
#[derive(Default)]
pub(super) struct Cards<'a>(BTreeMap<&'a str, (u32, u32)>);

impl<'a> Cards<'a> {
    pub(super) fn of(tree: &TreeView<'a>) -> Self {
        let several: BTreeSet<&str> =
            tree.nodes().filter_map(|node| without_type(node.name())).collect();
        let mut cards: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
        for node in tree.nodes() {
            let card = card_of(node.name());
            if !several.contains(card) {
                continue;
            }
            for (_, inventory) in node.inventories().filter(|(class, _)| is_device(class)) {
                let (sum, count) = cards.entry(card).or_default();
                *sum += u32::from(free_of(&inventory));
                *count += 1;
            }
        }
        Self(cards)
    }

    /// The mean free share, in thousandths, of the other types of a provider's card; 0 if there are none.
    pub(super) fn others(&self, name: &str, own: &Inventory) -> u16 {
        let card = self.0.get(card_of(name));
        let Some((sum, count)) = card.filter(|(_, count)| *count > 1) else { return 0 };
        let mean = sum.saturating_sub(u32::from(free_of(own))) / (count - 1);
        u16::try_from(mean).unwrap_or(WHOLE).min(WHOLE)
    }
}

/// The name of a provider's card. The provider of a card's first type may have the name of the card.
fn card_of(provider: &str) -> &str {
    without_type(provider).unwrap_or(provider)
}

/// The name without its type suffix: `gpu1_0000:41:00.0` for `gpu1_0000:41:00.0_nvidia-474`. `None` if it has none.
fn without_type(provider: &str) -> Option<&str> {
    let (card, number) = provider.rsplit_once("_nvidia-")?;
    number.parse::<u32>().is_ok().then_some(card)
}

/// A resource class with the traits of its providers, except for traits that describe a place.
#[derive(Debug)]
struct Kind {
    class: ResourceClass,
    /// Sorted.
    traits: Box<[Arc<str>]>,
    /// Units of one device.
    units: i64,
}

/// All kinds seen so far, by number. Model 0 stands for hosts without devices.
#[derive(Debug, Default)]
pub(super) struct Kinds(Vec<Kind>);

impl Kinds {
    /// The number of kinds.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The states of a host: one for each kind of its devices, or one if it has none.
    pub(super) fn hosts(&mut self, tree: &TreeView<'_>) -> Vec<Host> {
        let (mut cpu, mut memory) = (0_i64, 0_i64);
        let cards = Cards::of(tree);
        let mut devices: BTreeMap<Model, Vec<Device>> = BTreeMap::new();
        let mut islands: Vec<&str> = Vec::new();
        for node in tree.nodes() {
            for (class, inventory) in node.inventories() {
                let free = inventory.capacity().saturating_sub(inventory.used).max(0);
                match class.as_str() {
                    "VCPU" | "PCPU" => cpu += free,
                    "MEMORY_MB" => memory += free,
                    _ if node.parent().is_some() && is_device(class) => {
                        let (traits, island) = kind_and_island(&node);
                        let model = self.model(class, traits, inventory.total);
                        let others = cards.others(node.name(), &inventory);
                        let island = island.map(|name| number(&mut islands, name));
                        let device = Device { free: free_of(&inventory), others, island };
                        devices.entry(model).or_default().push(device);
                    }
                    _ => {}
                }
            }
        }
        let (cpu, memory) = (thousandths(cpu), u32::try_from(memory).unwrap_or(u32::MAX));
        if devices.is_empty() {
            return vec![Host::new(cpu, memory, Model(0), Vec::new())];
        }
        let host = |(model, devices)| Host::of_devices(cpu, memory, model, devices);
        devices.into_iter().map(host).collect()
    }

    fn model(&mut self, class: &ResourceClass, traits: Vec<Arc<str>>, units: i64) -> Model {
        let is_known =
            |kind: &Kind| kind.class == *class && kind.units == units && *kind.traits == *traits;
        let at = self.0.iter().position(is_known).unwrap_or_else(|| {
            self.0.push(Kind { class: class.clone(), traits: traits.into(), units });
            self.0.len() - 1
        });
        Model(u8::try_from(at + 1).unwrap_or(u8::MAX))
    }

    /// The shape of a request. `None` if no known device serves it.
    pub(super) fn shape(&self, request: &Request) -> Option<Shape> {
        let cpu = thousandths(request.vcpus);
        let memory = u32::try_from(request.memory_mb).unwrap_or(u32::MAX);
        let Some(devices) = &request.devices else {
            return Some(Shape { cpu, memory, count: 0, share: 0, models: Models::ANY });
        };
        let serving = || self.0.iter().enumerate().filter(|(_, kind)| kind.serves(devices));
        // Uses the device with the fewest units, so that no device appears to hold more than it
        // can. The share is rounded down like the free part, so that the last unit of a device
        // remains usable.
        let units = serving().map(|(_, kind)| kind.units.max(1)).min()?;
        let share = devices.amount.saturating_mul(i64::from(WHOLE)) / units;
        let share = u16::try_from(share).ok().filter(|share| *share <= WHOLE)?.max(1);
        let models = serving().map(|(at, _)| Model(u8::try_from(at + 1).unwrap_or(u8::MAX)));
        Some(Shape { cpu, memory, count: devices.count, share, models: Models::of(models) })
    }
}

impl Kind {
    fn serves(&self, devices: &Devices) -> bool {
        let has = |name: &String| {
            self.traits.binary_search_by(|known| known.as_ref().cmp(name.as_str())).is_ok()
        };
        self.class == devices.class
            && self.units >= devices.amount
            && devices.required.iter().all(|clause| clause.iter().any(has))
            && !devices.forbidden.iter().any(has)
    }
}

fn thousandths(amount: i64) -> u32 {
    u32::try_from(amount.saturating_mul(1000)).unwrap_or(u32::MAX)
}

//! The mediated devices and typed virtual functions of a simulated host: the existing ones, the
//! number that still fits, and their files.
//!
//! A card is a pool: with exclusive types, a type in use excludes the others; otherwise each device takes its share of
//! the card. A virtual function holds one device, and its card is the pool. On a card in MIG mode a device needs a GPU
//! instance, which occupies a legal place of its own.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use kilonova_devices::KernelObject;
use kilonova_hypervisor::{list_whole, write_atomically};
use kilonova_node_api::{GpuInstance, MigPlacement};
use kilonova_packing::mig::{Geometry, Instances, Placement};
use uuid::Uuid;

use crate::topology::Tree;

/// Linux error numbers. The kernel's mdev core returns EUSERS when a type is full.
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const EUSERS: i32 = 87;

/// Prefix of the file names of GPU instances.
const MIG: &str = "mig-";

/// Slot and type index.
pub(super) type Kind = (u16, u16);

pub(super) struct Mdevs {
    /// The directory of the devices, in mdevctl's format; `None` stores nothing.
    folder: Option<PathBuf>,
    made: BTreeMap<Uuid, Kind>,
    /// Types of the virtual functions that have a type instead of mediated devices, by slot.
    typed: BTreeMap<u16, u16>,
    /// GPU instances of cards in MIG mode, by the card's slot.
    instances: BTreeMap<u16, Instances>,
    /// Number of further creations that will fail; `None` means all.
    failures: Option<u32>,
}

impl Mdevs {
    /// A host without devices and without files.
    pub(super) fn empty() -> Self {
        Self {
            folder: None,
            made: BTreeMap::new(),
            typed: BTreeMap::new(),
            instances: BTreeMap::new(),
            failures: Some(0),
        }
    }

    /// Reads the devices of a host. A card that the host has lost took its devices with it, as with the kernel, so they
    /// do not exist when the card returns.
    pub(super) fn open(folder: PathBuf, tree: &Tree, failures: Option<u32>) -> io::Result<Self> {
        let mut mdevs = Self { folder: Some(folder.clone()), failures, ..Self::empty() };
        for path in list_whole(&folder)? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some(file) = DeviceFile::of(name) else { continue };
            let text = std::fs::read_to_string(&path)?;
            let text = text.trim_end();
            if mdevs.add(tree, &file, text) {
                continue;
            }
            match file.card(text).filter(|card| tree.by_address(card).is_none()) {
                Some(card) => {
                    tracing::warn!(device = name, %card, "removing a device whose card the host no longer has");
                    std::fs::remove_file(&path)?;
                }
                None => {
                    tracing::warn!(
                        device = name,
                        content = text,
                        "ignoring a device that does not fit the device tree"
                    );
                }
            }
        }
        Ok(mdevs)
    }

    /// Adds the device of a file; false if the device tree has no such device.
    fn add(&mut self, tree: &Tree, file: &DeviceFile, text: &str) -> bool {
        match file {
            DeviceFile::Function(address) => {
                let known = kind(tree, address, text);
                self.typed.extend(known);
                known.is_some()
            }
            DeviceFile::Mdev(uuid) => {
                let known = text.split_once(' ').and_then(|(parent, id)| kind(tree, parent, id));
                self.made.extend(known.map(|kind| (*uuid, kind)));
                known.is_some()
            }
            DeviceFile::Instance => instance(tree, text).is_some_and(|(slot, profile, place)| {
                self.instances.entry(slot).or_default().add(profile, place)
            }),
        }
    }

    pub(super) fn get(&self, uuid: Uuid) -> Option<Kind> {
        self.made.get(&uuid).copied()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (Uuid, Kind)> {
        self.made.iter().map(|(uuid, kind)| (*uuid, *kind))
    }

    pub(super) fn available(&self, tree: &Tree, (slot, wanted): Kind) -> u32 {
        let pool_of =
            |slot: u16| tree.slots[usize::from(slot)].physical.unwrap_or(usize::from(slot));
        let card = &tree.slots[usize::from(slot)].card;
        if let Some(geometry) = &card.mig {
            return self.available_instances(tree, geometry, (slot, wanted));
        }
        let instances = |kind: u16| u64::from(card.types[usize::from(kind)].instances);
        let typed = self.typed.iter().map(|(slot, kind)| (*slot, *kind));
        let in_pool: Vec<Kind> = self
            .made
            .values()
            .copied()
            .chain(typed)
            .filter(|made| pool_of(made.0) == pool_of(slot))
            .collect();
        let room = if card.exclusive {
            if in_pool.iter().any(|made| made.1 != wanted) {
                return 0;
            }
            instances(wanted).saturating_sub(in_pool.len() as u64)
        } else {
            let parts = card
                .types
                .iter()
                .map(|one| u64::from(one.instances))
                .fold(1, least_common_multiple);
            let taken: u64 = in_pool.iter().map(|made| parts / instances(made.1)).sum();
            parts.saturating_sub(taken) / (parts / instances(wanted))
        };
        let is_virtual = tree.slots[usize::from(slot)].physical.is_some();
        let most = match (is_virtual, in_pool.iter().any(|made| made.0 == slot)) {
            (true, true) => 0,
            (true, false) => 1,
            (false, _) => u64::MAX,
        };
        room.min(most).try_into().unwrap_or(u32::MAX)
    }

    /// 1 if a function can get a type that needs a GPU instance, because it has no type and its
    /// card has an unused instance of the profile; otherwise 0.
    fn available_instances(&self, tree: &Tree, geometry: &Geometry, (slot, kind): Kind) -> u32 {
        let here = &tree.slots[usize::from(slot)];
        let profile = here.card.types[usize::from(kind)].mig_profile.as_deref();
        let (Some(card), Some(profile)) =
            (here.physical, profile.and_then(|one| geometry.find(one)))
        else {
            return 0;
        };
        if self.typed.contains_key(&slot) {
            return 0;
        }
        let there = u16::try_from(card).map_or(0, |card| self.count(card, profile));
        let free = there.saturating_sub(self.used(tree, card, profile));
        u32::from(free > 0)
    }

    /// The GPU instances of a card: profile and place.
    pub(super) fn placed(&self, card: usize) -> &[(usize, Placement)] {
        let instances = u16::try_from(card).ok().and_then(|card| self.instances.get(&card));
        instances.map_or(&[], Instances::placed)
    }

    /// The number of GPU instances of a profile on a card.
    fn count(&self, card: u16, profile: usize) -> usize {
        self.instances.get(&card).map_or(0, |instances| instances.count(profile))
    }

    /// True if a card has this GPU instance.
    fn has(&self, card: u16, profile: usize, place: Placement) -> bool {
        let on_card = self.instances.get(&card);
        on_card.is_some_and(|instances| instances.placed().contains(&(profile, place)))
    }

    /// The number of a card's functions with a type that needs an instance of a profile.
    fn used(&self, tree: &Tree, card: usize, profile: usize) -> usize {
        let Some(geometry) = &tree.slots[card].card.mig else { return 0 };
        let is_of = |(slot, kind): &(&u16, &u16)| {
            let here = &tree.slots[usize::from(**slot)];
            let of =
                here.card.types.get(usize::from(**kind)).and_then(|one| one.mig_profile.as_deref());
            here.physical == Some(card) && of.and_then(|of| geometry.find(of)) == Some(profile)
        };
        self.typed.iter().filter(is_of).count()
    }

    /// Creates a GPU instance at a legal place with free slices, as the driver does.
    pub(super) fn create_instance(&mut self, tree: &Tree, new: &GpuInstance) -> Result<(), String> {
        let (card, geometry, profile) = place(tree, new)?;
        let place = Placement { start: new.place.start, size: new.place.size };
        if self.has(card, profile, place) {
            return Ok(());
        }
        self.fail().map_err(|error| error.to_string())?;
        let profiles = geometry.profiles();
        if !profiles[profile].placements.contains(&place) {
            return Err(format!(
                "{} slices from slice {} are not a legal place for the profile",
                place.size, place.start
            ));
        }
        if self.count(card, profile) >= usize::from(profiles[profile].most) {
            return Err("Insufficient Resources".to_owned());
        }
        let mut instances = self.instances.get(&card).cloned().unwrap_or_default();
        if !instances.add(profile, place) {
            return Err("Insufficient Resources: its slices are occupied".to_owned());
        }
        if let Some(file) = self.instance_file(new) {
            let text = format!("{}\n", KernelObject::Instance(new.clone()));
            write_atomically(&file, text.as_bytes()).map_err(|error| error.to_string())?;
        }
        self.instances.insert(card, instances);
        Ok(())
    }

    /// Destroys a GPU instance that no function uses.
    pub(super) fn destroy_instance(
        &mut self,
        tree: &Tree,
        old: &GpuInstance,
    ) -> Result<(), String> {
        let (card, _, profile) = place(tree, old)?;
        let place = Placement { start: old.place.start, size: old.place.size };
        if !self.has(card, profile, place) {
            return Ok(());
        }
        if self.used(tree, usize::from(card), profile) >= self.count(card, profile) {
            return Err("In use by another client".to_owned());
        }
        if let Some(file) = self.instance_file(old) {
            match std::fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error.to_string());
                }
                _ => {}
            }
        }
        if let Some(instances) = self.instances.get_mut(&card) {
            instances.remove(place);
        }
        Ok(())
    }

    fn instance_file(&self, of: &GpuInstance) -> Option<PathBuf> {
        let folder = self.folder.as_ref()?;
        Some(folder.join(format!("{MIG}{}-{}", of.card, of.place.start)))
    }

    pub(super) fn create(&mut self, tree: &Tree, kind: Kind, value: &str) -> io::Result<()> {
        let uuid =
            Uuid::try_parse(value.trim_end()).map_err(|_| io::Error::from_raw_os_error(EINVAL))?;
        self.fail()?;
        if self.made.contains_key(&uuid) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if self.available(tree, kind) == 0 {
            return Err(io::Error::from_raw_os_error(EUSERS));
        }
        if let Some(folder) = &self.folder {
            let slot = &tree.slots[usize::from(kind.0)];
            let text = format!("{} {}\n", slot.address, slot.card.types[usize::from(kind.1)].id);
            write_atomically(&folder.join(uuid.to_string()), text.as_bytes())?;
        }
        self.made.insert(uuid, kind);
        Ok(())
    }

    /// Fails if an injected failure remains, and consumes it.
    fn fail(&mut self) -> io::Result<()> {
        match &mut self.failures {
            Some(0) => return Ok(()),
            Some(times) => *times -= 1,
            None => {}
        }
        Err(io::Error::from_raw_os_error(EINVAL))
    }

    /// The type of a virtual function without mediated devices.
    pub(super) fn type_of(&self, slot: usize) -> Option<u16> {
        self.typed.get(&u16::try_from(slot).ok()?).copied()
    }

    /// Sets a virtual function's type by its number; 0 clears it.
    pub(super) fn set_type(&mut self, tree: &Tree, slot: usize, value: &str) -> io::Result<()> {
        let wrong = || io::Error::from_raw_os_error(EINVAL);
        let number: u32 = value.trim().parse().map_err(|_| wrong())?;
        let here = &tree.slots[slot];
        let at = u16::try_from(slot).map_err(|_| wrong())?;
        let file = self.folder.as_ref().map(|folder| folder.join(&here.address));
        if number == 0 {
            if let Some(file) = file.filter(|_| self.typed.contains_key(&at)) {
                match std::fs::remove_file(file) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            self.typed.remove(&at);
            return Ok(());
        }
        self.fail()?;
        let id = format!("nvidia-{number}");
        let kind = here.card.types.iter().position(|one| one.id == id).ok_or_else(wrong)?;
        let kind = u16::try_from(kind).map_err(|_| wrong())?;
        if self.typed.contains_key(&at) || self.available(tree, (at, kind)) == 0 {
            return Err(io::Error::from_raw_os_error(EBUSY));
        }
        if let Some(file) = file {
            write_atomically(&file, format!("{id}\n").as_bytes())?;
        }
        self.typed.insert(at, kind);
        Ok(())
    }

    pub(super) fn remove(&mut self, uuid: Uuid) -> io::Result<()> {
        if !self.made.contains_key(&uuid) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if let Some(folder) = &self.folder {
            match std::fs::remove_file(folder.join(uuid.to_string())) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.made.remove(&uuid);
        Ok(())
    }
}

/// The card's slot, its geometry and the profile of a GPU instance, or the reason for a refusal.
fn place<'a>(tree: &'a Tree, of: &GpuInstance) -> Result<(u16, &'a Geometry, usize), String> {
    let card = tree.by_address(&of.card).ok_or("there is no such card")?;
    let geometry = tree.slots[card].card.mig.as_ref().ok_or("MIG mode is not enabled")?;
    let profile = geometry.find(&of.profile).ok_or("the card has no such profile")?;
    let slot = u16::try_from(card).map_err(|_| "the slot number is too large")?;
    Ok((slot, geometry, profile))
}

/// A file that stores one device, by its name.
enum DeviceFile {
    /// The type of a virtual function: `<address>`, with the type.
    Function(String),
    /// A mediated device: `<uuid>`, with its parent and its type.
    Mdev(Uuid),
    /// A GPU instance: `mig-<card>-<start>`, with the instance.
    Instance,
}

impl DeviceFile {
    /// `None` for a file that stores no device.
    fn of(name: &str) -> Option<Self> {
        if name.starts_with(MIG) {
            return Some(Self::Instance);
        }
        match Uuid::try_parse(name) {
            Ok(uuid) => Some(Self::Mdev(uuid)),
            Err(_) => name.contains(':').then(|| Self::Function(name.to_owned())),
        }
    }

    /// The address of the device's card, or of its function, as the file names it.
    fn card(&self, text: &str) -> Option<String> {
        match self {
            Self::Function(address) => Some(address.clone()),
            Self::Mdev(_) => text.split_once(' ').map(|(parent, _)| parent.to_owned()),
            Self::Instance => match text.parse() {
                Ok(KernelObject::Instance(instance)) => Some(instance.card),
                Ok(KernelObject::Mdev(_) | KernelObject::Vgpu(_)) | Err(_) => None,
            },
        }
    }
}

/// Reads the file of a GPU instance.
fn instance(tree: &Tree, text: &str) -> Option<(u16, usize, Placement)> {
    let Ok(KernelObject::Instance(instance)) = text.parse() else { return None };
    let (card, _, profile) = place(tree, &instance).ok()?;
    let MigPlacement { start, size } = instance.place;
    Some((card, profile, Placement { start, size }))
}

fn kind(tree: &Tree, parent: &str, id: &str) -> Option<Kind> {
    let slot = tree.by_address(parent)?;
    let kind = tree.slots[slot].card.types.iter().position(|one| one.id == id)?;
    Some((u16::try_from(slot).ok()?, u16::try_from(kind).ok()?))
}

fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a.checked_div(x).unwrap_or(1).saturating_mul(b).max(1)
}

//! The mediated devices and typed virtual functions of a simulated host: which exist, how many more
//! fit, and their files.
//!
//! A card is a pool: with exclusive types, a type in use excludes the others; otherwise each device
//! takes its share of the card. A virtual function holds one device, and its card is the pool.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use kilonova_hypervisor::{list_whole, write_atomically};
use uuid::Uuid;

use crate::topology::Tree;

/// Linux error numbers. The kernel's mdev core returns EUSERS when a type is full.
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const EUSERS: i32 = 87;

/// Slot and type index.
pub(super) type Kind = (u16, u16);

pub(super) struct Mdevs {
    /// The directory of the devices, in mdevctl's format; `None` stores nothing.
    folder: Option<PathBuf>,
    made: BTreeMap<Uuid, Kind>,
    /// Types of virtual functions with a type but without mediated devices, by slot.
    typed: BTreeMap<u16, u16>,
    /// Creations that still have to fail; `None` means all.
    failures: Option<u32>,
}

impl Mdevs {
    /// Without devices and without files.
    pub(super) fn empty() -> Self {
        Self { folder: None, made: BTreeMap::new(), typed: BTreeMap::new(), failures: Some(0) }
    }

    pub(super) fn open(folder: PathBuf, tree: &Tree, failures: Option<u32>) -> io::Result<Self> {
        let (mut made, mut typed) = (BTreeMap::new(), BTreeMap::new());
        for path in list_whole(&folder)? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if tree.by_address(name).is_some() {
                let id = std::fs::read_to_string(&path)?;
                if let Some((slot, kind)) = kind(tree, name, id.trim_end()) {
                    typed.insert(slot, kind);
                }
                continue;
            }
            let Ok(uuid) = Uuid::try_parse(name) else { continue };
            let text = std::fs::read_to_string(&path)?;
            let kind =
                text.trim_end().split_once(' ').and_then(|(parent, id)| kind(tree, parent, id));
            match kind {
                Some(kind) => drop(made.insert(uuid, kind)),
                None => {
                    tracing::warn!(%uuid, "ignoring a mediated device that does not fit the device tree")
                }
            }
        }
        Ok(Self { folder: Some(folder), made, typed, failures })
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

    /// Fails if a planned failure is left.
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

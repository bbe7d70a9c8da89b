//! The simulated sysfs. Attributes are rendered when read; memory holds only the shared tree and
//! the existing mediated devices.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kilonova_devices::{Error, InstanceProfile, InstanceType, MigCard, MigDriver, Sysfs, refused};
use kilonova_node_api::{GpuInstance, MigPlacement};
use kilonova_packing::mig::{Placement, Profile};

use super::faults::Faults;
use super::loaded::Loaded;
use super::render::{DeviceFile, Node, TypeFile, VgpuFile, last, real, resolve};
use super::state::Mdevs;
use crate::topology::{MdevType, Tree};

/// The sysfs of a simulated host.
pub struct SimulatedSysfs {
    tree: Arc<Tree>,
    mdevs: Mutex<Mdevs>,
    loaded: Mutex<Loaded>,
    faults: Faults,
    create_time: Duration,
}

impl SimulatedSysfs {
    /// Opens a simulated sysfs with the mediated devices in `folder`; the functions of bitstreams
    /// are in a directory next to it.
    pub fn open(
        tree: Arc<Tree>,
        folder: PathBuf,
        create_time: Duration,
        failures: Option<u32>,
    ) -> io::Result<Self> {
        let faults = Faults::below(folder.with_file_name("sysfs"));
        let loaded = Loaded::open(folder.with_file_name("functions"), &tree)?;
        let mdevs = Mdevs::open(folder, &tree, failures)?;
        Ok(Self { tree, mdevs: Mutex::new(mdevs), loaded: Mutex::new(loaded), faults, create_time })
    }

    /// A simulated sysfs without files: its mediated devices exist only in memory.
    pub fn in_memory(tree: Arc<Tree>) -> Self {
        let (mdevs, loaded) = (Mutex::new(Mdevs::empty()), Mutex::new(Loaded::empty()));
        Self { tree, mdevs, loaded, faults: Faults::default(), create_time: Duration::ZERO }
    }

    /// Loads a bitstream into a card, as its tool would. `function` is the id that the kernel
    /// shows.
    pub fn load(&self, address: &str, function: Option<&str>) -> io::Result<()> {
        let slot = self.tree.by_address(address).ok_or(io::ErrorKind::NotFound)?;
        let Some(function) = function else { return Ok(()) };
        self.loaded().load(&self.tree, slot, function)
    }

    fn loaded(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mdevs(&self) -> MutexGuard<'_, Mdevs> {
        self.mdevs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn vgpu_file(&self, mdevs: &Mdevs, slot: usize, file: VgpuFile) -> String {
        let types = &self.tree.slots[slot].card.types;
        let number = |id: &str| id.rsplit('-').next().unwrap_or_default().to_owned();
        let current = mdevs.type_of(slot);
        match file {
            VgpuFile::Current => current
                .and_then(|kind| types.get(usize::from(kind)))
                .map_or_else(|| "0".to_owned(), |one| number(&one.id)),
            VgpuFile::Creatable => {
                let mut text = "ID    : vGPU Name".to_owned();
                for (index, one) in types.iter().enumerate() {
                    let kind = u16::try_from(slot).ok().zip(u16::try_from(index).ok());
                    if kind.is_some_and(|kind| mdevs.available(&self.tree, kind) > 0) {
                        text.push_str(&format!("\n{:<5} : {}", number(&one.id), one.name));
                    }
                }
                text
            }
        }
    }

    fn resolve(&self, mdevs: &Mdevs, path: &str) -> io::Result<Node> {
        resolve(&self.tree, mdevs, path).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Sysfs for SimulatedSysfs {
    fn read_bytes(&self, path: &str, most: usize) -> io::Result<Vec<u8>> {
        let mut bytes = match self.faults.content(path) {
            Some(content) => content?,
            None => self.read(path)?.into_bytes(),
        };
        bytes.truncate(most);
        Ok(bytes)
    }

    fn read(&self, path: &str) -> io::Result<String> {
        if let Some(content) = self.faults.content(path) {
            return Ok(String::from_utf8_lossy(&content?).trim_end().to_owned());
        }
        let mdevs = self.mdevs();
        match self.resolve(&mdevs, path)? {
            Node::DeviceFile(slot, file) => {
                let slot = &self.tree.slots[slot];
                Ok(match file {
                    DeviceFile::Vendor => format!("0x{}", slot.card.vendor),
                    DeviceFile::Product => format!("0x{}", slot.product()),
                    DeviceFile::Class => format!("0x{}", slot.card.class),
                    DeviceFile::NumaNode => slot.numa_node.to_string(),
                })
            }
            Node::TypeFile(kind, file) => {
                let one = &self.tree.slots[usize::from(kind.0)].card.types[usize::from(kind.1)];
                match file {
                    TypeFile::Name => Ok(one.name.clone()),
                    TypeFile::Description => Ok(one.description.clone()),
                    TypeFile::DeviceApi => Ok(one.device_api.clone()),
                    TypeFile::AvailableInstances => {
                        Ok(mdevs.available(&self.tree, kind).to_string())
                    }
                    TypeFile::Create => Err(io::ErrorKind::PermissionDenied.into()),
                }
            }
            Node::VgpuFile(slot, file) => Ok(self.vgpu_file(&mdevs, slot, file)),
            Node::File(slot, path) => {
                let loaded = self.loaded();
                let shown = loaded.shown(&self.tree, slot, &path);
                let shown = shown.or_else(|| self.tree.slots[slot].files().get(&path));
                Ok(shown.cloned().unwrap_or_default())
            }
            Node::Remove(_) => Err(io::ErrorKind::PermissionDenied.into()),
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let mdevs = self.mdevs();
        let slots = self.tree.slots.iter();
        let mut names: Vec<String> = match self.resolve(&mdevs, path)? {
            Node::Parents => slots
                .filter(|slot| slot.is_parent())
                .map(|slot| last(&slot.path).to_owned())
                .collect(),
            Node::Functions => {
                // Every scan begins with this list.
                self.faults.begin_scan();
                slots.filter(|slot| slot.is_pci()).map(|slot| slot.address.clone()).collect()
            }
            Node::Mdevs => mdevs.all().map(|(uuid, _)| uuid.to_string()).collect(),
            Node::Types(slot) => {
                self.tree.slots[slot].card.types.iter().map(|one| one.id.clone()).collect()
            }
            Node::Type(_) => {
                words(&["name", "description", "device_api", "available_instances", "create"])
            }
            Node::Mdev(..) => words(&["mdev_type", "remove"]),
            Node::Driver(_) => Vec::new(),
            Node::Device(slot) => {
                let here = &self.tree.slots[slot];
                let mut names = if here.is_pci() {
                    words(&["vendor", "device", "class", "numa_node"])
                } else {
                    Vec::new()
                };
                names.extend((!here.card.driver.is_empty()).then(|| "driver".to_owned()));
                names.extend(here.physical.map(|_| "physfn".to_owned()));
                names.extend((0..here.virtuals.len()).map(|number| format!("virtfn{number}")));
                names.extend(here.is_parent().then(|| "mdev_supported_types".to_owned()));
                names.extend(here.has_vfio_types().then(|| "nvidia".to_owned()));
                names.extend(children(here.files().keys(), ""));
                names.extend(
                    mdevs
                        .all()
                        .filter(|(_, kind)| usize::from(kind.0) == slot)
                        .map(|(uuid, _)| uuid.to_string()),
                );
                names
            }
            Node::Vgpu(_) => words(&["creatable_vgpu_types", "current_vgpu_type"]),
            Node::Folder(slot, path) => {
                children(self.tree.slots[slot].files().keys(), &format!("{path}/"))
            }
            Node::DeviceFile(..)
            | Node::TypeFile(..)
            | Node::VgpuFile(..)
            | Node::File(..)
            | Node::Remove(_) => {
                return Err(io::ErrorKind::NotADirectory.into());
            }
        };
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn write(&self, path: &str, value: &str) -> io::Result<()> {
        let mut mdevs = self.mdevs();
        match self.resolve(&mdevs, path)? {
            Node::TypeFile(kind, TypeFile::Create) => {
                if !self.create_time.is_zero() {
                    drop(mdevs);
                    std::thread::sleep(self.create_time);
                    mdevs = self.mdevs();
                }
                mdevs.create(&self.tree, kind, value)
            }
            Node::VgpuFile(slot, VgpuFile::Current) => {
                if !self.create_time.is_zero() {
                    drop(mdevs);
                    std::thread::sleep(self.create_time);
                    mdevs = self.mdevs();
                }
                mdevs.set_type(&self.tree, slot, value)
            }
            Node::Remove(uuid) if value.trim_end() == "1" => mdevs.remove(uuid),
            Node::Remove(_) => Err(io::ErrorKind::InvalidInput.into()),
            _ => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    fn exists(&self, path: &str) -> bool {
        resolve(&self.tree, &self.mdevs(), path).is_some()
    }

    fn real(&self, path: &str) -> io::Result<String> {
        if let Some(driver) = self.faults.driver(path) {
            return driver;
        }
        let node = self.resolve(&self.mdevs(), path)?;
        match node {
            Node::DeviceFile(..) | Node::TypeFile(..) | Node::VgpuFile(..) | Node::Remove(_) => {
                Ok(format!("{}/{}", real(&self.tree, &node), last(path)))
            }
            _ => Ok(real(&self.tree, &node)),
        }
    }
}

impl MigDriver for SimulatedSysfs {
    fn cards(&self) -> Result<Vec<MigCard>, Error> {
        let mdevs = self.mdevs();
        let slots = self.tree.slots.iter().enumerate().filter(|(_, slot)| slot.physical.is_none());
        let cards = slots.filter_map(|(at, slot)| {
            let geometry = slot.card.mig.as_ref()?;
            let place = |one: &Placement| MigPlacement { start: one.start, size: one.size };
            let profile = |one: &Profile| InstanceProfile {
                name: one.name.clone(),
                most: one.most,
                placements: one.placements.iter().map(place).collect(),
            };
            let vgpu_type = |one: &MdevType| {
                let (id, name) = (one.id.clone(), one.name.clone());
                Some(InstanceType { id, name, profile: one.mig_profile.clone()? })
            };
            let instance = |(of, at): &(usize, Placement)| GpuInstance {
                card: slot.address.clone(),
                profile: geometry.profiles()[*of].name.clone(),
                place: place(at),
            };
            Some(MigCard {
                address: slot.address.clone(),
                slices: geometry.slices(),
                profiles: geometry.profiles().iter().map(profile).collect(),
                types: slot.card.types.iter().filter_map(vgpu_type).collect(),
                instances: mdevs.placed(at).iter().map(instance).collect(),
                unreadable: None,
            })
        });
        Ok(cards.collect())
    }

    fn create(&self, instance: &GpuInstance) -> Result<(), Error> {
        if !self.create_time.is_zero() {
            std::thread::sleep(self.create_time);
        }
        let created = self.mdevs().create_instance(&self.tree, instance);
        created.map_err(|why| refused(instance, why))
    }

    fn destroy(&self, instance: &GpuInstance) -> Result<(), Error> {
        let destroyed = self.mdevs().destroy_instance(&self.tree, instance);
        destroyed.map_err(|why| refused(instance, why))
    }
}

/// The names directly below a directory among these paths.
fn children<'a>(paths: impl Iterator<Item = &'a String>, folder: &str) -> Vec<String> {
    let mut names: Vec<String> = paths
        .filter_map(|path| path.strip_prefix(folder)?.split('/').next())
        .map(str::to_owned)
        .collect();
    names.dedup();
    names
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
#[path = "sysfs_tests.rs"]
mod tests;

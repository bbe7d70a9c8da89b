//! Mediated devices: parents, existing devices, creating and removing one.
//!
//! It never chooses a UUID, a parent or a type. Creating an existing device and removing an absent
//! one succeed, because the caller may repeat a step after a crash.

use std::io::ErrorKind;

use uuid::Uuid;

use crate::{DeviceProblem, Error, PciAddress, Sysfs};

const PARENTS: &str = "class/mdev_bus";
const MDEVS: &str = "bus/mdev/devices";

/// An mdev parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// `0000:84:00.0`, or `mtty_mtty` for a virtual one.
    pub address: String,
    /// Its directory, with links resolved.
    pub path: String,
}

impl Parent {
    /// The types it offers, sorted.
    pub fn types(&self, sysfs: &dyn Sysfs) -> Vec<String> {
        sysfs.list(&format!("{}/mdev_supported_types", self.path)).unwrap_or_default()
    }

    /// The attribute `name` of a type.
    pub fn attribute(&self, sysfs: &dyn Sysfs, mdev_type: &str, name: &str) -> Option<String> {
        sysfs.read(&format!("{}/mdev_supported_types/{mdev_type}/{name}", self.path)).ok()
    }

    /// How many more devices of a type fit now; `None` if it does not offer the type.
    pub fn available(&self, sysfs: &dyn Sysfs, mdev_type: &str) -> Option<u32> {
        self.room(sysfs, mdev_type).ok().flatten()
    }

    /// The same, with an error if the driver's answer is invalid.
    pub fn room(&self, sysfs: &dyn Sysfs, mdev_type: &str) -> Result<Option<u32>, Error> {
        let path = format!("{}/mdev_supported_types/{mdev_type}/available_instances", self.path);
        match sysfs.read(&path) {
            Ok(text) => match text.trim().parse() {
                Ok(count) => Ok(Some(count)),
                Err(_) => Err(Error::Content { path, content: text }),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::Read { path, source }),
        }
    }
}

/// An existing mediated device.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mdev {
    /// Its UUID.
    pub uuid: Uuid,
    /// Address of its parent.
    pub parent: String,
    /// Its type.
    pub mdev_type: String,
}

/// All parents, by address.
pub fn parents(sysfs: &dyn Sysfs) -> Result<Vec<Parent>, Error> {
    parents_and_problems(sysfs, &mut Vec::new())
}

/// All readable parents, and the problems of the others.
pub(crate) fn parents_and_problems(
    sysfs: &dyn Sysfs,
    problems: &mut Vec<DeviceProblem>,
) -> Result<Vec<Parent>, Error> {
    let mut parents = Vec::new();
    for name in entries(sysfs, PARENTS)? {
        let link = format!("{PARENTS}/{name}");
        match sysfs.real(&link) {
            Ok(path) => match address(&path) {
                Some(address) => parents.push(Parent { address, path }),
                None => {
                    let reason = format!("{path} is neither a PCI nor a virtual mdev parent");
                    problems.push(DeviceProblem::note(&name, reason));
                }
            },
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(source) => {
                let error = Error::Read { path: link, source };
                problems.push(DeviceProblem::note(&name, error.to_string()));
            }
        }
    }
    parents.sort_by(|a, b| a.address.cmp(&b.address));
    Ok(parents)
}

/// All mediated devices of the host, by UUID.
pub fn mdevs(sysfs: &dyn Sysfs) -> Result<Vec<Mdev>, Error> {
    mdevs_and_problems(sysfs, &mut Vec::new())
}

/// All readable mediated devices, and the problems of the others.
pub(crate) fn mdevs_and_problems(
    sysfs: &dyn Sysfs,
    problems: &mut Vec<DeviceProblem>,
) -> Result<Vec<Mdev>, Error> {
    let mut mdevs = Vec::new();
    for name in entries(sysfs, MDEVS)? {
        let Ok(uuid) = Uuid::try_parse(&name) else { continue };
        match find(sysfs, uuid) {
            Ok(mdev) => mdevs.extend(mdev),
            Err(error) => problems.push(DeviceProblem::note(&name, error.to_string())),
        }
    }
    Ok(mdevs)
}

/// The mediated device of that UUID, if it exists.
pub fn find(sysfs: &dyn Sysfs, uuid: Uuid) -> Result<Option<Mdev>, Error> {
    let link = format!("{MDEVS}/{uuid}");
    let resolved =
        sysfs.real(&link).and_then(|path| Ok((path, sysfs.real(&format!("{link}/mdev_type"))?)));
    let (path, type_path) = match resolved {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::Read { path: link, source }),
    };
    let above = path.rsplit_once('/').map(|(above, _)| above).unwrap_or_default();
    Ok(address(above).map(|parent| Mdev { uuid, parent, mdev_type: last(&type_path).to_owned() }))
}

/// Creates a mediated device, unless it exists.
pub fn create(sysfs: &dyn Sysfs, mdev: &Mdev) -> Result<(), Error> {
    let Mdev { uuid, parent, mdev_type } = mdev;
    if let Some(found) = find(sysfs, *uuid)? {
        if found == *mdev {
            return Ok(());
        }
        return Err(Error::Conflict {
            uuid: *uuid,
            parent: found.parent,
            mdev_type: found.mdev_type,
        });
    }
    let folder = folder(sysfs, parent).ok_or_else(|| Error::NoParent(parent.clone()))?;
    let types = format!("{folder}/mdev_supported_types/{mdev_type}");
    if !sysfs.exists(&types) {
        return Err(Error::NoType { parent: parent.clone(), mdev_type: mdev_type.clone() });
    }
    sysfs.write(&format!("{types}/create"), &uuid.to_string()).map_err(|source| Error::Create {
        uuid: *uuid,
        parent: parent.clone(),
        mdev_type: mdev_type.clone(),
        source,
    })
}

/// Removes a mediated device, if it exists.
pub fn remove(sysfs: &dyn Sysfs, uuid: Uuid) -> Result<(), Error> {
    match sysfs.write(&format!("{MDEVS}/{uuid}/remove"), "1") {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(source) => Err(Error::Remove { uuid, source }),
        Ok(()) => Ok(()),
    }
}

fn entries(sysfs: &dyn Sysfs, path: &str) -> Result<Vec<String>, Error> {
    match sysfs.list(path) {
        Ok(names) => Ok(names),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(Error::Read { path: path.to_owned(), source }),
    }
}

/// The directory of a parent; `None` if there is no such mdev parent.
fn folder(sysfs: &dyn Sysfs, address: &str) -> Option<String> {
    let path = match PciAddress::parse(address) {
        Some(_) => format!("bus/pci/devices/{address}"),
        None => virtual_path(address),
    };
    sysfs.exists(&format!("{path}/mdev_supported_types")).then_some(path)
}

/// The directory of a virtual parent: `devices/virtual/mtty/mtty` for `mtty_mtty`.
pub(crate) fn virtual_path(address: &str) -> String {
    format!("devices/virtual/{}", address.replace('_', "/"))
}

fn address(path: &str) -> Option<String> {
    let name = last(path);
    if PciAddress::parse(name).is_some() {
        return Some(name.to_owned());
    }
    path.strip_prefix("devices/virtual/").map(|rest| rest.replace('/', "_"))
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

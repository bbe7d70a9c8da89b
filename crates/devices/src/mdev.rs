//! Mediated devices: their parents, those that exist, making and removing one.
//!
//! Never picks a uuid, a parent or a type. Making one that is there already, and removing one that
//! is not, succeed: the caller may have crashed after the first try.

use std::io::ErrorKind;

use uuid::Uuid;

use crate::{Error, PciAddress, Sysfs, Trouble};

const PARENTS: &str = "class/mdev_bus";
const MDEVS: &str = "bus/mdev/devices";

/// A device that can be cut into mediated devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// `0000:84:00.0`, or `mtty_mtty` for a virtual one.
    pub address: String,
    /// Its folder, links resolved.
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

    /// How many more of a type it could hold now; `None` if it does not offer the type.
    pub fn available(&self, sysfs: &dyn Sysfs, mdev_type: &str) -> Option<u32> {
        self.room(sysfs, mdev_type).ok().flatten()
    }

    /// The same, and what is wrong where the driver does not say it.
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

/// A mediated device that exists.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mdev {
    /// Its uuid.
    pub uuid: Uuid,
    /// Address of its parent.
    pub parent: String,
    /// Its type.
    pub mdev_type: String,
}

/// All parents, by address.
pub fn parents(sysfs: &dyn Sysfs) -> Result<Vec<Parent>, Error> {
    parents_and_troubles(sysfs, &mut Vec::new())
}

/// All parents that can be read, and what is wrong with the others.
pub(crate) fn parents_and_troubles(
    sysfs: &dyn Sysfs,
    troubles: &mut Vec<Trouble>,
) -> Result<Vec<Parent>, Error> {
    let mut parents = Vec::new();
    for name in entries(sysfs, PARENTS)? {
        let link = format!("{PARENTS}/{name}");
        match sysfs.real(&link) {
            Ok(path) => match address(&path) {
                Some(address) => parents.push(Parent { address, path }),
                None => {
                    let reason = format!("{path} is neither a PCI nor a virtual mdev parent");
                    troubles.push(Trouble::note(&name, reason));
                }
            },
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(source) => {
                let error = Error::Read { path: link, source };
                troubles.push(Trouble::note(&name, error.to_string()));
            }
        }
    }
    parents.sort_by(|a, b| a.address.cmp(&b.address));
    Ok(parents)
}

/// All mediated devices of the host, by uuid.
pub fn mdevs(sysfs: &dyn Sysfs) -> Result<Vec<Mdev>, Error> {
    mdevs_and_troubles(sysfs, &mut Vec::new())
}

/// All mediated devices that can be read, and what is wrong with the others.
pub(crate) fn mdevs_and_troubles(
    sysfs: &dyn Sysfs,
    troubles: &mut Vec<Trouble>,
) -> Result<Vec<Mdev>, Error> {
    let mut mdevs = Vec::new();
    for name in entries(sysfs, MDEVS)? {
        let Ok(uuid) = Uuid::try_parse(&name) else { continue };
        match find(sysfs, uuid) {
            Ok(mdev) => mdevs.extend(mdev),
            Err(error) => troubles.push(Trouble::note(&name, error.to_string())),
        }
    }
    Ok(mdevs)
}

/// The mediated device of that uuid, if it exists.
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

/// Makes a mediated device, unless it is there.
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

/// Removes a mediated device, if it is there.
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

/// The folder of a parent by its address, `None` where there is no such mdev parent.
fn folder(sysfs: &dyn Sysfs, address: &str) -> Option<String> {
    let path = match PciAddress::parse(address) {
        Some(_) => format!("bus/pci/devices/{address}"),
        None => virtual_path(address),
    };
    sysfs.exists(&format!("{path}/mdev_supported_types")).then_some(path)
}

/// `mtty_mtty` lives in `devices/virtual/mtty/mtty`.
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

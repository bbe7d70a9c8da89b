//! vGPUs of a vendor's VFIO driver, without mediated devices: a virtual function gets a type, is
//! passed through with its driver, and the type is cleared afterwards.
//!
//! Owns `<function>/nvidia/{creatable_vgpu_types,current_vgpu_type}` of Linux 6.8 and newer. Types
//! have the same names as with mediated devices (`nvidia-558`), so that options survive a kernel
//! upgrade. Setting a type that is set and clearing one that is not set succeed, because the caller
//! may repeat a step after a crash.

use std::io::ErrorKind;

use crate::{Error, Sysfs};

/// The vendor's directory, and the prefix of its type names.
const VENDOR: &str = "nvidia";

/// A virtual function with a type.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Vgpu {
    /// Address of the function.
    pub address: String,
    /// `nvidia-558`.
    pub vgpu_type: String,
}

/// A type that a function offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VgpuType {
    /// `nvidia-558`.
    pub id: String,
    /// `NVIDIA A40-2Q`.
    pub name: String,
}

/// The vGPU state of a virtual function.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VgpuState {
    /// The current type.
    pub current: Option<String>,
    /// The types that can be set now.
    pub creatable: Vec<VgpuType>,
}

/// Reads the state; `None` if the driver does not support vGPUs.
pub fn vgpu_state(sysfs: &dyn Sysfs, address: &str) -> Result<Option<VgpuState>, Error> {
    let Some(current) = read(sysfs, &file(address, "current_vgpu_type"))? else {
        return Ok(None);
    };
    let number = number(&current).ok_or_else(|| Error::Content {
        path: file(address, "current_vgpu_type"),
        content: current.clone(),
    })?;
    let creatable = read(sysfs, &file(address, "creatable_vgpu_types"))?.unwrap_or_default();
    Ok(Some(VgpuState {
        current: (number != 0).then(|| format!("{VENDOR}-{number}")),
        creatable: creatable.lines().filter_map(vgpu_type).collect(),
    }))
}

/// Sets a function's type, unless it is set.
pub fn set_type(sysfs: &dyn Sysfs, vgpu: &Vgpu) -> Result<(), Error> {
    let Vgpu { address, vgpu_type } = vgpu;
    let wrong = |reason: String| Error::Vgpu {
        address: address.clone(),
        vgpu_type: vgpu_type.clone(),
        reason,
    };
    let state = vgpu_state(sysfs, address)?
        .ok_or_else(|| wrong("its driver does not support vGPUs".to_owned()))?;
    match &state.current {
        Some(current) if current == vgpu_type => return Ok(()),
        Some(current) => return Err(wrong(format!("it already has type {current}"))),
        None => {}
    }
    let number = vgpu_type.strip_prefix(VENDOR).and_then(|rest| rest.strip_prefix('-'));
    let Some(number) = number.filter(|_| state.creatable.iter().any(|one| one.id == *vgpu_type))
    else {
        let all: Vec<&str> = state.creatable.iter().map(|one| one.id.as_str()).collect();
        let all = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
        return Err(wrong(format!("the types that can be set now are: {all}")));
    };
    sysfs
        .write(&file(address, "current_vgpu_type"), number)
        .map_err(|source| wrong(source.to_string()))?;
    match vgpu_state(sysfs, address)?.and_then(|state| state.current) {
        Some(current) if current == *vgpu_type => Ok(()),
        _ => Err(wrong("the driver accepted the type but does not show it".to_owned())),
    }
}

/// Clears a function's type, if it is set.
pub fn clear_type(sysfs: &dyn Sysfs, vgpu: &Vgpu) -> Result<(), Error> {
    let current = vgpu_state(sysfs, &vgpu.address)?.and_then(|state| state.current);
    if current.as_deref() != Some(&vgpu.vgpu_type) {
        return Ok(());
    }
    sysfs.write(&file(&vgpu.address, "current_vgpu_type"), "0").map_err(|source| Error::Vgpu {
        address: vgpu.address.clone(),
        vgpu_type: vgpu.vgpu_type.clone(),
        reason: format!("could not clear it: {source}"),
    })
}

fn file(address: &str, name: &str) -> String {
    format!("bus/pci/devices/{address}/{VENDOR}/{name}")
}

fn read(sysfs: &dyn Sysfs, path: &str) -> Result<Option<String>, Error> {
    match sysfs.read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Read { path: path.to_owned(), source }),
    }
}

fn number(text: &str) -> Option<u32> {
    text.trim().parse().ok()
}

/// Parses `558  : NVIDIA A40-2Q`; `None` for the heading.
fn vgpu_type(line: &str) -> Option<VgpuType> {
    let (id, name) = line.split_once(':')?;
    Some(VgpuType { id: format!("{VENDOR}-{}", number(id)?), name: name.trim().to_owned() })
}

#[cfg(test)]
#[path = "vgpu_tests.rs"]
mod tests;

//! The present health of a function in sysfs: its configuration space, its PCIe link, and the
//! kernel's error counters; and the log line that reports a failed bind.

use std::io::ErrorKind;

use kilonova_node_api::Health;
use serde::{Deserialize, Serialize};

use crate::{PciAddress, Sysfs};

/// Length of the world-readable part of the configuration space.
const HEADER: usize = 64;

/// The present health of a device; healthy if it is not on the PCI bus.
pub(super) fn health(sysfs: &dyn Sysfs, address: &str) -> Health {
    if PciAddress::parse(address).is_none() {
        return Health::Healthy;
    }
    match sysfs.read_bytes(&path(address, "config"), HEADER) {
        Ok(bytes) if !bytes.is_empty() && bytes.iter().all(|byte| *byte == 0xff) => {
            return failed("its configuration space reads as all ones: it has fallen off the bus");
        }
        Ok(_) => {}
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
        }
        Err(error) => {
            return failed(&format!("could not read its configuration space: {error}"));
        }
    }
    let number = |name: &str| {
        sysfs.read(&path(address, name)).ok().and_then(|text| text.trim().parse::<u32>().ok())
    };
    if number("max_link_width").is_some_and(|most| most > 0 && most < 63)
        && number("current_link_width") == Some(0)
    {
        return failed("its PCIe link is down");
    }
    Health::Healthy
}

/// Uncorrectable PCIe errors since the function was enumerated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counters {
    pub fatal: u64,
    pub nonfatal: u64,
}

impl Counters {
    pub fn fatal_reason(self) -> String {
        format!("the kernel counted {} fatal PCIe errors on it", self.fatal)
    }

    pub fn nonfatal_reason(self) -> String {
        format!("the kernel counted {} uncorrectable PCIe errors on it", self.nonfatal)
    }

    /// The health that they imply without earlier values.
    pub fn health(self) -> Health {
        match (self.fatal, self.nonfatal) {
            (0, 0) => Health::Healthy,
            (0, _) => Health::Degraded { reason: self.nonfatal_reason(), since: None },
            _ => failed(&self.fatal_reason()),
        }
    }
}

/// `None` if the kernel does not count errors of the device.
pub(super) fn counters(sysfs: &dyn Sysfs, address: &str) -> Option<Counters> {
    PciAddress::parse(address)?;
    let total = |name: &str, label: &str| {
        let text = sysfs.read(&path(address, name)).ok()?;
        let line = text.lines().find_map(|line| line.trim().strip_prefix(label))?;
        line.trim().parse::<u64>().ok()
    };
    let fatal = total("aer_dev_fatal", "TOTAL_ERR_FATAL");
    let nonfatal = total("aer_dev_nonfatal", "TOTAL_ERR_NONFATAL");
    if fatal.is_none() && nonfatal.is_none() {
        return None;
    }
    Some(Counters { fatal: fatal.unwrap_or(0), nonfatal: nonfatal.unwrap_or(0) })
}

/// True if a function's current driver can pass it through.
pub(crate) fn is_vfio(sysfs: &dyn Sysfs, address: &str, driver: &str) -> bool {
    !driver.is_empty()
        && (driver.contains("vfio")
            || sysfs.exists(&path(address, "vfio-dev"))
            || sysfs.exists(&path(address, "nvidia/current_vgpu_type")))
}

/// Parses `vfio-pci: probe of 0000:84:00.0 failed with error -22`, and the form of newer kernels:
/// `vfio-pci 0000:84:00.0: probe with driver vfio-pci failed with error -22`.
pub(super) fn bind_error(line: &str) -> Option<(String, String)> {
    let (before, code) = line.split_once(" failed with error ")?;
    let words: Vec<&str> = before.split_whitespace().collect();
    let (driver, address) = match words[..] {
        [.., driver, "probe", "of", address] => (driver.strip_suffix(':')?, address),
        [.., address, "probe", "with", "driver", driver] => (driver, address.strip_suffix(':')?),
        _ => return None,
    };
    let address = PciAddress::parse(address).filter(|_| driver.contains("vfio"))?;
    let code: String = code.chars().take_while(|c| c.is_ascii_digit() || *c == '-').collect();
    Some((address.to_string(), format!("binding {driver} to it failed: error {code}")))
}

fn failed(reason: &str) -> Health {
    Health::Failed { reason: reason.to_owned(), since: None }
}

fn path(address: &str, name: &str) -> String {
    format!("bus/pci/devices/{address}/{name}")
}

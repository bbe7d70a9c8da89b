//! What sysfs says of a function's health: its PCIe link, and fatal errors that the kernel counted.
//!
//! What cannot be read says nothing against a device: few drivers and no simulation show all of it.

use kilonova_node_api::Health;

use crate::{PciAddress, Sysfs};

/// The health of a device, healthy for one that is not on the PCI bus.
pub(crate) fn health(sysfs: &dyn Sysfs, address: &str) -> Health {
    if PciAddress::parse(address).is_none() {
        return Health::Healthy;
    }
    let read = |name: &str| sysfs.read(&format!("bus/pci/devices/{address}/{name}")).ok();
    let number = |name: &str| read(name).and_then(|text| text.trim().parse::<u32>().ok());
    if number("max_link_width").is_some_and(|most| most > 0 && most < 63)
        && number("current_link_width") == Some(0)
    {
        return failed("its PCIe link is down".to_owned());
    }
    let fatal = read("aer_dev_fatal").as_deref().and_then(fatal_errors).unwrap_or(0);
    if fatal > 0 {
        return failed(format!("the kernel counted {fatal} fatal PCIe errors on it"));
    }
    Health::Healthy
}

fn failed(reason: String) -> Health {
    Health::Failed { reason, since: None }
}

/// The sum at the end of `aer_dev_fatal`: `TOTAL_ERR_FATAL 0`.
fn fatal_errors(text: &str) -> Option<u32> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("TOTAL_ERR_FATAL"))?;
    line.trim().parse().ok()
}

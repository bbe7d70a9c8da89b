//! PCI functions as sysfs shows them.

use std::io::ErrorKind;

use kilonova_node_api::DeviceKind;

use crate::{Error, Sysfs};

/// The address of a PCI function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// Domain, usually 0.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device on the bus, below 32.
    pub device: u8,
    /// Function of the device, below 8.
    pub function: u8,
}

impl PciAddress {
    /// Parses `0000:84:00.0`; no other form is accepted.
    pub fn parse(text: &str) -> Option<Self> {
        let (domain, rest) = text.split_once(':')?;
        let (bus, rest) = rest.split_once(':')?;
        let (device, function) = rest.split_once('.')?;
        let hex = |text: &str, least: usize, most: usize| {
            let digits = text.bytes().all(|b| b.is_ascii_hexdigit());
            (digits && (least..=most).contains(&text.len()))
                .then(|| u32::from_str_radix(text, 16).ok())
                .flatten()
        };
        let address = Self {
            domain: hex(domain, 4, 8)?,
            bus: u8::try_from(hex(bus, 2, 2)?).ok()?,
            device: u8::try_from(hex(device, 2, 2)?).ok()?,
            function: u8::try_from(hex(function, 1, 1)?).ok()?,
        };
        (address.device < 32 && address.function < 8).then_some(address)
    }

    /// The function `places` further on, carrying into device and bus.
    pub fn plus(self, places: u32) -> Option<Self> {
        let here =
            u32::from(self.bus) << 8 | u32::from(self.device) << 3 | u32::from(self.function);
        let there = here.checked_add(places)?;
        Some(Self {
            domain: self.domain,
            bus: u8::try_from(there >> 8).ok()?,
            device: (there >> 3 & 0x1f) as u8,
            function: (there & 7) as u8,
        })
    }
}

impl std::fmt::Display for PciAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

/// The name of a device in libvirt, and thus in Nova: `pci_0000_84_00_0`, `mtty_mtty`.
pub fn device_name(address: &str) -> String {
    match PciAddress::parse(address) {
        Some(_) => format!("pci_{}", address.replace([':', '.'], "_")),
        None => address.to_owned(),
    }
}

/// The attributes of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PciFunction {
    /// Four hex digits.
    pub vendor_id: String,
    /// Four hex digits.
    pub product_id: String,
    /// Six hex digits: class, subclass, interface.
    pub class: String,
    /// -1 if the kernel reports none.
    pub numa_node: i64,
    /// The bound kernel driver; empty if there is none.
    pub driver: String,
}

impl PciFunction {
    /// Reads `bus/pci/devices/<address>`; `None` if there is no such function.
    pub fn read(sysfs: &dyn Sysfs, address: &str) -> Result<Option<Self>, Error> {
        let path = |name: &str| format!("bus/pci/devices/{address}/{name}");
        let id = |name: &str| match sysfs.read(&path(name)) {
            Ok(text) => {
                let hex = text.trim().trim_start_matches("0x").to_ascii_lowercase();
                if hex.len() == 4 && hex.bytes().all(|b| b.is_ascii_hexdigit()) {
                    Ok(Some(hex))
                } else {
                    Err(Error::Content { path: path(name), content: text })
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::Read { path: path(name), source }),
        };
        let (Some(vendor_id), Some(product_id)) = (id("vendor")?, id("device")?) else {
            return Ok(None);
        };
        let class = sysfs.read(&path("class")).unwrap_or_default();
        let numa_node = sysfs.read(&path("numa_node")).ok().and_then(|n| n.trim().parse().ok());
        let driver = sysfs.real(&path("driver")).unwrap_or_default();
        Ok(Some(Self {
            vendor_id,
            product_id,
            class: class.trim().trim_start_matches("0x").to_ascii_lowercase(),
            numa_node: numa_node.unwrap_or(-1),
            driver: driver.rsplit('/').next().unwrap_or_default().to_owned(),
        }))
    }

    /// Class and subclass, four hex digits.
    pub fn class_code(&self) -> &str {
        self.class.get(..4).unwrap_or_default()
    }

    /// The device kind by PCI class code.
    pub fn kind(&self) -> DeviceKind {
        crate::kinds::kind_of(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_strictly() {
        let address = PciAddress::parse("0000:84:00.0").expect("the address is valid");
        assert_eq!(address.to_string(), "0000:84:00.0");
        for wrong in [
            "84:00.0",
            "0000:84:00",
            "0000:84:20.0",
            "0000:84:00.8",
            "0000:8g:00.0",
            "mtty_mtty",
            "",
        ] {
            assert_eq!(PciAddress::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn addition_carries_into_device_and_bus() {
        let address = PciAddress::parse("0000:25:00.0").expect("the address is valid");
        assert_eq!(address.plus(4).expect("the address is in range").to_string(), "0000:25:00.4");
        assert_eq!(address.plus(9).expect("the address is in range").to_string(), "0000:25:01.1");
        assert_eq!(address.plus(256).expect("the address is in range").to_string(), "0000:26:00.0");
        assert_eq!(PciAddress::parse("0000:ff:1f.7").expect("the address is valid").plus(1), None);
    }

    #[test]
    fn names_are_libvirts() {
        assert_eq!(device_name("0000:84:00.0"), "pci_0000_84_00_0");
        assert_eq!(device_name("mtty_mtty"), "mtty_mtty");
    }
}

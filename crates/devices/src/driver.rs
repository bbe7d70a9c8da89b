//! `[agent] enabled_drivers`: the Cyborg drivers that search the host.

use crate::{Driver, Error};

impl Driver {
    /// Parses the option's list.
    pub fn parse(names: &str) -> Result<Vec<Self>, Error> {
        let mut drivers = Vec::new();
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            if name == "pci_driver" {
                return Err(Error::Driver(
                    "pci_driver is not supported; use [pci] device_spec for PCI functions"
                        .to_owned(),
                ));
            }
            let Some((_, driver)) = Self::ALL.iter().find(|(known, _)| *known == name) else {
                let known: Vec<&str> = Self::ALL.iter().map(|(name, _)| *name).collect();
                let known = known.join(", ");
                return Err(Error::Driver(format!(
                    "unknown driver {name}; known drivers: {known}"
                )));
            };
            if !drivers.contains(driver) {
                drivers.push(*driver);
            }
        }
        Ok(drivers)
    }
}

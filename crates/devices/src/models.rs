//! The models of PCI devices: vendor and device as the operating system's `pci.ids` names them, `lspci` prints them and
//! Cyborg reports them.
//!
//! Names describe devices to people. No decision depends on them: a host without the file has devices without models.

use std::collections::BTreeMap;
use std::path::Path;

use pciid_parser::Database;

use crate::bus::Bus;
use crate::{Error, Sysfs};

/// The models of a host's devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Models {
    /// By vendor and product, four hex digits each.
    names: BTreeMap<(String, String), String>,
}

/// The contents of the operating system's file, which can name the models of several hosts.
pub struct ModelNames(Database);

impl ModelNames {
    /// Reads the file, which is larger than a megabyte.
    ///
    /// # Errors
    /// [`Error::Models`] if there is no such file.
    pub fn read() -> Result<Self, Error> {
        Database::read().map(Self).map_err(|error| Error::Models(error.to_string()))
    }

    /// Reads another file.
    ///
    /// # Errors
    /// As for [`Self::read`].
    pub fn read_from(file: &Path) -> Result<Self, Error> {
        Database::read_from_file(file).map(Self).map_err(|error| Error::Models(error.to_string()))
    }

    /// The models of the functions that a host has now.
    ///
    /// # Errors
    /// [`Error::Read`] if its bus cannot be listed.
    pub fn of(&self, sysfs: &dyn Sysfs) -> Result<Models, Error> {
        Models::of_bus(sysfs, &self.0)
    }
}

impl Models {
    /// The models of the functions that this host has now, by the operating system's file. Reads more than a megabyte.
    ///
    /// # Errors
    /// [`Error::Models`] if there is no such file, and [`Error::Read`] if the bus cannot be listed.
    pub fn read(sysfs: &dyn Sysfs) -> Result<Self, Error> {
        ModelNames::read()?.of(sysfs)
    }

    fn of_bus(sysfs: &dyn Sysfs, database: &Database) -> Result<Self, Error> {
        let mut names = BTreeMap::new();
        for one in Bus::read(sysfs, &mut Vec::new())?.all() {
            let function = &one.function;
            let key = (function.vendor_id.clone(), function.product_id.clone());
            if let Some(name) = name(database, &key.0, &key.1) {
                names.insert(key, name);
            }
        }
        Ok(Self { names })
    }

    /// The model of a product; empty if it is unknown.
    pub(crate) fn of(&self, vendor: &str, product: &str) -> String {
        self.names.get(&(vendor.to_owned(), product.to_owned())).cloned().unwrap_or_default()
    }
}

/// `NVIDIA Corporation GH100 [H100 SXM5 80GB]`, or `NVIDIA Corporation Device` for an unknown product.
fn name(database: &Database, vendor: &str, product: &str) -> Option<String> {
    let vendor = database.vendors.get(&u16::from_str_radix(vendor, 16).ok()?)?;
    let device = vendor.devices.get(&u16::from_str_radix(product, 16).ok()?);
    Some(format!("{} {}", vendor.name, device.map_or("Device", |device| device.name.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fixture;
    use crate::{Discovery, Driver};

    const FILE: &str = "# A comment.\n\n10de  NVIDIA Corporation\n\t2330  GH100 [H100 SXM5 80GB]\n\
        \t\t10de 16c0  A board\n1af4  Red Hat, Inc.\n\nC 03  Display controller\n\t02  3D controller\n";

    #[test]
    fn models_are_those_of_the_file() {
        let fixture = Fixture::new();
        for (address, vendor, product) in [
            ("0000:18:00.0", "10de", "2330"),
            ("0000:19:00.0", "10de", "2335"),
            ("0000:1a:00.0", "abcd", "0001"),
        ] {
            fixture.function(address, (vendor, product, "030200"), 0, "nvidia");
        }
        fixture.write("pci.ids", FILE);
        let file = fixture.root().join("pci.ids");
        let names = ModelNames::read_from(&file).expect("the file is read");
        let models = names.of(&fixture.sysfs()).expect("the bus is read");
        assert_eq!(models.of("10de", "2330"), "NVIDIA Corporation GH100 [H100 SXM5 80GB]");
        assert_eq!(models.of("10de", "2335"), "NVIDIA Corporation Device");
        assert_eq!(models.of("abcd", "0001"), "", "an unknown vendor");
        assert_eq!(models.of("1af4", "1041"), "", "this host has none");
        let discovery =
            Discovery { drivers: vec![Driver::NvidiaGpu], models, ..Discovery::default() };
        let found = discovery.scan(&fixture.sysfs(), &|_| false).expect("the host is scanned");
        let found: Vec<&str> = found.devices.iter().map(|one| one.model.as_str()).collect();
        let known = "NVIDIA Corporation GH100 [H100 SXM5 80GB]";
        assert_eq!(found, [known, "NVIDIA Corporation Device"]);

        let missing = ModelNames::read_from(&fixture.root().join("none"));
        let error = missing.err().expect("there is no file");
        assert!(error.to_string().contains("package pci.ids"), "{error}");
    }
}

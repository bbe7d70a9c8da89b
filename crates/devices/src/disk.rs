//! The controller and the namespaces of an NVMe function, for cleaning.

use crate::Sysfs;

/// An NVMe function bound to the kernel's driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// `nvme0`.
    pub controller: String,
    /// `nvme0n1`, …
    pub namespaces: Vec<String>,
}

impl Disk {
    /// Reads the controller and its namespaces from sysfs.
    ///
    /// # Errors
    /// Why it cannot be cleaned.
    pub fn of(sysfs: &dyn Sysfs, address: &str) -> Result<Self, String> {
        let folder = format!("bus/pci/devices/{address}/nvme");
        let controllers = sysfs.list(&folder).unwrap_or_default();
        let Some(controller) = controllers.into_iter().find(|name| name.starts_with("nvme")) else {
            let bound =
                sysfs.real(&format!("bus/pci/devices/{address}/driver")).unwrap_or_default();
            let bound = match bound.rsplit('/').next() {
                Some(driver) if !driver.is_empty() => format!("it is bound to {driver}"),
                _ => "it has no driver".to_owned(),
            };
            return Err(format!("{address} has no NVMe controller: {bound}; bind it to nvme"));
        };
        let entries = sysfs.list(&format!("{folder}/{controller}")).unwrap_or_default();
        let namespaces =
            entries.into_iter().filter(|name| name.starts_with(&format!("{controller}n")));
        Ok(Self { namespaces: namespaces.collect(), controller })
    }
}

//! The options `[devices] enabled_mdev_types` and `[mdev_<type>]`, with upstream's meaning and
//! refusals.
//!
//! Owns their syntax, and which types each parent may get. A parent has one type; a type without
//! addresses is the default for all parents that are not listed, and only the first such type
//! counts. Unlike upstream, the default type keeps its own `mdev_class`.
//!
//! With `[devices] mdev_retyping`, which upstream does not have, a parent may be listed for several types, and all
//! types without addresses are defaults. Guests decide which of its types it has. With `mig_instances` the agent creates
//! the GPU instances that types of cards in MIG mode need.

use std::collections::BTreeMap;

use kilonova_ids::ResourceClass;
use serde::{Deserialize, Serialize};

use crate::mdev::virtual_path;
use crate::{Error, PciAddress, Sysfs};

/// An `[mdev_<type>]` group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MdevGroup {
    /// PCI addresses, or virtual parents such as `mtty_mtty`.
    pub device_addresses: Vec<String>,
    /// Resource class of the devices. Default: `VGPU`.
    pub mdev_class: Option<ResourceClass>,
    /// Maximum number of mediated devices of this type on the host.
    pub max_instances: Option<u32>,
    /// With `mdev_retyping`: the number of mediated devices, or of virtual functions of a VFIO driver, for which cards
    /// are kept for this type.
    pub min_instances: Option<u32>,
}

/// The options as written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MdevOptions {
    /// `[devices] enabled_mdev_types`.
    pub enabled: Vec<String>,
    /// The `[mdev_<type>]` groups by type (`nvidia-35`), without `mdev_`.
    pub groups: BTreeMap<String, MdevGroup>,
    /// `[devices] mdev_retyping`.
    pub retyping: bool,
    /// `[devices] mig_instances`.
    pub mig_instances: bool,
}

/// An option that is invalid on any host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidOption {
    /// Its group: `devices`, `mdev_nvidia-35`.
    pub group: String,
    /// Its name.
    pub option: &'static str,
    /// The reason.
    pub why: String,
}

impl std::fmt::Display for InvalidOption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{}] {}: {}", self.group, self.option, self.why)
    }
}

impl MdevOptions {
    /// Refuses options that are invalid on any host.
    pub fn check(&self) -> Result<(), InvalidOption> {
        let enabled =
            |why| InvalidOption { group: "devices".to_owned(), option: "enabled_mdev_types", why };
        if self.mig_instances && !self.retyping {
            let why = "it has no effect without mdev_retyping = true".to_owned();
            return Err(InvalidOption {
                group: "devices".to_owned(),
                option: "mig_instances",
                why,
            });
        }
        let mut owners: BTreeMap<String, &str> = BTreeMap::new();
        for (at, mdev_type) in self.enabled.iter().enumerate() {
            if !is_type(mdev_type) {
                return Err(enabled(format!("'{mdev_type}' is not the name of an mdev type")));
            }
            if self.enabled[..at].contains(mdev_type) {
                return Err(enabled(format!("{mdev_type} is listed twice")));
            }
        }
        for mdev_type in &self.enabled {
            if self.enabled.len() > 1 && !self.groups.contains_key(mdev_type) {
                return Err(enabled(format!(
                    "can't find '[devices]/mdev_{mdev_type} group' in the configuration"
                )));
            }
        }
        for (mdev_type, group) in &self.groups {
            let wrong =
                |option, why| InvalidOption { group: format!("mdev_{mdev_type}"), option, why };
            for address in &group.device_addresses {
                if PciAddress::parse(address).is_none() && !is_virtual(address) {
                    return Err(wrong(
                        "device_addresses",
                        format!("incorrect device address: {address}"),
                    ));
                }
            }
            if let Some(class) = group.mdev_class.as_ref().filter(|class| !is_class(class)) {
                let why = format!(
                    "'{class}' must be VGPU or start with CUSTOM_ and continue with A-Z, 0-9 and _"
                );
                return Err(wrong("mdev_class", why));
            }
            if group.max_instances == Some(0) {
                return Err(wrong("max_instances", "it must be at least 1".to_owned()));
            }
            if group.min_instances.is_some() && !self.retyping {
                let why = "it has no effect without [devices] mdev_retyping = true".to_owned();
                return Err(wrong("min_instances", why));
            }
        }
        for (mdev_type, group) in self.groups_in_use() {
            for address in &group.device_addresses {
                let other = owners.insert(address.to_ascii_lowercase(), mdev_type);
                if let Some(other) = other.filter(|other| !self.retyping || other == mdev_type) {
                    let why = if other == mdev_type {
                        format!("{address} is listed twice")
                    } else {
                        format!(
                            "duplicate types for PCI ID {address}: it is listed for {other} and for \
                             {mdev_type}"
                        )
                    };
                    let group = format!("mdev_{mdev_type}");
                    return Err(InvalidOption { group, option: "device_addresses", why });
                }
            }
        }
        Ok(())
    }

    fn groups_in_use(&self) -> impl Iterator<Item = (&String, &MdevGroup)> {
        self.enabled.iter().filter_map(|mdev_type| self.groups.get_key_value(mdev_type))
    }
}

/// The mdev types of each parent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MdevConfig {
    by_address: BTreeMap<String, Vec<String>>,
    defaults: Vec<String>,
    /// Types with their minimum, in the order of the options.
    minimums: Vec<(String, u32)>,
    mig_instances: bool,
    groups: BTreeMap<String, MdevGroup>,
}

impl MdevConfig {
    /// Applies the options to a host.
    pub fn new(options: &MdevOptions, sysfs: &dyn Sysfs) -> Result<Self, Error> {
        options.check().map_err(|wrong| Error::Config(wrong.to_string()))?;
        let mut config = Self { mig_instances: options.mig_instances, ..Self::default() };
        for mdev_type in &options.enabled {
            let group = options.groups.get(mdev_type).cloned().unwrap_or_default();
            if group.device_addresses.is_empty() {
                if let Some(default) = config.defaults.first().filter(|_| !options.retyping) {
                    tracing::warn!(
                        "Mdev type default already set to {default} so {mdev_type} will not be used."
                    );
                    continue;
                }
                config.defaults.push(mdev_type.clone());
            }
            for address in &group.device_addresses {
                let virtual_parent = PciAddress::parse(address).is_none();
                if virtual_parent && !sysfs.exists(&virtual_path(address)) {
                    return Err(Error::Config(format!(
                        "[mdev_{mdev_type}] device_addresses: incorrect device address: {address}; \
                         this host has no such virtual device"
                    )));
                }
                let types = config.by_address.entry(address.to_ascii_lowercase()).or_default();
                types.push(mdev_type.clone());
            }
            let minimum = group.min_instances.map(|least| (mdev_type.clone(), least));
            config.minimums.extend(minimum);
            config.groups.insert(mdev_type.clone(), group);
        }
        for other in options.groups.keys().filter(|other| !options.enabled.contains(other)) {
            tracing::warn!("[mdev_{other}] has no effect: {other} is not in enabled_mdev_types");
        }
        Ok(config)
    }

    /// True if any type is enabled.
    pub fn is_enabled(&self) -> bool {
        !self.groups.is_empty()
    }

    /// True if the agent creates the GPU instances of cards in MIG mode.
    pub fn manages_instances(&self) -> bool {
        self.mig_instances
    }

    /// The types that a parent may have. The first one names its provider.
    pub fn types_of(&self, address: &str) -> &[String] {
        self.listed(address).unwrap_or(&self.defaults)
    }

    /// The types that list an address; `None` if none does.
    pub fn listed(&self, address: &str) -> Option<&[String]> {
        self.by_address.get(address).map(Vec::as_slice)
    }

    /// The types in use.
    pub fn types(&self) -> impl Iterator<Item = &str> {
        self.groups.keys().map(String::as_str)
    }

    /// The addresses that the options list.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.by_address.keys().map(String::as_str)
    }

    /// The resource class of a type.
    pub fn class_of(&self, mdev_type: &str) -> ResourceClass {
        let class = self.groups.get(mdev_type).and_then(|group| group.mdev_class.clone());
        class.unwrap_or_else(|| ResourceClass::verbatim("VGPU"))
    }

    /// The types with a minimum, in the order of the options.
    pub fn minimums(&self) -> &[(String, u32)] {
        &self.minimums
    }

    /// The maximum number of devices of a type on this host, if limited.
    pub fn max_instances(&self, mdev_type: &str) -> Option<u32> {
        self.groups.get(mdev_type).and_then(|group| group.max_instances)
    }
}

/// True if an address has the form `mtty_mtty`.
fn is_virtual(address: &str) -> bool {
    let word = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    address.contains('_') && address.split('_').all(word)
}

fn is_type(name: &str) -> bool {
    let named = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    !name.is_empty() && !name.starts_with('.') && name.bytes().all(named)
}

fn is_class(class: &ResourceClass) -> bool {
    let custom = |rest: &str| !rest.is_empty();
    ResourceClass::parse(class).is_ok()
        && (*class == "VGPU" || class.strip_prefix("CUSTOM_").is_some_and(custom))
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;

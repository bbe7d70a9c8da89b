//! The options `[devices] enabled_mdev_types` and `[mdev_<type>]`, with upstream's meaning and
//! refusals.
//!
//! Owns which type each parent is cut into. One type per parent; a type without addresses is the
//! default for every parent that is not listed, and only the first such type counts. Unlike
//! upstream, the default type keeps its own `mdev_class`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::mdev::virtual_path;
use crate::{Error, PciAddress, Sysfs};

/// One `[mdev_<type>]` group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MdevGroup {
    /// PCI addresses, or virtual parents such as `mtty_mtty`.
    pub device_addresses: Vec<String>,
    /// Resource class of the units; `VGPU` if not said.
    pub mdev_class: Option<String>,
    /// Most mediated devices of the type on the host.
    pub max_instances: Option<u32>,
}

/// Which parents are cut into what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MdevConfig {
    by_address: BTreeMap<String, String>,
    default: Option<String>,
    groups: BTreeMap<String, MdevGroup>,
}

impl MdevConfig {
    /// Checks the parsed options; `groups` is keyed by type (`nvidia-35`), without `mdev_`.
    pub fn new(
        enabled: &[String],
        groups: &BTreeMap<String, MdevGroup>,
        sysfs: &dyn Sysfs,
    ) -> Result<Self, Error> {
        let mut config = Self::default();
        for mdev_type in enabled {
            if config.groups.contains_key(mdev_type) {
                return Err(Error::Config(format!(
                    "'[devices]/enabled_mdev_types' names {mdev_type} twice"
                )));
            }
            let group = match groups.get(mdev_type) {
                Some(group) => group.clone(),
                None if enabled.len() == 1 => MdevGroup::default(),
                None => {
                    let why = format!(
                        "can't find '[devices]/mdev_{mdev_type} group' in the configuration"
                    );
                    return Err(Error::Config(why));
                }
            };
            check(mdev_type, &group)?;
            if group.device_addresses.is_empty() {
                if let Some(default) = &config.default {
                    tracing::warn!(
                        "Mdev type default already set to {default} so {mdev_type} will not be used."
                    );
                    continue;
                }
                config.default = Some(mdev_type.clone());
            }
            for address in &group.device_addresses {
                config.assign(address, mdev_type, sysfs)?;
            }
            config.groups.insert(mdev_type.clone(), group);
        }
        for other in groups.keys().filter(|other| !enabled.contains(other)) {
            tracing::warn!(
                "[mdev_{other}] has no effect: enabled_mdev_types does not name {other}"
            );
        }
        Ok(config)
    }

    fn assign(&mut self, address: &str, mdev_type: &str, sysfs: &dyn Sysfs) -> Result<(), Error> {
        if PciAddress::parse(address).is_none() && !is_virtual(address, sysfs) {
            return Err(Error::Config(format!("incorrect device address: {address}")));
        }
        match self.by_address.insert(address.to_ascii_lowercase(), mdev_type.to_owned()) {
            Some(other) => Err(Error::Config(format!(
                "duplicate types for PCI ID {address}: it is listed for {other} and for {mdev_type}"
            ))),
            None => Ok(()),
        }
    }

    /// Whether any type is enabled.
    pub fn is_enabled(&self) -> bool {
        !self.groups.is_empty()
    }

    /// The type that a parent is cut into, if any.
    pub fn type_of(&self, address: &str) -> Option<&str> {
        self.by_address.get(address).or(self.default.as_ref()).map(String::as_str)
    }

    /// The addresses that the options list.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.by_address.keys().map(String::as_str)
    }

    /// Resource class of a type's units.
    pub fn class_of(&self, mdev_type: &str) -> &str {
        self.groups.get(mdev_type).and_then(|group| group.mdev_class.as_deref()).unwrap_or("VGPU")
    }

    /// The cap of a type on this host, if any.
    pub fn max_instances(&self, mdev_type: &str) -> Option<u32> {
        self.groups.get(mdev_type).and_then(|group| group.max_instances)
    }
}

fn is_virtual(address: &str, sysfs: &dyn Sysfs) -> bool {
    let word = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    address.split('_').all(word) && sysfs.exists(&virtual_path(address))
}

fn check(mdev_type: &str, group: &MdevGroup) -> Result<(), Error> {
    let named = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if mdev_type.is_empty() || mdev_type.starts_with('.') || !mdev_type.bytes().all(named) {
        return Err(Error::Config(format!("'{mdev_type}' is not the name of an mdev type")));
    }
    if let Some(class) = &group.mdev_class {
        let custom = |rest: &str| {
            !rest.is_empty()
                && rest.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
        };
        let fits = class == "VGPU" || class.strip_prefix("CUSTOM_").is_some_and(custom);
        if !fits || class.len() > 255 {
            return Err(Error::Config(format!(
                "'[mdev_{mdev_type}]/mdev_class' is {class}, but must be VGPU or start with CUSTOM_ \
                 and go on with A-Z, 0-9 and _"
            )));
        }
    }
    if group.max_instances == Some(0) {
        return Err(Error::Config(format!(
            "'[mdev_{mdev_type}]/max_instances' must be at least 1"
        )));
    }
    Ok(())
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;

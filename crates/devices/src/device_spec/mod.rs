//! The option `[pci] device_spec`: the PCI functions for passthrough, in upstream's grammar.
//!
//! Owns the meaning of one entry, independent of any host. Unknown and unsupported keys are
//! refused: an entry that silently matches too much would give away the wrong card. Unlike
//! upstream, an entry may name a physical function and its virtual functions together.

mod address;
mod alias;
mod class;
mod nvme;

use kilonova_ids::ResourceClass;
use serde_json::{Map, Value};

use crate::{Error, PciAddress};
use address::AddressMatch;
pub use address::MatchOf;
pub use alias::PciAlias;
pub(crate) use class::{custom, resource_class, trait_name};
pub use nvme::NvmeSpec;

const KEYS: [&str; 13] = [
    "vendor_id",
    "product_id",
    "address",
    "devname",
    "physical_network",
    "trusted",
    "remote_managed",
    "managed",
    "live_migratable",
    "resource_class",
    "traits",
    "one_time_use",
    "parent_ifname",
];

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceSpec {
    written: String,
    vendor_id: Option<String>,
    product_id: Option<String>,
    address: AddressMatch,
    /// Resource class, in upstream's spelling. Default: `CUSTOM_PCI_<VENDOR>_<PRODUCT>`.
    pub resource_class: Option<ResourceClass>,
    /// Traits in addition to those derived from other keys.
    pub traits: Vec<String>,
    /// True if libvirt binds the function to vfio-pci and back.
    pub managed: bool,
    /// True if guests with it can be live-migrated, if stated.
    pub live_migratable: Option<bool>,
    /// True if it becomes dirty after its first guest until it is cleaned.
    pub one_time_use: Option<bool>,
    /// The network that a network function is connected to.
    pub physical_network: Option<String>,
}

impl DeviceSpec {
    /// Parses one value of the option: a JSON object or a list of them, on any number of lines.
    pub fn parse(text: &str) -> Result<Vec<Self>, Error> {
        let value: Value = serde_json::from_str(text).map_err(|error| {
            refused(format!("it is not JSON: {error} in {}", shortened(text.trim())))
        })?;
        match value {
            Value::Object(entry) => Ok(vec![Self::entry(&entry)?]),
            Value::Array(entries) => entries
                .iter()
                .map(|entry| match entry {
                    Value::Object(entry) => Self::entry(entry),
                    other => Err(refused(format!("{other} is not a JSON object"))),
                })
                .collect(),
            other => Err(refused(format!("{other} is neither a JSON object nor a list of them"))),
        }
    }

    fn entry(entry: &Map<String, Value>) -> Result<Self, Error> {
        if let Some(key) = entry.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(refused(format!("unknown key {key}; known keys: {}", KEYS.join(", "))));
        }
        for key in ["devname", "parent_ifname"] {
            if entry.contains_key(key) {
                return Err(refused(format!(
                    "{key} names an interface, whose name may change; use address or product_id"
                )));
            }
        }
        if flag(entry, "remote_managed")? == Some(true) {
            return Err(refused(
                "remote_managed functions belong to a SmartNIC, which is not supported".to_owned(),
            ));
        }
        if flag(entry, "trusted")? == Some(true) {
            return Err(refused(
                "trusted virtual functions are not supported: the host would not let the guest change their addresses or \
                 become promiscuous. Remove trusted, or set it to \"false\"".to_owned(),
            ));
        }
        let spec = Self {
            written: Value::Object(entry.clone()).to_string(),
            vendor_id: id(entry, "vendor_id")?,
            product_id: id(entry, "product_id")?,
            address: AddressMatch::read(entry.get("address"))?,
            resource_class: text(entry, "resource_class")?
                .map(|name| resource_class(&name).map_err(refused))
                .transpose()?,
            traits: traits(entry)?,
            managed: flag(entry, "managed")?.unwrap_or(true),
            live_migratable: flag(entry, "live_migratable")?,
            one_time_use: flag(entry, "one_time_use")?,
            physical_network: text(entry, "physical_network")?.filter(|name| !name.is_empty()),
        };
        let everything =
            spec.vendor_id.is_none() && spec.product_id.is_none() && !entry.contains_key("address");
        if everything {
            return Err(refused(
                "it matches every PCI function of the host; set vendor_id, product_id or address"
                    .to_owned(),
            ));
        }
        Ok(spec)
    }

    /// True if the entry names a function. An entry with the address of a physical function names
    /// its virtual functions too.
    pub fn matches(&self, function: &MatchOf<'_>) -> bool {
        let same = |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|id| id == is);
        same(&self.vendor_id, function.vendor_id)
            && same(&self.product_id, function.product_id)
            && (self.names(function.address)
                || function.physical.is_some_and(|physical| self.names(physical)))
    }

    /// True if the entry's address matches the function itself, not only its card.
    pub(crate) fn names(&self, address: PciAddress) -> bool {
        self.address.matches(address)
    }
}

/// The entry on one line.
impl std::fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.written)
    }
}

fn refused(why: String) -> Error {
    Error::Spec(why)
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(120) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

fn text(entry: &Map<String, Value>, key: &str) -> Result<Option<String>, Error> {
    match entry.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(refused(format!("{key} is {other} but must be a string"))),
    }
}

/// Parses `yes`, `no`, `true`, `false` and the like, as a JSON value or a string.
fn flag(entry: &Map<String, Value>, key: &str) -> Result<Option<bool>, Error> {
    let spelt = match entry.get(key) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Bool(value)) => return Ok(Some(*value)),
        Some(Value::String(text)) => text.trim().to_ascii_lowercase(),
        Some(other) => other.to_string(),
    };
    match spelt.as_str() {
        "yes" | "true" | "on" | "1" | "t" | "y" => Ok(Some(true)),
        "no" | "false" | "off" | "0" | "f" | "n" => Ok(Some(false)),
        other => Err(refused(format!("{key} is {other:?} but must be \"yes\" or \"no\""))),
    }
}

/// Parses up to four hex digits; `*` means any.
fn id(entry: &Map<String, Value>, key: &str) -> Result<Option<String>, Error> {
    let Some(given) = text(entry, key)? else { return Ok(None) };
    let digits = given.trim().to_ascii_lowercase();
    let digits = digits.strip_prefix("0x").unwrap_or(&digits);
    if digits == "*" {
        return Ok(None);
    }
    if digits.is_empty() || digits.len() > 4 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(refused(format!(
            "{key} is {given:?} but must be up to four hex digits or \"*\""
        )));
    }
    Ok(Some(format!("{digits:0>4}")))
}

fn traits(entry: &Map<String, Value>) -> Result<Vec<String>, Error> {
    let mut traits = Vec::new();
    for name in text(entry, "traits")?.unwrap_or_default().split(',').map(str::trim) {
        if !name.is_empty() {
            traits.push(trait_name(name).map_err(refused)?);
        }
    }
    Ok(traits)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

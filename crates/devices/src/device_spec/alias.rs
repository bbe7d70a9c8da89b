//! The option `[pci] alias`: names by which flavors request functions of `[pci] device_spec`, in
//! upstream's grammar.
//!
//! Owns what an alias requests from a resource provider, independent of any host. A property that
//! cannot be requested is refused: a server must never get a card other than its alias describes.

use kilonova_ids::ResourceClass;
use kilonova_topology::PciPolicy;
use serde_json::{Map, Value};

use super::{flag, id, resource_class, text, traits};
use crate::Error;
use crate::traits::{LIVE_MIGRATABLE, MANAGED, PciType, of_ids};

const KEYS: [&str; 9] = [
    "name",
    "capability_type",
    "vendor_id",
    "product_id",
    "device_type",
    "numa_policy",
    "resource_class",
    "traits",
    "live_migratable",
];
const LONGEST_NAME: usize = 256;

/// The request for one device of an alias.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PciAlias {
    /// The name that flavors use.
    pub name: String,
    /// The resource class of the request.
    pub resource_class: ResourceClass,
    /// Required traits.
    pub required: Vec<String>,
    /// Forbidden traits.
    pub forbidden: Vec<String>,
    /// How near the device must be to a guest with a topology, unless its flavor or image has a policy.
    pub numa_policy: Option<PciPolicy>,
}

impl PciAlias {
    /// Parses one value of the option: a JSON object or a list of them, on any number of lines.
    ///
    /// # Errors
    /// Why the text is invalid.
    pub fn parse(text: &str) -> Result<Vec<Self>, Error> {
        let entries = match serde_json::from_str(text) {
            Ok(Value::Array(entries)) => entries,
            Ok(entry) => vec![entry],
            Err(error) => return Err(wrong(format!("it is not JSON: {error}"))),
        };
        let each = entries.iter().map(|entry| match entry {
            Value::Object(entry) => Self::entry(entry),
            other => Err(wrong(format!("{other} is not a JSON object"))),
        });
        each.collect()
    }

    fn entry(entry: &Map<String, Value>) -> Result<Self, Error> {
        let name = name(entry)?;
        Self::named(&name, entry).map_err(|error| match error {
            Error::Spec(why) => wrong(format!("alias {name:?}: {why}")),
            other => other,
        })
    }

    fn named(name: &str, entry: &Map<String, Value>) -> Result<Self, Error> {
        if let Some(key) = entry.keys().find(|key| !KEYS.contains(&key.as_str())) {
            let known = KEYS.join(", ");
            return Err(Error::Spec(format!("unknown key {key}; known keys: {known}")));
        }
        choice(entry, "capability_type", &["pci"])?;
        let numa_policy = choice(entry, "numa_policy", PciPolicy::NAMES)?;
        let numa_policy = numa_policy.as_deref().and_then(PciPolicy::parse);
        let mut required = traits(entry)?;
        let mut forbidden = Vec::new();
        required.push(MANAGED.to_owned());
        let ids = ids(entry)?;
        required.extend(ids.as_ref().map(|(vendor, product)| of_ids(vendor, product)));
        let class = match (text(entry, "resource_class")?, &ids) {
            (Some(given), _) => resource_class(&given).map_err(Error::Spec)?,
            (None, Some((vendor, product))) => ResourceClass::verbatim(of_ids(vendor, product)),
            (None, None) => {
                let why = "it names no device; set vendor_id and product_id, or resource_class";
                return Err(Error::Spec(why.to_owned()));
            }
        };
        match choice(entry, "device_type", &["type-PCI", "type-PF", "type-VF"])?.as_deref() {
            Some("type-PCI") => required.push(PciType::Plain.trait_name().to_owned()),
            Some("type-PF") => required.push(PciType::Physical.trait_name().to_owned()),
            Some(_) => required.push(PciType::Virtual.trait_name().to_owned()),
            None => forbidden.push(PciType::Physical.trait_name().to_owned()),
        }
        match flag(entry, "live_migratable")? {
            Some(true) => required.push(LIVE_MIGRATABLE.to_owned()),
            Some(false) => forbidden.push(LIVE_MIGRATABLE.to_owned()),
            None => {}
        }
        for list in [&mut required, &mut forbidden] {
            list.sort_unstable();
            list.dedup();
        }
        if let Some(both) = required.iter().find(|name| forbidden.contains(name)) {
            let why = format!("it both requires and forbids the trait {both}");
            return Err(Error::Spec(why));
        }
        Ok(Self { name: name.to_owned(), resource_class: class, required, forbidden, numa_policy })
    }
}

fn wrong(why: String) -> Error {
    Error::Alias(why)
}

fn name(entry: &Map<String, Value>) -> Result<String, Error> {
    let shown = || Value::Object(entry.clone());
    let given = match entry.get("name") {
        Some(Value::String(name)) => name.trim(),
        None => return Err(wrong(format!("{} has no name", shown()))),
        Some(other) => return Err(wrong(format!("name is {other} but must be a string"))),
    };
    if given.is_empty() || given.chars().count() > LONGEST_NAME {
        let length = format!("1 to {LONGEST_NAME} characters");
        return Err(wrong(format!("the name of {} must have {length}", shown())));
    }
    if given.contains([':', ',']) {
        let why = "must not contain ':' or ',', as flavors write NAME:COUNT,NAME:COUNT";
        return Err(wrong(format!("alias {given:?} {why}")));
    }
    Ok(given.to_owned())
}

fn choice(entry: &Map<String, Value>, key: &str, known: &[&str]) -> Result<Option<String>, Error> {
    let given = text(entry, key)?;
    if let Some(other) = given.as_deref().filter(|given| !known.contains(given)) {
        let known = known.join(", ");
        return Err(Error::Spec(format!("{key} is {other:?} but must be one of {known}")));
    }
    Ok(given)
}

/// Vendor and product, both or neither: a provider's trait contains both.
fn ids(entry: &Map<String, Value>) -> Result<Option<(String, String)>, Error> {
    match (id(entry, "vendor_id")?, id(entry, "product_id")?) {
        (Some(vendor), Some(product)) => Ok(Some((vendor, product))),
        (None, None) => Ok(None),
        (one, _) => {
            let (there, missing) = match one {
                Some(_) => ("vendor_id", "product_id"),
                None => ("product_id", "vendor_id"),
            };
            Err(Error::Spec(format!(
                "{there} needs {missing}; set both, or neither and a resource_class"
            )))
        }
    }
}

#[cfg(test)]
#[path = "alias_tests.rs"]
mod tests;

//! The `address` of a `device_spec` entry: a glob with `*`, or an object of regular expressions.

use regex::Regex;
use serde_json::Value;

use crate::{Error, PciAddress};

/// The properties that an entry is matched against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatchOf<'a> {
    /// Four hex digits.
    pub vendor_id: &'a str,
    /// Four hex digits.
    pub product_id: &'a str,
    /// The function's address.
    pub address: PciAddress,
    /// For a virtual function: the address of its physical function.
    pub physical: Option<PciAddress>,
}

/// The largest domain, bus, slot and function numbers.
const MOST: [u32; 4] = [0xffff, 0xff, 0x1f, 0x7];
const PARTS: [&str; 4] = ["domain", "bus", "slot", "function"];

/// Domain, bus, slot and function, each matched separately.
#[derive(Debug, Clone)]
pub(super) struct AddressMatch([Part; 4]);

#[derive(Debug, Clone)]
enum Part {
    Any,
    Is(u32),
    Like(Regex),
}

impl PartialEq for AddressMatch {
    fn eq(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|pair| match pair {
            (Part::Any, Part::Any) => true,
            (Part::Is(one), Part::Is(other)) => one == other,
            (Part::Like(one), Part::Like(other)) => one.as_str() == other.as_str(),
            _ => false,
        })
    }
}

impl Eq for AddressMatch {}

impl AddressMatch {
    pub(super) fn read(value: Option<&Value>) -> Result<Self, Error> {
        match value {
            None | Some(Value::Null) => Ok(Self([Part::Any, Part::Any, Part::Any, Part::Any])),
            Some(Value::String(text)) => Self::glob(text),
            Some(Value::Object(parts)) => Self::regex(parts),
            Some(other) => Err(refused(format!(
                "address is {other} but must be a string such as \"0000:84:00.*\" or an object with \
                 domain, bus, slot and function"
            ))),
        }
    }

    /// Parses `0000:84:00.0`, `*:84:00.*`, `:84:00`, `84:00.1`: parts that are missing on the left,
    /// or empty, match anything.
    fn glob(text: &str) -> Result<Self, Error> {
        let wrong = |why: &str| refused(format!("address {text:?} {why}"));
        let (places, function) = match text.split_once('.') {
            Some((places, function)) => (places, function),
            None => (text, "*"),
        };
        let places: Vec<&str> =
            if places.is_empty() { Vec::new() } else { places.split(':').collect() };
        if places.len() > 3 {
            return Err(wrong("has more parts than domain, bus and slot before the dot"));
        }
        let mut texts = vec!["*"; 3 - places.len()];
        texts.extend(places);
        texts.push(function);
        let mut parts = [Part::Any, Part::Any, Part::Any, Part::Any];
        for (at, text) in texts.iter().map(|text| text.trim()).enumerate() {
            if text.is_empty() || text == "*" {
                continue;
            }
            let number = u32::from_str_radix(text, 16)
                .ok()
                .filter(|_| text.bytes().all(|b| b.is_ascii_hexdigit()));
            match number {
                Some(number) if number <= MOST[at] => parts[at] = Part::Is(number),
                Some(_) => {
                    let (part, most) = (PARTS[at], MOST[at]);
                    return Err(wrong(&format!("has {part} {text}, but the maximum is {most:x}")));
                }
                None => {
                    let part = PARTS[at];
                    return Err(wrong(&format!(
                        "has {part} {text:?}, which is neither hex nor \"*\""
                    )));
                }
            }
        }
        Ok(Self(parts))
    }

    fn regex(given: &serde_json::Map<String, Value>) -> Result<Self, Error> {
        if let Some(key) = given.keys().find(|key| !PARTS.contains(&key.as_str())) {
            return Err(refused(format!(
                "address has the unknown key {key}; known keys: {}",
                PARTS.join(", ")
            )));
        }
        let mut parts = [Part::Any, Part::Any, Part::Any, Part::Any];
        for (at, name) in PARTS.iter().enumerate() {
            let pattern = match given.get(*name) {
                None => continue,
                Some(Value::String(pattern)) => pattern,
                Some(other) => {
                    return Err(refused(format!(
                        "{name} of the address is {other} but must be a regular expression in quotes"
                    )));
                }
            };
            let regex = Regex::new(&format!("^(?:{pattern})")).map_err(|_| {
                refused(format!(
                    "{name} of the address is {pattern:?}, which is not a valid regular expression"
                ))
            })?;
            parts[at] = Part::Like(regex);
        }
        Ok(Self(parts))
    }

    pub(super) fn matches(&self, address: PciAddress) -> bool {
        if address.domain > MOST[0] {
            return false;
        }
        let numbers = [
            address.domain,
            u32::from(address.bus),
            u32::from(address.device),
            u32::from(address.function),
        ];
        let widths = [4, 2, 2, 1];
        self.0.iter().zip(numbers).zip(widths).all(|((part, number), width)| match part {
            Part::Any => true,
            Part::Is(wanted) => *wanted == number,
            Part::Like(regex) => regex.is_match(&format!("{number:0width$x}")),
        })
    }
}

fn refused(why: String) -> Error {
    Error::Spec(why)
}

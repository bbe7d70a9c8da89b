//! An entry of `[nvme] device_spec`, in upstream's grammar: `vendor_id`, `product_id`, `address`,
//! and how the disk is cleaned.
//!
//! Only `auto` is supported for `clear_action` and `clear_strategy`: the agent chooses, or
//! `[devices] cleanup_command` decides. An entry that requests more is refused.

use serde_json::{Map, Value};

use super::{DeviceSpec, MatchOf, text};
use crate::Error;

const PLACE: [&str; 3] = ["vendor_id", "product_id", "address"];
const CLEARING: [(&str, &[&str]); 2] = [
    ("clear_action", &["auto", "sanitize", "zero"]),
    ("clear_strategy", &["auto", "crypto", "block"]),
];

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvmeSpec(DeviceSpec);

impl NvmeSpec {
    /// Parses one value of the option: a JSON object or a list of them.
    ///
    /// # Errors
    /// Why the text is invalid.
    pub fn parse(text: &str) -> Result<Vec<Self>, Error> {
        let entries = match serde_json::from_str(text) {
            Ok(Value::Array(entries)) => entries,
            Ok(entry) => vec![entry],
            Err(error) => return Err(wrong(format!("it is not JSON: {error}"))),
        };
        let objects = entries.iter().map(|entry| match entry {
            Value::Object(entry) => Self::entry(entry),
            other => Err(wrong(format!("{other} is not a JSON object"))),
        });
        objects.collect()
    }

    fn entry(entry: &Map<String, Value>) -> Result<Self, Error> {
        let as_nvme = |error: Error| match error {
            Error::Spec(why) => wrong(why),
            other => other,
        };
        for (key, known) in CLEARING {
            let Some(given) = text(entry, key).map_err(as_nvme)? else { continue };
            if !known.contains(&given.as_str()) {
                return Err(wrong(format!("{key} is {given:?} but must be {}", known.join(", "))));
            }
            if given != "auto" {
                return Err(wrong(format!(
                    "{key} {given} is not supported; omit it and set [devices] \
                     cleanup_command = CUSTOM_NVME:PROGRAM"
                )));
            }
        }
        let mut place = entry.clone();
        for (key, _) in CLEARING {
            place.remove(key);
        }
        if let Some(key) = place.keys().find(|key| !PLACE.contains(&key.as_str())) {
            let known = PLACE.iter().chain(CLEARING.iter().map(|(key, _)| key));
            let known: Vec<&str> = known.copied().collect();
            return Err(wrong(format!("unknown key {key}; known keys: {}", known.join(", "))));
        }
        DeviceSpec::entry(&place).map(Self).map_err(as_nvme)
    }

    /// True if the entry names a function.
    pub(crate) fn matches(&self, function: &MatchOf<'_>) -> bool {
        self.0.matches(function)
    }
}

/// The entry on one line.
impl std::fmt::Display for NvmeSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

fn wrong(why: String) -> Error {
    Error::NvmeSpec(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_entries_are_refused_with_the_reason() {
        let all = NvmeSpec::parse(r#"[{"vendor_id": "144d", "clear_action": "auto"}]"#);
        assert_eq!(all.expect("the option is valid").len(), 1);
        for (text, part) in [
            ("{", "it is not JSON"),
            ("7", "7 is not a JSON object"),
            ("{}", "matches every PCI function"),
            (r#"{"vendor_id": "x"}"#, "hex digits"),
            (r#"{"vendor_id": "144d", "traits": "X"}"#, "unknown key traits; known keys"),
            (r#"{"vendor_id": "144d", "clear_action": "burn"}"#, "must be auto, sanitize, zero"),
            (r#"{"vendor_id": "144d", "clear_action": "zero"}"#, "cleanup_command"),
            (r#"{"vendor_id": "144d", "clear_strategy": 1}"#, "must be a string"),
        ] {
            let why = NvmeSpec::parse(text).expect_err(text).to_string();
            assert!(why.starts_with("Invalid [nvme]device_spec config: "), "{why}");
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}

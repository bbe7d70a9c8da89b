//! The grammar of device profiles: Cyborg's rules, plus a refusal of profiles that can never be
//! scheduled (amounts below 1, groups without resources, names that Placement cannot store).
//!
//! This file performs no I/O. Its messages are Cyborg's where Cyborg has one.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_ids::{DeviceProfileId, parse_uuid_like};
use serde_json::{Map, Value};

use crate::Error;
use crate::db::profiles::Group;
use crate::topology::{TOPOLOGY, Topology};

/// Maximum number of accelerators that one profile may request.
const MAX_ACCELERATORS: i64 = 1024;
const MAX_NAME: usize = 255;
const MAX_TEXT: usize = 65_535;
const FIELDS: [&str; 4] = ["name", "groups", "description", "uuid"];
const CLASSES: [&str; 7] =
    ["FPGA", "GPU", "VGPU", "PGPU", "CUSTOM_QAT", "CUSTOM_NIC", "CUSTOM_SSD"];
const TRAIT_VALUES: [&str; 2] = ["required", "forbidden"];

/// A validated profile.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Draft {
    pub uuid: Option<DeviceProfileId>,
    pub name: String,
    pub description: Option<String>,
    pub groups: Vec<Group>,
}

fn invalid<T>(text: impl Into<String>) -> Result<T, Error> {
    Err(Error::Invalid(text.into()))
}

/// True if a text is a valid profile name.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_NAME
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// Reads the body of `POST /v2/device_profiles`: a list of one object.
pub(crate) fn draft(body: &Value) -> Result<Draft, Error> {
    let Some([Value::Object(profile)]) = body.as_array().map(Vec::as_slice) else {
        return invalid(match body {
            Value::Array(list) if list.len() == 1 => "A device profile must be an object.",
            _ => "Only one device profile allowed per POST request for now.",
        });
    };
    if let Some(field) = profile.keys().find(|key| !FIELDS.contains(&key.as_str())) {
        return invalid(format!("Unknown attribute: {:?} of a device profile", shown(field)));
    }
    let name = name(profile)?;
    let groups = groups(profile)?;
    Ok(Draft { uuid: uuid(profile)?, name, description: description(profile)?, groups })
}

fn name(profile: &Map<String, Value>) -> Result<String, Error> {
    let name = match profile.get("name") {
        None | Some(Value::Null) => "",
        Some(Value::String(name)) => name,
        Some(_) => return invalid("Device profile name must be a string."),
    };
    if name.is_empty() {
        return invalid("DeviceProfile name needed.");
    }
    if name.chars().count() > MAX_NAME {
        return invalid(format!("Device profile name is longer than {MAX_NAME} characters."));
    }
    if !is_name(name) {
        return invalid("Device profile name must be of the form ^[a-zA-Z0-9-_]+$");
    }
    Ok(name.to_owned())
}

fn uuid(profile: &Map<String, Value>) -> Result<Option<DeviceProfileId>, Error> {
    match profile.get("uuid") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => match parse_uuid_like(text) {
            Some(uuid) => Ok(Some(uuid)),
            None => invalid(format!("Expected a uuid but received {}.", shown(text))),
        },
        Some(other) => invalid(format!("Expected a uuid but received {other}.")),
    }
}

fn description(profile: &Map<String, Value>) -> Result<Option<String>, Error> {
    match profile.get("description") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.len() > MAX_TEXT => {
            invalid(format!("The description is longer than {MAX_TEXT} bytes."))
        }
        Some(Value::String(text)) if text.chars().any(|c| c.is_control() && c != '\n') => {
            invalid("The description contains control characters.")
        }
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => invalid("The description must be a string."),
    }
}

fn groups(profile: &Map<String, Value>) -> Result<Vec<Group>, Error> {
    let list = match profile.get("groups") {
        None | Some(Value::Null) => return invalid("DeviceProfile needs groups field."),
        Some(Value::Array(list)) if list.is_empty() => {
            return invalid("DeviceProfile needs groups field.");
        }
        Some(Value::Array(list)) => list,
        Some(_) => return invalid("The groups of a device profile must be a list of objects."),
    };
    let mut groups = Vec::new();
    let mut total = 0_i64;
    for (at, value) in list.iter().enumerate() {
        let Value::Object(entries) = value else {
            return invalid(format!("Group {at} of the device profile must be an object."));
        };
        let group = group(entries)?;
        let amount = amount(&group);
        if amount == 0 {
            return invalid(format!("Group {at} of the device profile asks for no resources."));
        }
        total = total.saturating_add(amount);
        groups.push(group);
    }
    if groups.iter().filter_map(|group| group.get(TOPOLOGY)).collect::<BTreeSet<_>>().len() > 1 {
        return invalid(format!("The groups of a device profile must agree on {TOPOLOGY}."));
    }
    if total > MAX_ACCELERATORS {
        return invalid(format!(
            "A device profile may ask for at most {MAX_ACCELERATORS} accelerators, not {total}."
        ));
    }
    Ok(groups)
}

/// Number of accelerators that a group requests, over all resource classes.
pub(crate) fn amount(group: &Group) -> i64 {
    group
        .iter()
        .filter(|(key, _)| key.starts_with("resources:"))
        .filter_map(|(_, value)| value.parse::<i64>().ok())
        .fold(0, i64::saturating_add)
}

fn group(entries: &Map<String, Value>) -> Result<Group, Error> {
    let mut group = BTreeMap::new();
    for (key, value) in entries {
        let (key, value) = match key.split_once(':') {
            Some(("resources", class)) => resource(class.trim(), value)?,
            Some(("trait", name)) => required_trait(name.trim(), value)?,
            Some(("accel", name)) => accel(name.trim(), value)?,
            _ => {
                return invalid(
                    "Device profile group keys must be of the form ^(resources:|trait:|accel:)",
                );
            }
        };
        if let Some(twice) = group.insert(key.clone(), value) {
            return invalid(format!("Device profile group key {key} is given twice ({twice})."));
        }
    }
    Ok(group)
}

fn is_custom(name: &str) -> bool {
    name.len() <= MAX_NAME
        && name.strip_prefix("CUSTOM_").is_some_and(|rest| {
            !rest.is_empty()
                && rest.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
        })
}

fn resource(class: &str, value: &Value) -> Result<(String, String), Error> {
    if !CLASSES.contains(&class) && !is_custom(class) {
        return invalid(format!("Unsupported resource class {}", shown(class)));
    }
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        other => other.to_string(),
    };
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse::<i64>() {
        Ok(number) if digits && number > 0 => {
            Ok((format!("resources:{class}"), number.to_string()))
        }
        _ => invalid(format!("Resources number {} is invalid", shown(&text))),
    }
}

fn required_trait(name: &str, value: &Value) -> Result<(String, String), Error> {
    if !is_custom(name) {
        let rest = if name.starts_with("CUSTOM_") { " and hold only A-Z, 0-9 and _" } else { "" };
        return invalid(format!(
            "Unsupported trait name format {}, should start with CUSTOM_{rest}",
            shown(name)
        ));
    }
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if !TRAIT_VALUES.contains(&text.as_str()) {
        return invalid(format!(
            "Unsupported trait value {}, the value must be one among ['required', 'forbidden']",
            shown(&text)
        ));
    }
    Ok((format!("trait:{name}"), text))
}

fn accel(name: &str, value: &Value) -> Result<(String, String), Error> {
    let bad = |text: &str| text.len() > MAX_NAME || text.chars().any(char::is_control);
    if name.is_empty() || bad(name) {
        return invalid(format!("Device profile group key accel:{} is invalid", shown(name)));
    }
    let key = format!("accel:{name}");
    match coerced(value) {
        Some(text) if key == TOPOLOGY && Topology::parse(&text).is_none() => {
            let text = shown(&text);
            invalid(format!("Invalid value '{text}' of {TOPOLOGY}. {}", Topology::allowed()))
        }
        Some(text) if !bad(&text) => Ok((key, text)),
        _ => invalid(format!("The value of {key} must be a short, printable string.")),
    }
}

/// The value as upstream stores it in a string field: oslo.versionedobjects converts numbers and booleans with Python's
/// `str()`. `None` for null, lists and objects.
pub(super) fn coerced(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(true) => Some("True".into()),
        Value::Bool(false) => Some("False".into()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A user's text, escaped and shortened for a message.
pub(crate) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(100).flat_map(char::escape_debug).collect();
    if text.chars().nth(100).is_some() {
        shown.push('…');
    }
    shown
}

//! Which attribute takes which value, for creating and for changing alike.

use kilonova_wire::Context;
use kilonova_wire::text::check_name;
use serde_json::Value;

use crate::Error;
use crate::record::{CONTAINER_FORMATS, DISK_FORMATS, ImageRecord, Status, Visibility};

/// Set by the service alone.
pub(crate) const READ_ONLY: [&str; 15] = [
    "id",
    "status",
    "size",
    "virtual_size",
    "checksum",
    "os_hash_algo",
    "os_hash_value",
    "created_at",
    "updated_at",
    "self",
    "file",
    "schema",
    "direct_url",
    "locations",
    "stores",
];
/// Attributes that every image has.
pub(crate) const BASE: [&str; 10] = [
    "name",
    "owner",
    "visibility",
    "disk_format",
    "container_format",
    "min_ram",
    "min_disk",
    "protected",
    "os_hidden",
    "tags",
];
const LARGEST: i64 = i32::MAX as i64;
const MOST_PROPERTIES: usize = 128;
const MOST_TAGS: usize = 128;

fn wrong<T>(key: &str, why: &str) -> Result<T, Error> {
    Err(Error::Invalid(format!("Invalid value for {}: {why}.", key.escape_debug())))
}

/// Sets one attribute.
pub(crate) fn apply(
    image: &mut ImageRecord,
    key: &str,
    value: &Value,
    context: &Context,
) -> Result<(), Error> {
    match key {
        "name" => image.name = name(value)?,
        "owner" => image.owner = owner(image, value, context)?,
        "visibility" => image.visibility = visibility(value, context)?,
        "disk_format" => image.disk_format = format(image, key, value, &DISK_FORMATS)?,
        "container_format" => {
            image.container_format = format(image, key, value, &CONTAINER_FORMATS)?;
        }
        "min_ram" => image.min_ram = number(key, value)?,
        "min_disk" => image.min_disk = number(key, value)?,
        "protected" => image.protected = flag(key, value)?,
        "os_hidden" => image.hidden = flag(key, value)?,
        "tags" => image.tags = tags(value)?,
        _ if READ_ONLY.contains(&key) => {
            return Err(Error::Forbidden(format!("Attribute '{key}' is read-only.")));
        }
        _ => {
            image.properties.insert(property_name(key)?, property(key, value)?);
            if image.properties.len() > MOST_PROPERTIES {
                return Err(Error::TooLarge(format!(
                    "The limit of {MOST_PROPERTIES} properties per image has been exceeded."
                )));
            }
        }
    }
    Ok(())
}

fn name(value: &Value) -> Result<Option<String>, Error> {
    match value {
        Value::Null => Ok(None),
        Value::String(name) => {
            check_name("name", name, 255).map_err(|fault| Error::Invalid(fault.message))?;
            Ok(Some(name.clone()))
        }
        _ => wrong("name", "it has to be a string"),
    }
}

fn owner(image: &ImageRecord, value: &Value, context: &Context) -> Result<String, Error> {
    let Some(owner) = value.as_str().filter(|o| !o.is_empty() && o.len() <= 255) else {
        return wrong("owner", "it has to be the id of a project");
    };
    if owner.chars().any(char::is_control) {
        return wrong("owner", "it holds control characters");
    }
    if owner != image.owner && !context.is_admin() {
        return Err(Error::Forbidden(
            "Only an administrator may choose the owner of an image.".into(),
        ));
    }
    Ok(owner.to_owned())
}

fn visibility(value: &Value, context: &Context) -> Result<Visibility, Error> {
    let Some(visibility) = value.as_str().and_then(Visibility::parse) else {
        return wrong("visibility", "it has to be public, community, shared or private");
    };
    if visibility == Visibility::Public && !context.is_admin() {
        return Err(Error::Forbidden("Only an administrator may make an image public.".into()));
    }
    Ok(visibility)
}

fn format(
    image: &ImageRecord,
    key: &str,
    value: &Value,
    known: &[&str],
) -> Result<Option<String>, Error> {
    if image.status != Status::Queued {
        return Err(Error::Forbidden(format!(
            "Attribute '{key}' cannot be changed once the image has data."
        )));
    }
    match value {
        Value::Null => Ok(None),
        Value::String(format) if known.contains(&format.as_str()) => Ok(Some(format.clone())),
        other => wrong(key, &format!("it has to be one of {}, not {other}", known.join(", "))),
    }
}

fn number(key: &str, value: &Value) -> Result<i64, Error> {
    match value.as_i64() {
        Some(number) if (0..=LARGEST).contains(&number) => Ok(number),
        _ => wrong(key, &format!("it has to be a whole number from 0 to {LARGEST}")),
    }
}

fn flag(key: &str, value: &Value) -> Result<bool, Error> {
    value.as_bool().map_or_else(|| wrong(key, "it has to be true or false"), Ok)
}

fn tags(value: &Value) -> Result<Vec<String>, Error> {
    let Some(tags) = value.as_array() else { return wrong("tags", "it has to be a list") };
    let mut tags = tags.iter().map(|tag| check_tag(tag.as_str())).collect::<Result<Vec<_>, _>>()?;
    tags.sort_unstable();
    tags.dedup();
    room_for_tags(&tags)?;
    Ok(tags)
}

/// A tag that may be set.
pub(crate) fn check_tag(tag: Option<&str>) -> Result<String, Error> {
    match tag {
        Some(tag) if check_name("tag", tag, 255).is_ok() => Ok(tag.to_owned()),
        _ => wrong("tags", "a tag is 1 to 255 characters without control characters"),
    }
}

pub(crate) fn room_for_tags(tags: &[String]) -> Result<(), Error> {
    if tags.len() <= MOST_TAGS {
        return Ok(());
    }
    Err(Error::TooLarge(format!("The limit of {MOST_TAGS} tags per image has been exceeded.")))
}

fn property_name(key: &str) -> Result<String, Error> {
    check_name("property", key, 255).map_err(|fault| Error::Invalid(fault.message))?;
    Ok(key.to_owned())
}

fn property(key: &str, value: &Value) -> Result<String, Error> {
    let Some(text) = value.as_str() else { return wrong(key, "it has to be a string") };
    if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
        return wrong(key, "it holds control characters");
    }
    Ok(text.to_owned())
}

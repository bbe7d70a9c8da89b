//! Which attribute takes which value, for creating and for changing alike.

use kilonova_wire::text::check_name;
use serde_json::Value;

use super::Who;
use crate::record::{CONTAINER_FORMATS, DISK_FORMATS, ImageRecord, Status, Visibility};
use crate::{Error, Options};

/// Set by the service alone.
const READ_ONLY: [&str; 14] = [
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
    "stores",
];
/// Names that no property may have; nor may it begin with [`NAMESPACE`].
const RESERVED: [&str; 4] = ["location", "locations", "deleted", "deleted_at"];
/// What Glance keeps for itself.
const NAMESPACE: &str = "os_glance";
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
/// Bytes that the value of a property may have: what Glance's column takes.
const LONGEST_VALUE: usize = 65_535;
/// About how many bytes the properties and tags of an image may have together. Glance has no such
/// limit: 128 properties of any length make lists that no process can hold.
const HEAVIEST: usize = 128 * 1024;

fn wrong<T>(key: &str, why: &str) -> Result<T, Error> {
    Err(Error::Invalid(format!("Invalid value for {}: {why}.", key.escape_debug())))
}

/// Refuses what a caller may not set at all.
pub(crate) fn check_writable(key: &str) -> Result<(), Error> {
    if READ_ONLY.contains(&key) {
        return Err(Error::Forbidden(format!("Attribute '{key}' is read-only.")));
    }
    if RESERVED.contains(&key) || key.starts_with(NAMESPACE) {
        return Err(Error::Forbidden(format!("Attribute '{}' is reserved.", key.escape_debug())));
    }
    Ok(())
}

/// Sets one attribute.
pub(crate) fn apply(
    image: &mut ImageRecord,
    key: &str,
    value: &Value,
    who: &Who,
) -> Result<(), Error> {
    check_writable(key)?;
    match key {
        "name" => image.name = name(value)?,
        "owner" => image.owner = owner(image, value, who)?,
        "visibility" => image.visibility = visibility(value)?,
        "disk_format" => image.disk_format = format(image, key, value, &DISK_FORMATS)?,
        "container_format" => {
            image.container_format = format(image, key, value, &CONTAINER_FORMATS)?;
        }
        "min_ram" => image.min_ram = number(key, value)?,
        "min_disk" => image.min_disk = number(key, value)?,
        "protected" => image.protected = flag(key, value)?,
        "os_hidden" => image.hidden = flag(key, value)?,
        "tags" => image.tags = tags(value)?,
        _ => {
            image.properties.insert(property_name(key)?, property(key, value)?);
        }
    }
    Ok(())
}

/// Whether the caller may show the image to those to whom its visibility shows it.
pub(crate) fn shown_to(who: &Who, image: &ImageRecord) -> Result<(), Error> {
    let rule = match image.visibility {
        Visibility::Public => "publicize_image",
        Visibility::Community => "communitize_image",
        Visibility::Shared | Visibility::Private => return Ok(()),
    };
    if who.allows(rule, image, None) { Ok(()) } else { Err(super::refused(rule)) }
}

/// Refuses an image that has grown beyond what an image may have.
pub(crate) fn fits(
    before: Option<&ImageRecord>,
    image: &ImageRecord,
    options: &Options,
) -> Result<(), Error> {
    let grew = |size: fn(&ImageRecord) -> usize| before.is_none_or(|b| size(image) > size(b));
    let quota = |what: &str, attempted: usize, most: Option<usize>| match most {
        Some(most) if attempted > most => Err(Error::TooLarge(format!(
            "The limit has been exceeded on the number of allowed image {what}. Attempted: \
             {attempted}, Maximum: {most}"
        ))),
        _ => Ok(()),
    };
    let new = |key| before.is_none_or(|before| !before.properties.contains_key(key));
    if image.properties.keys().any(new) {
        quota("properties", image.properties.len(), options.properties)?;
    }
    if grew(|image| image.tags.len()) {
        quota("tags", image.tags.len(), options.tags)?;
    }
    if image.weight() > HEAVIEST && grew(ImageRecord::weight) {
        return Err(Error::TooLarge(format!(
            "The properties and tags of an image may have at most {HEAVIEST} bytes together."
        )));
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

fn owner(image: &ImageRecord, value: &Value, who: &Who) -> Result<String, Error> {
    let Some(owner) = value.as_str().filter(|o| !o.is_empty() && o.len() <= 255) else {
        return wrong("owner", "it has to be the id of a project");
    };
    if owner.chars().any(char::is_control) {
        return wrong("owner", "it holds control characters");
    }
    if owner != image.owner && !who.context.is_admin() {
        return Err(Error::Forbidden("Owner can't be updated by non admin.".into()));
    }
    Ok(owner.to_owned())
}

fn visibility(value: &Value) -> Result<Visibility, Error> {
    value.as_str().and_then(Visibility::parse).map_or_else(
        || wrong("visibility", "it has to be public, community, shared or private"),
        Ok,
    )
}

fn format(
    image: &ImageRecord,
    key: &str,
    value: &Value,
    known: &[&str],
) -> Result<Option<String>, Error> {
    if image.status != Status::Queued {
        return Err(Error::Forbidden(format!(
            "Attribute {key} can be only replaced for a queued image."
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
    Ok(tags)
}

/// A tag that may be set.
pub(crate) fn check_tag(tag: Option<&str>) -> Result<String, Error> {
    match tag {
        Some(tag) if check_name("tag", tag, 255).is_ok() => Ok(tag.to_owned()),
        _ => wrong("tags", "a tag is 1 to 255 characters without control characters"),
    }
}

fn property_name(key: &str) -> Result<String, Error> {
    check_name("property", key, 255).map_err(|fault| Error::Invalid(fault.message))?;
    Ok(key.to_owned())
}

fn property(key: &str, value: &Value) -> Result<String, Error> {
    let Some(text) = value.as_str() else { return wrong(key, "it has to be a string") };
    if text.len() > LONGEST_VALUE {
        return wrong(key, &format!("it may have at most {LONGEST_VALUE} bytes"));
    }
    if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
        return wrong(key, "it holds control characters");
    }
    Ok(text.to_owned())
}

//! Validation of attribute values, for creation and update.

use kilonova_wire::text::check_name;
use serde_json::Value;

use super::Requester;
use crate::record::{CONTAINER_FORMATS, DISK_FORMATS, ImageRecord, Status, Visibility};
use crate::{Error, ImageOptions};

/// Attributes that only the service sets.
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
/// Names that properties must not have. Names with the prefix [`NAMESPACE`] are reserved too.
const RESERVED: [&str; 4] = ["location", "locations", "deleted", "deleted_at"];
/// The prefix that Glance reserves.
const NAMESPACE: &str = "os_glance";
/// The writable attributes of every image.
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
const MAX_NUMBER: i64 = i32::MAX as i64;
/// Maximum length of a property's value in bytes: the capacity of Glance's column.
const MAX_VALUE_LENGTH: usize = 65_535;
/// Approximate maximum size of an image's properties and tags in bytes. Glance has no such limit, but 128 properties of
/// any length would make lists too large for memory.
const HEAVIEST: usize = 128 * 1024;

fn wrong<T>(key: &str, why: &str) -> Result<T, Error> {
    Err(Error::Invalid(format!("Invalid value for {}: {why}.", key.escape_debug())))
}

/// Refuses attributes that a caller cannot set.
pub(crate) fn check_writable(key: &str) -> Result<(), Error> {
    if READ_ONLY.contains(&key) {
        return Err(Error::Forbidden(format!("Attribute '{key}' is read-only.")));
    }
    if RESERVED.contains(&key) || key.starts_with(NAMESPACE) {
        return Err(Error::Forbidden(format!("Attribute '{}' is reserved.", key.escape_debug())));
    }
    Ok(())
}

/// Refuses a property with the name of an attribute, a reserved or invalid name, or an invalid value.
pub(crate) fn check_property(key: &str, value: &str) -> Result<(), Error> {
    check_writable(key)?;
    if BASE.contains(&key) {
        return Err(Error::Forbidden(format!("Attribute '{key}' is reserved.")));
    }
    property_name(key)?;
    check_text(key, value)
}

/// Sets one attribute.
pub(crate) fn apply(
    image: &mut ImageRecord,
    key: &str,
    value: &Value,
    caller: &Requester,
) -> Result<(), Error> {
    check_writable(key)?;
    match key {
        "name" => image.name = name(value)?,
        "owner" => image.owner = owner(image, value, caller)?,
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

/// Enforces the rule for making an image public or community.
pub(crate) fn check_visibility(
    image: &ImageRecord,
    allows: impl FnOnce(&str) -> bool,
) -> Result<(), Error> {
    let rule = match image.visibility {
        Visibility::Public => "publicize_image",
        Visibility::Community => "communitize_image",
        Visibility::Shared | Visibility::Private => return Ok(()),
    };
    if allows(rule) { Ok(()) } else { Err(super::refused(rule)) }
}

/// Refuses an image that has grown beyond a limit.
pub(crate) fn check_limits(
    before: Option<&ImageRecord>,
    image: &ImageRecord,
    options: &ImageOptions,
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
            "The properties and tags of an image may have at most {HEAVIEST} bytes in total."
        )));
    }
    Ok(())
}

/// True for a name or a tag, which may be empty, as in `get_base_properties` of `glance/api/v2/images.py`.
fn is_short(text: &str) -> bool {
    text.chars().count() <= 255 && !text.chars().any(char::is_control)
}

fn name(value: &Value) -> Result<Option<String>, Error> {
    match value {
        Value::Null => Ok(None),
        Value::String(name) if is_short(name) => Ok(Some(name.clone())),
        _ => wrong(
            "name",
            "it must be a string of at most 255 characters without control characters",
        ),
    }
}

fn owner(image: &ImageRecord, value: &Value, caller: &Requester) -> Result<String, Error> {
    let Some(owner) = value.as_str().filter(|o| !o.is_empty() && o.len() <= 255) else {
        return wrong("owner", "it must be a project id");
    };
    if owner.chars().any(char::is_control) {
        return wrong("owner", "it contains control characters");
    }
    if owner != image.owner && !caller.context.is_admin() {
        return Err(Error::Forbidden("Owner can't be updated by non admin.".into()));
    }
    Ok(owner.to_owned())
}

fn visibility(value: &Value) -> Result<Visibility, Error> {
    value
        .as_str()
        .and_then(Visibility::parse)
        .map_or_else(|| wrong("visibility", "it must be public, community, shared or private"), Ok)
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
        other => wrong(key, &format!("it must be one of {}, not {other}", known.join(", "))),
    }
}

fn number(key: &str, value: &Value) -> Result<i64, Error> {
    match value.as_i64() {
        Some(number) if (0..=MAX_NUMBER).contains(&number) => Ok(number),
        _ => wrong(key, &format!("it must be an integer from 0 to {MAX_NUMBER}")),
    }
}

fn flag(key: &str, value: &Value) -> Result<bool, Error> {
    value.as_bool().map_or_else(|| wrong(key, "it must be true or false"), Ok)
}

fn tags(value: &Value) -> Result<Vec<String>, Error> {
    let Some(tags) = value.as_array() else { return wrong("tags", "it must be a list") };
    let mut tags = tags.iter().map(|tag| check_tag(tag.as_str())).collect::<Result<Vec<_>, _>>()?;
    tags.sort_unstable();
    tags.dedup();
    Ok(tags)
}

/// Validates a tag.
pub(crate) fn check_tag(tag: Option<&str>) -> Result<String, Error> {
    match tag {
        Some(tag) if is_short(tag) => Ok(tag.to_owned()),
        _ => wrong("tags", "a tag may have at most 255 characters and no control characters"),
    }
}

fn property_name(key: &str) -> Result<String, Error> {
    check_name("property", key, 255).map_err(|refusal| Error::Invalid(refusal.message))?;
    Ok(key.to_owned())
}

fn property(key: &str, value: &Value) -> Result<String, Error> {
    let Some(text) = value.as_str() else { return wrong(key, "it must be a string") };
    check_text(key, text)?;
    Ok(text.to_owned())
}

fn check_text(key: &str, text: &str) -> Result<(), Error> {
    if text.len() > MAX_VALUE_LENGTH {
        return wrong(key, &format!("it may have at most {MAX_VALUE_LENGTH} bytes"));
    }
    if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
        return wrong(key, "it contains control characters");
    }
    Ok(())
}

//! Checks and conversions of input that several resources share.

use std::sync::LazyLock;

use kilonova_compute_app::microversions::{self, Span};
use kilonova_compute_app::schemas::{MAX_INT, NO, YES};
use kilonova_wire::paging::MAX_LIMIT;
use kilonova_wire::query::Query;
use kilonova_wire::{Microversion, Refusal, text};
use regex::Regex;
use serde_json::Value;

/// Declares the schemas of a body by microversion, and a test that compiles all of them, because a request
/// compiles only the schema of its own microversion.
macro_rules! body_schemas {
    ($name:ident, $of:expr, $test:ident) => {
        static $name: kilonova_compute_app::schemas::Schemas =
            kilonova_compute_app::schemas::Schemas::new($of);

        #[cfg(test)]
        #[test]
        fn $test() {
            $name.compile();
        }
    };
}
pub(super) use body_schemas;

/// Refuses a method that the microversion does not have.
///
/// # Errors
/// 404 with Nova's message.
pub fn check_microversion(version: Microversion, span: Span) -> Result<(), Refusal> {
    if span.has(version) {
        return Ok(());
    }
    Err(Refusal::not_found(format!("API version {version} is not supported on this method.")))
}

/// Refuses unknown query keys.
///
/// # Errors
/// 400 naming the first unknown key.
pub fn check_query_keys(query: &Query, known: &[&str]) -> Result<(), Refusal> {
    match query.unknown(known) {
        None => Ok(()),
        Some(key) => Err(Refusal::bad_request(format!(
            "Additional properties are not allowed ('{key}' was unexpected)"
        ))),
    }
}

/// Refuses every query key at the microversions that refuse unknown keys.
///
/// # Errors
/// 400 naming the first key.
pub fn check_no_query(query: &Query, version: Microversion) -> Result<(), Refusal> {
    if version < microversions::STRICT_QUERIES {
        return Ok(());
    }
    check_query_keys(query, &[])
}

/// 400 for an invalid query value.
pub fn invalid_query(key: &str, value: &str, why: &str) -> Refusal {
    Refusal::bad_request(format!("Invalid input for query parameters {key}. Value: {value}. {why}"))
}

/// Refuses a body with any field other than `key`.
///
/// # Errors
/// 400 naming the other field.
pub fn check_only_field(body: &Value, key: &str) -> Result<(), Refusal> {
    let fields = body.as_object().into_iter().flat_map(serde_json::Map::keys);
    match fields.into_iter().find(|field| *field != key) {
        None => Ok(()),
        Some(other) => Err(Refusal::bad_request(format!(
            "Invalid input for body. Additional properties are not allowed ('{}' was unexpected)",
            other.escape_debug()
        ))),
    }
}

/// The value of a boolean that passed [`kilonova_compute_app::schemas::boolean`].
pub fn boolean(value: &Value) -> bool {
    value.as_bool().unwrap_or_else(|| value.as_str().is_some_and(|word| YES.contains(&word)))
}

/// A boolean in a query; false if the key is missing.
///
/// # Errors
/// 400 for a value that is not a boolean.
pub fn query_boolean(query: &Query, key: &str) -> Result<bool, Refusal> {
    match query.get(key) {
        None => Ok(false),
        Some(word) if YES.contains(&word) => Ok(true),
        Some(word) if NO.contains(&word) => Ok(false),
        Some(word) => Err(invalid_query(key, word, "It is not a boolean.")),
    }
}

/// The offset and the limit of a list. A limit of 0 means none, and none means the maximum. (Upstream: `limited` in
/// `nova/api/openstack/common.py`.)
///
/// # Errors
/// 400 for a value that is not an integer of at least 0.
pub fn limited(query: &Query) -> Result<(usize, usize), Refusal> {
    let number = |key: &str| -> Result<Option<usize>, Refusal> {
        let Some(text) = query.get(key).filter(|text| !text.is_empty()) else { return Ok(None) };
        let number = text.parse::<u32>().ok().and_then(|number| usize::try_from(number).ok());
        number
            .map(Some)
            .ok_or_else(|| invalid_query(key, text, "It must be a non-negative integer."))
    };
    let limit = number("limit")?.filter(|limit| *limit > 0);
    Ok((number("offset")?.unwrap_or(0), limit.unwrap_or(MAX_LIMIT).min(MAX_LIMIT)))
}

/// Unprintable characters: control, formatting and unassigned ones.
static UNPRINTABLE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\p{C}").ok());

/// The value of an integer that passed [`kilonova_compute_app::schemas::integer`]. The schema does
/// not check the bounds of an integer that is sent as a string.
///
/// # Errors
/// 400 naming the field.
pub fn integer(field: &str, value: &Value, min: i64) -> Result<i64, Refusal> {
    let number = match value {
        Value::String(text) => text.parse().ok(),
        other => other.as_i64().or_else(|| other.as_f64().map(|number| number as i64)),
    };
    number.filter(|number| (min..=MAX_INT).contains(number)).ok_or_else(|| {
        Refusal::bad_request(format!(
            "Invalid input for field/attribute {field}. Value: {value}. It must be between {min} \
             and {MAX_INT}."
        ))
    })
}

/// Refuses names that Nova's `name` format refuses: blank, too long, with unprintable characters, or
/// with leading or trailing whitespace.
///
/// # Errors
/// 400 naming the field.
pub fn check_name(field: &str, name: &str) -> Result<(), Refusal> {
    if trimmed_name(field, name)? == name {
        return Ok(());
    }
    Err(Refusal::bad_request(format!(
        "Invalid input for field/attribute {field}. Value: {name}. It can not start or end with \
         whitespace."
    )))
}

/// A name without its leading and trailing spaces, for fields in which Nova allows them
/// (`name_with_leading_trailing_spaces`).
///
/// # Errors
/// 400 naming the field, for a name that is blank, too long or not printable.
pub fn trimmed_name(field: &str, name: &str) -> Result<String, Refusal> {
    text::check_name(field, name, 255)?;
    if UNPRINTABLE.as_ref().is_some_and(|unprintable| unprintable.is_match(name)) {
        return Err(Refusal::bad_request(format!(
            "Invalid input for field/attribute {field}. Value: {}. It contains unprintable \
             characters.",
            name.escape_debug()
        )));
    }
    Ok(name.trim().to_owned())
}

/// A string in a JSON object; `None` if it is missing or not a string.
pub fn text_of(object: &Value, key: &str) -> Option<String> {
    object.get(key).and_then(Value::as_str).map(str::to_owned)
}

/// An IP address in canonical form: `2001:DB8:0::1` becomes `2001:db8::1`.
pub fn canonical_address(text: String) -> String {
    text.parse::<std::net::IpAddr>().map_or(text, |address| address.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use kilonova_compute_app::microversions::{
        FLAVOR_DESCRIPTION, HYPERVISOR_UPTIME, before, since,
    };

    #[test]
    fn integers_may_be_strings_within_the_bounds() {
        assert_eq!(integer("ram", &json!("64"), 1).ok(), Some(64));
        assert_eq!(integer("ram", &json!(64), 1).ok(), Some(64));
        assert_eq!(integer("ram", &json!(64.0), 1).ok(), Some(64));
        for value in [json!("0"), json!("9999999999"), json!(0), json!("x")] {
            assert!(integer("ram", &value, 1).is_err(), "{value}");
        }
    }

    #[test]
    fn a_method_exists_in_its_span_of_microversions() {
        assert!(check_microversion(Microversion(2, 55), since(FLAVOR_DESCRIPTION)).is_ok());
        assert!(check_microversion(Microversion(2, 54), since(FLAVOR_DESCRIPTION)).is_err());
        assert!(check_microversion(Microversion(2, 88), before(HYPERVISOR_UPTIME)).is_err());
    }
}

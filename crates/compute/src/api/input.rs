//! What several resources read from requests in the same way.

use std::sync::LazyLock;

use kilonova_wire::query::Query;
use kilonova_wire::{Fault, Microversion, text};
use regex::Regex;
use serde_json::Value;

use crate::microversions::Span;
use crate::schemas::{MAX_INT, NO, YES};

/// Refuses a method that a microversion does not have.
///
/// # Errors
/// 404 in Nova's words.
pub fn within(version: Microversion, span: Span) -> Result<(), Fault> {
    if span.has(version) {
        return Ok(());
    }
    Err(Fault::not_found(format!("API version {version} is not supported on this method.")))
}

/// Refuses query keys that are not known.
///
/// # Errors
/// 400 naming the first.
pub fn only(query: &Query, known: &[&str]) -> Result<(), Fault> {
    match query.unknown(known) {
        None => Ok(()),
        Some(key) => Err(Fault::bad_request(format!(
            "Additional properties are not allowed ('{key}' was unexpected)"
        ))),
    }
}

/// 400 for a query value.
pub fn wrong_query(key: &str, value: &str, why: &str) -> Fault {
    Fault::bad_request(format!("Invalid input for query parameters {key}. Value: {value}. {why}"))
}

/// Refuses a body with a field besides the one that it is about.
///
/// # Errors
/// 400 naming that field.
pub fn alone(body: &Value, key: &str) -> Result<(), Fault> {
    let fields = body.as_object().into_iter().flat_map(serde_json::Map::keys);
    match fields.into_iter().find(|field| *field != key) {
        None => Ok(()),
        Some(other) => Err(Fault::bad_request(format!(
            "Invalid input for body. Additional properties are not allowed ('{}' was unexpected)",
            other.escape_debug()
        ))),
    }
}

/// A boolean that [`crate::schemas::boolean`] has let through.
pub fn boolean(value: &Value) -> bool {
    value.as_bool().unwrap_or_else(|| value.as_str().is_some_and(|word| YES.contains(&word)))
}

/// A boolean in a query.
///
/// # Errors
/// 400 for any other word.
pub fn query_boolean(query: &Query, key: &str) -> Result<bool, Fault> {
    match query.get(key) {
        None => Ok(false),
        Some(word) if YES.contains(&word) => Ok(true),
        Some(word) if NO.contains(&word) => Ok(false),
        Some(word) => Err(wrong_query(key, word, "It is not a boolean.")),
    }
}

/// What cannot be shown: control and formatting characters, and those that mean nothing.
static UNSHOWABLE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\p{C}").ok());

/// An integer that [`crate::schemas::integer`] has let through; as a text it may still be out of bounds.
///
/// # Errors
/// 400 naming the field.
pub fn integer(field: &str, value: &Value, least: i64) -> Result<i64, Fault> {
    let number = match value {
        Value::String(text) => text.parse().ok(),
        other => other.as_i64().or_else(|| other.as_f64().map(|number| number as i64)),
    };
    number.filter(|number| (least..=MAX_INT).contains(number)).ok_or_else(|| {
        Fault::bad_request(format!(
            "Invalid input for field/attribute {field}. Value: {value}. It must be between {least} \
             and {MAX_INT}."
        ))
    })
}

/// Refuses names that Nova's `name` format refuses: blank, too long, unprintable, or with a blank
/// at either end.
///
/// # Errors
/// 400 naming the field.
pub fn name(field: &str, name: &str) -> Result<(), Fault> {
    text::check_name(field, name, 255)?;
    if UNSHOWABLE.as_ref().is_some_and(|unshowable| unshowable.is_match(name)) {
        return Err(Fault::bad_request(format!(
            "Invalid input for field/attribute {field}. Value: {}. It holds characters that cannot be \
             printed.",
            name.escape_debug()
        )));
    }
    if name.trim() == name {
        return Ok(());
    }
    Err(Fault::bad_request(format!(
        "Invalid input for field/attribute {field}. Value: {name}. It can not start or end with \
         whitespace."
    )))
}

/// A text in a JSON object, as far as a schema has let it through.
pub fn text_of(object: &Value, key: &str) -> Option<String> {
    object.get(key).and_then(Value::as_str).map(str::to_owned)
}

/// An address in its usual spelling: `2001:DB8:0::1` is `2001:db8::1`.
pub fn address(text: String) -> String {
    text.parse::<std::net::IpAddr>().map_or(text, |address| address.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::microversions::{FLAVOR_DESCRIPTION, HYPERVISOR_UPTIME, before, since};

    #[test]
    fn integers_may_be_texts_but_not_too_large() {
        assert_eq!(integer("ram", &json!("64"), 1).ok(), Some(64));
        assert_eq!(integer("ram", &json!(64), 1).ok(), Some(64));
        assert_eq!(integer("ram", &json!(64.0), 1).ok(), Some(64));
        for value in [json!("0"), json!("9999999999"), json!(0), json!("x")] {
            assert!(integer("ram", &value, 1).is_err(), "{value}");
        }
    }

    #[test]
    fn versions_bound_methods() {
        assert!(within(Microversion(2, 55), since(FLAVOR_DESCRIPTION)).is_ok());
        assert!(within(Microversion(2, 54), since(FLAVOR_DESCRIPTION)).is_err());
        assert!(within(Microversion(2, 88), before(HYPERVISOR_UPTIME)).is_err());
    }
}

//! Reads path segments, query strings and bodies, with Cyborg's error messages. Accepted text
//! contains no control characters, which PostgreSQL would refuse later.

use axum::extract::{FromRequestParts, Path};
use http::request::Parts;
use kilonova_ids::parse_uuid_like;
use kilonova_wire::query::Query;
use kilonova_wire::{Body, Refusal};
use newtype_uuid::GenericUuid;
use serde_json::{Value, json};

use crate::app::grammar::shown;

/// The variable segment of a path.
pub(super) struct Segment(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        Path::<String>::from_request_parts(parts, state)
            .await
            .map(|Path(text)| Self(text))
            .map_err(|_| Refusal::bad_request("The path of the request cannot be read."))
    }
}

/// Refuses unknown parameters, and control characters in known ones.
pub(super) fn check(query: &Query, known: &[&str]) -> Result<(), Refusal> {
    if let Some(key) = query.unknown(known) {
        return Err(Refusal::bad_request(format!("Unknown argument: \"{}\"", shown(key))));
    }
    match query.0.iter().find(|(_, value)| value.chars().any(char::is_control)) {
        Some((key, value)) => Err(invalid(key, value, "The value contains control characters.")),
        None => Ok(()),
    }
}

/// The last value of a parameter, unless it is empty: Cyborg ignores empty ones of its text parameters.
pub(super) fn given<'a>(query: &'a Query, field: &str) -> Option<&'a str> {
    query.get(field).filter(|value| !value.is_empty())
}

/// The links of a page that may not be the last: the same query, continued after the last row.
pub(super) fn next_page(base: &str, list: &str, query: &Query, limit: i64, last: i64) -> Value {
    let query = query.with(&[("limit", &limit.to_string()), ("marker", &last.to_string())]);
    let next = format!("{base}/v2/kilonova/{list}?{query}");
    json!([{"rel": "next", "href": next}])
}

pub(super) fn invalid(field: &str, value: &str, why: &str) -> Refusal {
    Refusal::bad_request(format!(
        "Invalid input for field/attribute {field}. Value: '{}'. {why}",
        shown(value)
    ))
}

/// A query parameter of an enumerated type, if it is given.
pub(super) fn word<T: Copy + std::fmt::Display>(
    query: &Query,
    field: &str,
    parse: impl Fn(&str) -> Option<T>,
    all: &[T],
) -> Result<Option<T>, Refusal> {
    let read = |text: &str| {
        parse(text).ok_or_else(|| {
            let all: Vec<String> = all.iter().map(ToString::to_string).collect();
            invalid(field, text, &format!("Value should be one of: {}", all.join(", ")))
        })
    };
    query.get(field).map(read).transpose()
}

/// Parses a UUID in any spelling that OpenStack accepts.
pub(super) fn uuid<T: GenericUuid>(field: &str, text: &str) -> Result<T, Refusal> {
    parse_uuid_like(text).ok_or_else(|| {
        let why = format!(
            "unable to convert to uuid. Error: Expected a uuid but received {}.",
            shown(text)
        );
        invalid(field, text, &why)
    })
}

/// Parses the JSON of a body; `argument` is Cyborg's name for it.
pub(super) fn json(body: &Body, argument: &str) -> Result<Value, Refusal> {
    if body.0.is_empty() {
        return Err(Refusal::bad_request(format!("Missing argument: \"{argument}\"")));
    }
    serde_json::from_slice(&body.0).map_err(|error| {
        Refusal::bad_request("Request is not in valid JSON format").with_internal(error)
    })
}

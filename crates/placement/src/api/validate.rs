//! JSON-schema validation with the messages of the Python validator, which Placement's clients and
//! tests rely on: first the error, then the violated rule of the schema.
//!
//! A library validates, and `wire` writes the error messages.

use std::collections::BTreeMap;

use jsonschema::error::ValidationErrorKind as Kind;
use jsonschema::{ValidationError, Validator};
use kilonova_wire::Refusal;
use kilonova_wire::schema::{logged_reason, reason, shown};
use serde_json::Value;

/// Pattern of a UUID in bodies. A violation is reported as a format error, not as a pattern error.
pub const UUID_LIKE: &str =
    "^[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}$";

/// A compiled schema and its source.
pub struct Schema {
    source: Value,
    validator: Validator,
}

impl Schema {
    /// Compiles a schema.
    ///
    /// # Panics
    /// Panics if the schema itself is invalid. A unit test of each table compiles all of its
    /// schemas.
    #[expect(clippy::panic, reason = "a built-in schema is part of the program")]
    pub fn new(source: Value) -> Self {
        match jsonschema::options().build(&source) {
            Ok(validator) => Self { source, validator },
            Err(error) => panic!("a built-in schema is invalid: {error}"),
        }
    }

    /// Checks a value.
    ///
    /// # Errors
    /// 400 with a message about the first error.
    pub fn check(&self, value: &Value) -> Result<(), Refusal> {
        // Python's validator reports the error nearest to the root, and missing properties before
        // unexpected ones.
        let weight = |error: &ValidationError<'_>| {
            let depth = error.instance_path().as_str().matches('/').count();
            (depth, matches!(error.kind(), Kind::AdditionalProperties { .. }))
        };
        let Some(error) = self.validator.iter_errors(value).min_by_key(weight) else {
            return Ok(());
        };
        let error = nearest(&error);
        let (what, logged, keyword) = self.message(error);
        let place = error.instance_path().to_string();
        let path = error.schema_path().to_string();
        let rule: String = path
            .rsplit_once('/')
            .map_or("", |(parent, _)| parent)
            .split('/')
            .filter(|step| !step.is_empty())
            .map(|step| format!("['{step}']"))
            .collect();
        let message = |what: &str| {
            format!(
                "JSON does not validate: {what}\n\nFailed validating '{keyword}' in schema{rule}\n\nOn \
                 instance{place}"
            )
        };
        Err(Refusal::bad_request(message(&what)).with_logged(message(&logged)))
    }

    /// The reason for the user, the one for the log, and the keyword of the violated rule.
    fn message(&self, error: &ValidationError<'_>) -> (String, String, String) {
        match error.kind() {
            Kind::Pattern { pattern } if pattern == UUID_LIKE => {
                let what = format!("{} is not a 'uuid'", shown(error.instance()));
                (what.clone(), what, "format".into())
            }
            kind => (
                reason(error, &self.source),
                logged_reason(error, &self.source),
                kind.keyword().to_owned(),
            ),
        }
    }
}

/// Records that the body names the object `id` as `text`. A UUID has several spellings: upper and
/// lower case, and dashes in other places. Two of them in one body would write one object twice. The
/// same text twice is not an error here: the caller lets the last one count, as JSON does.
///
/// # Errors
/// 400 in the form of [`Schema::check`] if the body has named the object with another text.
pub fn spelt_once<'a, T: Ord>(
    seen: &mut BTreeMap<T, &'a str>,
    id: T,
    text: &'a str,
) -> Result<(), Refusal> {
    match seen.insert(id, text) {
        Some(other) if other != text => Err(Refusal::bad_request(format!(
            "JSON does not validate: '{other}' and '{text}' are the same uuid\n\nFailed validating \
             'uniqueItems' in schema\n\nOn instance"
        ))),
        _ => Ok(()),
    }
}

/// The error to report. If exactly one branch of an `anyOf` has the right type, this is the error
/// of that branch.
fn nearest<'a>(error: &'a ValidationError<'a>) -> &'a ValidationError<'a> {
    let Kind::AnyOf { context } = error.kind() else { return error };
    let mut typed =
        context.iter().flatten().filter(|inner| !matches!(inner.kind(), Kind::Type { .. }));
    match (typed.next(), typed.next()) {
        (Some(only), None) => only,
        _ => error,
    }
}

//! JSON-schema checks, told in the sentences of the Python validator that Placement's clients and
//! tests know: what is wrong, then which rule of the schema says so.
//!
//! The checker itself is a library, and `wire` puts its errors into words.

use jsonschema::error::ValidationErrorKind as Kind;
use jsonschema::{ValidationError, Validator};
use kilonova_wire::Fault;
use kilonova_wire::schema::{reason, shown};
use serde_json::Value;

/// Pattern of what counts as a uuid in bodies; told as a format, not as a pattern.
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
    /// When the schema itself is wrong, which the unit test of its owner shows.
    pub fn new(source: Value) -> Self {
        match jsonschema::options().build(&source) {
            Ok(validator) => Self { source, validator },
            Err(error) => panic!("a schema of this program is wrong: {error}"),
        }
    }

    /// Checks a value.
    ///
    /// # Errors
    /// 400 with one sentence on the first thing that is wrong.
    pub fn check(&self, value: &Value) -> Result<(), Fault> {
        // Python's validator tells the error that is nearest to the top, and what is missing before
        // what is too much.
        let weight = |error: &ValidationError<'_>| {
            let depth = error.instance_path().as_str().matches('/').count();
            (depth, matches!(error.kind(), Kind::AdditionalProperties { .. }))
        };
        let Some(error) = self.validator.iter_errors(value).min_by_key(weight) else {
            return Ok(());
        };
        let error = nearest(&error);
        let (what, keyword) = self.tell(error);
        let place = error.instance_path().to_string();
        let path = error.schema_path().to_string();
        let rule: String = path
            .rsplit_once('/')
            .map_or("", |(parent, _)| parent)
            .split('/')
            .filter(|step| !step.is_empty())
            .map(|step| format!("['{step}']"))
            .collect();
        Err(Fault::bad_request(format!(
            "JSON does not validate: {what}\n\nFailed validating '{keyword}' in schema{rule}\n\nOn \
             instance{place}"
        )))
    }

    fn tell(&self, error: &ValidationError<'_>) -> (String, String) {
        match error.kind() {
            Kind::Pattern { pattern } if pattern == UUID_LIKE => {
                (format!("{} is not a 'uuid'", shown(error.instance())), "format".into())
            }
            kind => (reason(error, &self.source), kind.keyword().to_owned()),
        }
    }
}

/// Of a choice in which one branch only has the right type: what is wrong in that branch.
fn nearest<'a>(error: &'a ValidationError<'a>) -> &'a ValidationError<'a> {
    let Kind::AnyOf { context } = error.kind() else { return error };
    let mut typed =
        context.iter().flatten().filter(|inner| !matches!(inner.kind(), Kind::Type { .. }));
    match (typed.next(), typed.next()) {
        (Some(only), None) => only,
        _ => error,
    }
}

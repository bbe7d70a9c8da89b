//! JSON-schema checks, told in the sentences of the Python validator that Placement's clients and
//! tests know: what is wrong, then which rule of the schema says so.
//!
//! The checker itself is a library; only its kinds of errors are put into words here.

use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use jsonschema::{ValidationError, Validator};
use kilonova_wire::Fault;
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
        let shown = || show(error.instance());
        let keyword = error.kind().keyword().to_owned();
        let what = match error.kind() {
            Kind::Required { property } => format!("{} is a required property", show(property)),
            Kind::AdditionalProperties { unexpected } => self.unexpected(error, unexpected),
            Kind::Type { kind } => {
                let types: Vec<String> = match kind {
                    TypeKind::Single(one) => vec![format!("'{one}'")],
                    TypeKind::Multiple(set) => set.iter().map(|t| format!("'{t}'")).collect(),
                };
                format!("{} is not of type {}", shown(), types.join(", "))
            }
            Kind::Minimum { limit } => {
                format!("{} is less than the minimum of {limit}", shown())
            }
            Kind::Maximum { limit } => {
                format!("{} is greater than the maximum of {limit}", shown())
            }
            Kind::MinLength { .. } | Kind::MinItems { .. } | Kind::MinProperties { .. } => {
                format!("{} should be non-empty", shown())
            }
            Kind::MaxLength { .. } => format!("{} is too long", shown()),
            Kind::Pattern { pattern } if pattern == UUID_LIKE => {
                return (format!("{} is not a 'uuid'", shown()), "format".into());
            }
            Kind::Pattern { pattern } => format!("{} does not match '{pattern}'", shown()),
            Kind::UniqueItems => format!("{} has non-unique elements", shown()),
            Kind::AnyOf { .. } => {
                format!("{} is not valid under any of the given schemas", shown())
            }
            _ => error.to_string(),
        };
        (what, keyword)
    }

    /// Python's validator names the patterns when the schema has some.
    fn unexpected(&self, error: &ValidationError<'_>, names: &[String]) -> String {
        let path = error.schema_path().to_string();
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let schema = self.source.pointer(parent);
        let names: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
        let several = names.len() > 1;
        let names = names.join(", ");
        match schema.and_then(|schema| schema["patternProperties"].as_object()) {
            Some(patterns) => {
                let patterns: Vec<String> =
                    patterns.keys().map(|pattern| format!("'{pattern}'")).collect();
                let verb = if several { "do" } else { "does" };
                format!("{names} {verb} not match any of the regexes: {}", patterns.join(", "))
            }
            None => {
                let verb = if several { "were" } else { "was" };
                format!("Additional properties are not allowed ({names} {verb} unexpected)")
            }
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

/// A value as Python shows it, cut to a readable length.
fn show(value: &Value) -> String {
    let text = match value {
        Value::String(text) => format!("'{text}'"),
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        other => other.to_string().replace('"', "'"),
    };
    if text.chars().count() <= 400 {
        return text;
    }
    text.chars().take(400).chain("…".chars()).collect()
}

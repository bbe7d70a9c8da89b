//! JSON schema validation with one message format for all services.
//!
//! The message is Nova's (`api/validation/validators.py`): `Invalid input for field/attribute <path>. Value:
//! <value>. <reason>`. The reason has the wording of Python's validator, and values are written as in Python,
//! because clients and upstream's tests compare the text.
//!
//! A value may be a secret or contain one, so the log gets another message ([`logged_reason`]).

use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use jsonschema::{ValidationError, Validator};
use serde_json::Value;

use crate::Refusal;

/// The length to which a message truncates a value.
const MAX_VALUE_LENGTH: usize = 400;

/// The text that replaces, in the log, a value that may be a secret or contain one.
pub const MASK: &str = "***";

/// Parts of the names of fields whose values must not be logged, in lower case.
const SECRETS: [&str; 10] = [
    "pass",
    "pswd",
    "secret",
    "token",
    "credential",
    "private",
    "blob",
    "user_data",
    "contents",
    "connection_info",
];

/// The keywords of a schema for properties whose names the client chooses, such as those of metadata and extra specs.
const FREE_FORM: [&str; 2] = ["additionalProperties", "patternProperties"];

/// A compiled schema and its source; create it once, in a `LazyLock`.
pub struct Schema {
    source: Value,
    validator: Validator,
}

impl Schema {
    /// Compiles a schema.
    ///
    /// # Panics
    /// If the schema is invalid, which a unit test of its owner detects.
    #[expect(clippy::panic, reason = "a built-in schema is part of the program")]
    pub fn new(schema: &Value) -> Self {
        match jsonschema::options().should_validate_formats(true).build(schema) {
            Ok(validator) => Self { source: schema.clone(), validator },
            Err(error) => panic!("invalid built-in JSON schema: {error}"),
        }
    }

    /// Validates a body.
    ///
    /// # Errors
    /// 400 naming the field.
    pub fn check(&self, body: &Value) -> Result<(), Refusal> {
        let Some(error) = self.validator.iter_errors(body).next() else { return Ok(()) };
        let path = error.instance_path().to_string();
        let path = path.trim_start_matches('/');
        // Names a list item together with its list, because an index alone is not helpful.
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let start = path.rmatch_indices('/').map(|(at, _)| at + 1).chain([0]);
        let field = start
            .map(|at| &path[at..])
            .find(|rest| !is_number(rest.split('/').next().unwrap_or_default()));
        let field = field.unwrap_or(path);
        let message = |value: &str, why: &str| match field {
            "" => format!("Invalid input for body. {why}"),
            field => format!("Invalid input for field/attribute {field}. Value: {value}. {why}"),
        };
        let value = match error.instance().as_ref() {
            Value::String(text) => cut(text.clone()),
            other => shown(other),
        };
        let refusal = Refusal::bad_request(message(&value, &reason(&error, &self.source)));
        let value = if is_loggable(&error) { &value } else { MASK };
        Err(refusal.with_logged(message(value, &logged_reason(&error, &self.source))))
    }
}

/// True if the invalid value may be logged: it is neither in a field with the name of a secret, nor below a map whose
/// names the client chooses, nor an object or a list. An object or a list may contain secrets under any name, for
/// example a misspelled one.
fn is_loggable(error: &ValidationError<'_>) -> bool {
    let path = error.instance_path().to_string().to_lowercase();
    let is_secret = SECRETS.iter().any(|part| path.contains(part));
    // A slash in a name or pattern is escaped, so the split does not divide it.
    let keywords = error.schema_path().to_string();
    let is_free_form = keywords.split('/').any(|part| FREE_FORM.contains(&part));
    !is_secret
        && !is_free_form
        && !matches!(error.instance().as_ref(), Value::Object(_) | Value::Array(_))
}

/// Describes why a value is invalid, in the words of Python's validator (`jsonschema/_keywords.py`). `schema` is the
/// whole schema.
pub fn reason(error: &ValidationError<'_>, schema: &Value) -> String {
    words(error, schema, || shown(error.instance()), || error.to_string())
}

/// The same for the log: without the value if it may be a secret or contain one.
pub fn logged_reason(error: &ValidationError<'_>, schema: &Value) -> String {
    if is_loggable(error) {
        return reason(error, schema);
    }
    words(error, schema, || MASK.to_owned(), || error.masked_with(MASK).to_string())
}

/// The words of [`reason`]. `other` describes the errors that have no words here.
fn words(
    error: &ValidationError<'_>,
    schema: &Value,
    value: impl Fn() -> String,
    other: impl Fn() -> String,
) -> String {
    match error.kind() {
        Kind::Required { property } => format!("{} is a required property", shown(property)),
        Kind::AdditionalProperties { unexpected } => surplus(error, unexpected, schema),
        Kind::Type { kind } => {
            let types: Vec<String> = match kind {
                TypeKind::Single(one) => vec![format!("'{one}'")],
                TypeKind::Multiple(set) => set.iter().map(|one| format!("'{one}'")).collect(),
            };
            format!("{} is not of type {}", value(), types.join(", "))
        }
        Kind::Minimum { limit } => format!("{} is less than the minimum of {limit}", value()),
        Kind::Maximum { limit } => format!("{} is greater than the maximum of {limit}", value()),
        Kind::MinLength { limit: 1 }
        | Kind::MinItems { limit: 1 }
        | Kind::MinProperties { limit: 1 } => {
            format!("{} should be non-empty", value())
        }
        Kind::MinLength { .. } | Kind::MinItems { .. } => format!("{} is too short", value()),
        Kind::MinProperties { .. } => format!("{} does not have enough properties", value()),
        Kind::MaxLength { limit: 0 } | Kind::MaxItems { limit: 0 } => {
            format!("{} is expected to be empty", value())
        }
        Kind::MaxLength { .. } | Kind::MaxItems { .. } => format!("{} is too long", value()),
        Kind::MaxProperties { .. } => format!("{} has too many properties", value()),
        Kind::Pattern { pattern } => {
            format!("{} does not match {}", value(), quoted(pattern))
        }
        Kind::Format { format } => format!("{} is not a '{format}'", value()),
        Kind::Enum { options } => format!("{} is not one of {}", value(), shown(options)),
        Kind::UniqueItems => format!("{} has non-unique elements", value()),
        Kind::AnyOf { .. } | Kind::OneOfNotValid { .. } => {
            format!("{} is not valid under any of the given schemas", value())
        }
        _ => cut(other()),
    }
}

/// Describes unexpected properties. Like Python's validator, names the schema's patterns if there are any.
fn surplus(error: &ValidationError<'_>, names: &[String], schema: &Value) -> String {
    let path = error.schema_path().to_string();
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    let patterns = schema.pointer(parent).and_then(|part| part["patternProperties"].as_object());
    let several = names.len() > 1;
    let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    let names = cut(names.join(", "));
    match patterns {
        Some(patterns) => {
            let patterns: Vec<String> = patterns.keys().map(|pattern| quoted(pattern)).collect();
            let verb = if several { "do" } else { "does" };
            format!("{names} {verb} not match any of the regexes: {}", patterns.join(", "))
        }
        None => {
            let verb = if several { "were" } else { "was" };
            format!("Additional properties are not allowed ({names} {verb} unexpected)")
        }
    }
}

/// A value as Python shows it, truncated to a readable length.
pub fn shown(value: &Value) -> String {
    cut(python(value))
}

fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(python).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let field =
                |(name, value): (&String, &Value)| format!("{}: {}", quoted(name), python(value));
            let fields: Vec<String> = fields.iter().map(field).collect();
            format!("{{{}}}", fields.join(", "))
        }
    }
}

/// A string as a Python literal.
fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}

fn cut(text: String) -> String {
    if text.chars().count() <= MAX_VALUE_LENGTH {
        return text;
    }
    text.chars().take(MAX_VALUE_LENGTH).chain("…".chars()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message_of(schema: Value, body: Value) -> String {
        Schema::new(&schema).check(&body).expect_err("the body is refused").message
    }

    #[test]
    fn a_value_is_shown_as_python_shows_it() {
        let long = "x".repeat(256);
        let name = json!({"properties": {"name": {"type": ["string", "null"], "maxLength": 255}}});
        for (value, wanted) in [
            (json!(long), format!("Value: {long}. '{long}' is too long")),
            (json!(true), "Value: True. True is not of type 'null', 'string'".to_owned()),
            (json!({"a": [null, "it's", "\n"]}), "{'a': [None, \"it's\", '\\n']}".to_owned()),
        ] {
            let message = message_of(name.clone(), json!({"name": value}));
            assert!(message.contains("Invalid input for field/attribute name. "), "{message}");
            assert!(message.contains(&wanted), "{message}");
        }
    }

    #[test]
    fn the_log_has_no_value_that_may_be_a_secret() {
        let server = json!({
            "additionalProperties": false,
            "properties": {
                "adminPass": {"type": "string"},
                "files": {"maxItems": 0},
                "name": {"maxLength": 3},
                "metadata": {"oneOf": [{"type": "object"}, {"minProperties": 1}]},
            },
        });
        let schema = Schema::new(&json!({"properties": {"server": server}}));
        for (server, logged) in [
            (
                json!({"adminPas": "s3cret"}),
                "Invalid input for field/attribute server. Value: ***. Additional properties are not \
                 allowed ('adminPas' was unexpected)",
            ),
            (
                json!({"adminPass": {"x": "s3cret"}}),
                "Invalid input for field/attribute adminPass. Value: ***. *** is not of type 'string'",
            ),
            (
                json!({"adminPass": ["s3cret"]}),
                "Invalid input for field/attribute adminPass. Value: ***. *** is not of type 'string'",
            ),
            (
                json!({"files": [{"x": "s3cret"}]}),
                "Invalid input for field/attribute files. Value: ***. *** is expected to be empty",
            ),
            (
                json!({"name": "long"}),
                "Invalid input for field/attribute name. Value: long. 'long' is too long",
            ),
        ] {
            let refusal = schema.check(&json!({"server": server})).expect_err("it is refused");
            assert_eq!(refusal.logged(), logged);
        }
        let refusal = schema
            .check(&json!({"server": {"metadata": {"x": "s3cret"}}}))
            .expect_err("both schemas match");
        assert!(refusal.message.contains("s3cret"), "{}", refusal.message);
        assert!(!refusal.logged().contains("s3cret"), "{}", refusal.logged());
        let number = schema.check(&json!({"server": {"adminPass": 7}})).expect_err("it is refused");
        assert!(number.message.contains("Value: 7. 7 is not of type 'string'"), "{number}");
        assert!(!number.logged().contains('7'), "{}", number.logged());
    }

    #[test]
    fn the_log_has_no_value_of_a_free_form_map() {
        let text = json!({"type": "string", "maxLength": 3});
        let schema = Schema::new(&json!({"properties": {
            "metadata": {"additionalProperties": text},
            "extra_specs": {"patternProperties": {"^[a-z/]+$": text}, "additionalProperties": false},
            "nested": {"additionalProperties": {"properties": {"x": text}}},
            "named": {"properties": {"x": text}, "additionalProperties": false},
        }}));
        for (body, field) in [
            (json!({"metadata": {"key": "s3cret"}}), "key"),
            (json!({"extra_specs": {"key": "s3cret"}}), "key"),
            (json!({"nested": {"key": {"x": "s3cret"}}}), "x"),
        ] {
            let refusal = schema.check(&body).expect_err("it is refused");
            let message = |value: &str, shown: &str| {
                format!(
                    "Invalid input for field/attribute {field}. Value: {value}. {shown} is too long"
                )
            };
            assert_eq!(refusal.message, message("s3cret", "'s3cret'"));
            assert_eq!(refusal.logged(), message(MASK, MASK));
        }
        let named = schema.check(&json!({"named": {"x": "long"}})).expect_err("it is refused");
        assert_eq!(named.logged(), named.message);
    }

    #[test]
    fn reasons_are_those_of_pythons_validator() {
        for (schema, value, wanted) in [
            (json!({"enum": ["a", "b"]}), json!("c"), "'c' is not one of ['a', 'b']"),
            (json!({"required": ["a"]}), json!({}), "'a' is a required property"),
            (
                json!({"properties": {"a": {}}, "additionalProperties": false}),
                json!({"b": 1}),
                "Additional properties are not allowed ('b' was unexpected)",
            ),
            (json!({"minLength": 1}), json!(""), "'' should be non-empty"),
            (json!({"minLength": 2}), json!("a"), "'a' is too short"),
            (json!({"maxItems": 1}), json!([1, 2]), "[1, 2] is too long"),
            (json!({"pattern": "^a$"}), json!("b"), "'b' does not match '^a$'"),
            (json!({"format": "uuid"}), json!("b"), "'b' is not a 'uuid'"),
            (json!({"anyOf": [{"type": "null"}]}), json!(1), "1 is not valid under any"),
        ] {
            let message = message_of(json!({"properties": {"x": schema}}), json!({"x": value}));
            assert!(message.contains(wanted), "{message}");
        }
    }
}

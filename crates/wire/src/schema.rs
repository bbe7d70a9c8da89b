//! JSON-schema checks with one message form for all services.
//!
//! Nova's words (`api/validation/validators.py`): `Invalid input for field/attribute <path>. Value:
//! <value>. <reason>`.

use jsonschema::Validator;
use serde_json::Value;

use crate::Fault;

/// A compiled schema; make it once, in a `LazyLock`.
pub struct Schema(Validator);

impl Schema {
    /// Compiles a schema.
    ///
    /// # Panics
    /// When the schema itself is wrong, which the unit test of its owner shows.
    pub fn new(schema: &Value) -> Self {
        match jsonschema::options().should_validate_formats(true).build(schema) {
            Ok(validator) => Self(validator),
            Err(error) => panic!("a schema of this program is wrong: {error}"),
        }
    }

    /// Checks a body.
    ///
    /// # Errors
    /// 400 naming the field.
    pub fn check(&self, body: &Value) -> Result<(), Fault> {
        let Some(error) = self.0.iter_errors(body).next() else { return Ok(()) };
        let path = error.instance_path().to_string();
        let path = path.trim_start_matches('/');
        // An item of a list is named with its list: its number alone says nothing.
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let start = path.rmatch_indices('/').map(|(at, _)| at + 1).chain([0]);
        let field = start
            .map(|at| &path[at..])
            .find(|rest| !is_number(rest.split('/').next().unwrap_or_default()));
        let field = field.unwrap_or(path);
        let mut shown = error.instance().to_string();
        if shown.chars().count() > 200 {
            shown = shown.chars().take(200).chain("…".chars()).collect();
        }
        Err(Fault::bad_request(if field.is_empty() {
            format!("Invalid input for body. {error}")
        } else {
            format!("Invalid input for field/attribute {field}. Value: {shown}. {error}")
        }))
    }
}

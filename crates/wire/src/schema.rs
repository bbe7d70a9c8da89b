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
        let field = path.trim_start_matches('/').rsplit('/').next().unwrap_or_default();
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

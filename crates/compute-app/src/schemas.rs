//! JSON schemas of request bodies that differ between microversions, and the parts that they share.
//!
//! A schema states the fields of a body and the form of each. The handler checks the meaning of a field
//! and every further condition.

use kilonova_wire::schema::Schema;
use kilonova_wire::{Microversion, Refusal};
use serde_json::{Map, Value, json};

use crate::microversions::{self, Span};

/// Largest integer that Nova's tables hold, and therefore the largest that its API accepts.
pub const MAX_INT: i64 = 0x7FFF_FFFF;

/// The words that Nova's API accepts for `true`.
pub const YES: &[&str] = &["True", "TRUE", "true", "1", "ON", "On", "on", "YES", "Yes", "yes"];
/// The words that Nova's API accepts for `false`.
pub const NO: &[&str] = &["False", "FALSE", "false", "0", "OFF", "Off", "off", "NO", "No", "no"];

/// The schemas of one body, each from the microversion that introduces it.
pub struct Schemas(Vec<(Microversion, Schema)>);

impl Schemas {
    /// Compiles the schemas that `of` returns for all microversions. Call it once, in a `LazyLock`.
    pub fn new(of: impl Fn(Microversion) -> Value) -> Self {
        let mut compiled = Vec::new();
        let mut last = None;
        for version in microversions::ALL {
            let schema = of(*version);
            if last.as_ref() != Some(&schema) {
                compiled.push((*version, Schema::new(&schema)));
                last = Some(schema);
            }
        }
        Self(compiled)
    }

    /// Checks a body against the schema of a microversion.
    ///
    /// # Errors
    /// 400 naming the field.
    pub fn check(&self, version: Microversion, body: &Value) -> Result<(), Refusal> {
        match self.0.iter().rev().find(|(first, _)| *first <= version) {
            Some((_, schema)) => schema.check(body),
            None => Ok(()),
        }
    }
}

/// The properties of an object that exist in a microversion.
pub fn fields<const N: usize>(
    version: Microversion,
    all: [(Span, &str, Value); N],
) -> Map<String, Value> {
    all.into_iter()
        .filter(|(span, ..)| span.has(version))
        .map(|(_, name, schema)| (name.to_owned(), schema))
        .collect()
}

/// A text of 1 to `most` characters.
pub fn text(most: u32) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": most})
}

/// A boolean: `true`, or one of many words for it.
pub fn boolean() -> Value {
    let words = YES.iter().chain(NO).map(|word| json!(word));
    json!({"enum": ([json!(true), json!(false)].into_iter().chain(words).collect::<Vec<_>>())})
}

/// A description: printable, and not too long.
pub fn description() -> Value {
    json!({"type": ["string", "null"], "maxLength": 255, "pattern": r"^[^\p{C}]*$"})
}

/// An integer that may come as a text.
pub fn integer(least: i64) -> Value {
    let pattern = if least < 0 { "^-?[0-9]{1,10}$" } else { "^[0-9]{1,10}$" };
    json!({"type": ["integer", "string"], "pattern": pattern, "minimum": least, "maximum": MAX_INT})
}

/// A file to put into a guest.
pub fn file() -> Value {
    json!({
        "type": "object",
        "properties": {"path": {"type": "string"}, "contents": {"type": "string"}},
        "additionalProperties": false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::microversions::{ALWAYS, FILES_GONE, FLAVOR_IN_SERVER, MAX, TAGS, before, since};

    fn schema(version: Microversion) -> Value {
        let properties = fields(
            version,
            [
                (ALWAYS, "name", text(3)),
                (since(TAGS), "tags", json!({"type": "array"})),
                (before(FILES_GONE), "files", json!({})),
            ],
        );
        json!({"type": "object", "properties": properties, "additionalProperties": false})
    }

    #[test]
    fn each_microversion_has_its_own_fields_and_the_next_has_those_of_the_newest() {
        let schemas = Schemas::new(schema);
        assert_eq!(schemas.0.len(), 3, "one schema for each change");
        let takes = |version, body| schemas.check(version, &body).is_ok();
        assert!(takes(microversions::MIN, json!({"name": "a", "files": []})));
        assert!(!takes(microversions::MIN, json!({"tags": []})));
        assert!(takes(FLAVOR_IN_SERVER, json!({"tags": [], "files": []})));
        let next = Microversion(MAX.0, MAX.1 + 1);
        for version in [MAX, next] {
            assert!(takes(version, json!({"name": "abc", "tags": []})));
            assert!(!takes(version, json!({"files": []})));
            assert!(!takes(version, json!({"name": "abcd"})));
        }
    }
}

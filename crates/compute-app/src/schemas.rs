//! JSON schemas of request bodies that differ between microversions, and the parts that they share.
//!
//! A schema states the fields of a body and the form of each. The handler checks the meaning of a field
//! and every further condition.

use std::sync::{Arc, PoisonError, RwLock};

use kilonova_wire::schema::Schema;
use kilonova_wire::{Microversion, Refusal};
use serde_json::{Map, Value, json};

use crate::microversions::{self, Span};

/// Largest integer that Nova's tables can store, and therefore the largest that its API accepts.
pub const MAX_INT: i64 = 0x7FFF_FFFF;

/// The words that Nova's API accepts for `true`.
pub const YES: &[&str] = &["True", "TRUE", "true", "1", "ON", "On", "on", "YES", "Yes", "yes"];
/// The words that Nova's API accepts for `false`.
pub const NO: &[&str] = &["False", "FALSE", "false", "0", "OFF", "Off", "off", "NO", "No", "no"];

/// The schemas of one body. A process serves few microversions, so each schema is compiled for the first request that
/// needs it. Microversions with equal schemas share one.
pub struct Schemas {
    /// The property of the body to which the schemas apply; `None` for the whole body.
    property: Option<&'static str>,
    of: fn(Microversion) -> Value,
    compiled: RwLock<Vec<Compiled>>,
}

/// A schema and the microversions that have used it.
struct Compiled {
    source: Value,
    versions: Vec<Microversion>,
    schema: Arc<Schema>,
}

impl Schemas {
    /// The schemas that `of` returns, for a whole body.
    pub const fn new(of: fn(Microversion) -> Value) -> Self {
        Self { property: None, of, compiled: RwLock::new(Vec::new()) }
    }

    /// The schemas that `of` returns, for one property of a body.
    pub const fn of_property(property: &'static str, of: fn(Microversion) -> Value) -> Self {
        Self { property: Some(property), of, compiled: RwLock::new(Vec::new()) }
    }

    /// Checks a body against the schema of a microversion.
    ///
    /// # Errors
    /// 400 naming the field.
    ///
    /// # Panics
    /// If the schema is invalid, which the test of its body detects ([`Schemas::compile`]).
    pub fn check(&self, version: Microversion, body: &Value) -> Result<(), Refusal> {
        self.get(version).check(body)
    }

    /// Compiles the schemas of all microversions. The test of each body calls this, because a request compiles
    /// only the schema of its own microversion.
    ///
    /// # Panics
    /// If one is invalid.
    pub fn compile(&self) {
        for version in microversions::ALL {
            self.get(*version);
        }
    }

    fn get(&self, version: Microversion) -> Arc<Schema> {
        let known = self.compiled.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.iter().find(|known| known.versions.contains(&version)) {
            return Arc::clone(&found.schema);
        }
        drop(known);
        let source = match self.property {
            Some(property) => json!({"properties": {property: (self.of)(version)}}),
            None => (self.of)(version),
        };
        let mut known = self.compiled.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.iter_mut().find(|known| known.source == source) {
            // Another request may have added the version meanwhile.
            if !found.versions.contains(&version) {
                found.versions.push(version);
            }
            return Arc::clone(&found.schema);
        }
        let schema = Arc::new(Schema::new(&source));
        known.push(Compiled { source, versions: vec![version], schema: Arc::clone(&schema) });
        schema
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

/// A string of 1 to `most` characters.
pub fn text(most: u32) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": most})
}

/// A boolean: `true`, `false`, or one of the words for them.
pub fn boolean() -> Value {
    let words = YES.iter().chain(NO).map(|word| json!(word));
    json!({"enum": ([json!(true), json!(false)].into_iter().chain(words).collect::<Vec<_>>())})
}

/// A description: null, or a string of at most 255 printable characters.
pub fn description() -> Value {
    json!({"type": ["string", "null"], "maxLength": 255, "pattern": r"^[^\p{C}]*$"})
}

/// An integer of at least `least`. The client may send it as a string.
pub fn integer(least: i64) -> Value {
    let pattern = if least < 0 { "^-?[0-9]{1,10}$" } else { "^[0-9]{1,10}$" };
    json!({"type": ["integer", "string"], "pattern": pattern, "minimum": least, "maximum": MAX_INT})
}

/// A file to put into a guest. Upstream's schema requires neither field, and a file without one is a 500.
pub fn file() -> Value {
    json!({
        "type": "object",
        "properties": {"path": {"type": "string"}, "contents": {"type": "string"}},
        "required": ["path", "contents"],
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

    #[test]
    fn a_schema_is_compiled_for_the_first_request_and_shared_by_microversions() {
        let schemas = Schemas::new(schema);
        let compiled = || schemas.compiled.read().expect("no test has failed").len();
        assert_eq!(compiled(), 0);
        for version in [MAX, MAX, Microversion(MAX.0, MAX.1 + 1)] {
            schemas.check(version, &json!({})).expect("the body is valid");
            assert_eq!(compiled(), 1);
        }
        schemas.compile();
        assert_eq!(compiled(), 3, "one schema for each change");
    }

    #[test]
    fn a_schema_of_a_property_names_it() {
        let schemas = Schemas::of_property("server", schema);
        assert!(schemas.check(MAX, &json!({"server": {"name": "abc"}})).is_ok());
        let refused =
            schemas.check(MAX, &json!({"server": {"name": "abcd"}})).expect_err("too long");
        assert!(refused.message.contains("name"), "{}", refused.message);
    }
}

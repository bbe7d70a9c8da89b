//! An OpenAPI document: its operations, and the schemas of each microversion.
//!
//! The document lists the schemas of all microversions side by side, each with its range. Its
//! status codes are unreliable, so only the bodies of responses are checked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use jsonschema::Validator;
use kilonova_compute_app::microversions::{MAX, MIN};
use kilonova_wire::time;
use serde_json::{Value, json};

use crate::yaml;

const METHODS: [&str; 6] = ["get", "post", "put", "delete", "patch", "head"];

/// The side of an operation that a schema describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Requests.
    Request,
    /// Responses.
    Answer,
}

/// A schema and its range.
#[derive(Debug, Clone)]
struct Leaf {
    schema: Arc<Value>,
    name: String,
    first: u32,
    last: u32,
    action: Option<String>,
}

/// A method on a path.
#[derive(Debug, Clone)]
pub struct Operation {
    /// `GET`, …
    pub method: String,
    /// `/v2.1/servers/{id}`
    pub path: String,
    requests: Vec<Leaf>,
    answers: Vec<Leaf>,
    /// Minor versions at which any part of it changes.
    pub boundaries: BTreeSet<u32>,
    /// The keys of its query string.
    pub queries: Vec<String>,
}

impl Operation {
    /// `GET /v2.1/servers/{id}`
    pub fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// Names of the actions in its bodies.
    pub fn actions(&self) -> BTreeSet<String> {
        self.requests.iter().filter_map(|leaf| leaf.action.clone()).collect()
    }

    /// Minor versions at which any part of one of its actions changes.
    pub fn boundaries_of(&self, action: &str) -> BTreeSet<u32> {
        let mut found = BTreeSet::from([MIN.1, MAX.1]);
        let all = self.requests.iter().chain(&self.answers);
        for leaf in all.filter(|leaf| leaf.action.as_deref() == Some(action)) {
            for minor in [leaf.first, leaf.last, leaf.last.saturating_add(1)] {
                found.insert(minor.clamp(MIN.1, MAX.1));
            }
        }
        found
    }

    /// The schema at a minor version, if the document has one.
    fn leaf(&self, side: Side, minor: u32, action: Option<&str>) -> Option<&Leaf> {
        let leaves = match side {
            Side::Request => &self.requests,
            Side::Answer => &self.answers,
        };
        leaves
            .iter()
            .filter(|leaf| leaf.action.as_deref() == action)
            .filter(|leaf| (leaf.first..=leaf.last).contains(&minor))
            .max_by_key(|leaf| leaf.first)
    }

    /// The schema at a minor version, if the document has one.
    pub fn schema(&self, side: Side, minor: u32, action: Option<&str>) -> Option<&Value> {
        self.leaf(side, minor, action).map(|leaf| &*leaf.schema)
    }
}

/// The operations of a service.
pub struct Document {
    /// Sorted by path.
    pub operations: Vec<Operation>,
    validators: Mutex<BTreeMap<String, Arc<Validator>>>,
}

impl Document {
    /// The compute API.
    ///
    /// # Errors
    /// An error if the document cannot be read.
    pub fn compute() -> Result<Self, String> {
        Self::read(openstack_types::compute::get_openapi_spec())
    }

    /// Reads a document.
    ///
    /// # Errors
    /// An error if it cannot be read.
    pub fn read(text: &str) -> Result<Self, String> {
        let root = yaml::read(text)?;
        let paths = root["paths"].as_object().ok_or("no paths")?;
        let mut operations = Vec::new();
        for (path, item) in paths {
            for method in METHODS {
                if let Some(found) = item.get(method) {
                    operations.push(operation(&root, method, path, found));
                }
            }
        }
        operations.sort_by_key(|operation| (operation.path.clone(), operation.method.clone()));
        Ok(Self { operations, validators: Mutex::default() })
    }

    /// The operation of a request.
    pub fn find(&self, method: &str, path: &str) -> Option<&Operation> {
        let parts: Vec<&str> = path.split('/').collect();
        let fits = |operation: &&Operation| {
            let template: Vec<&str> = operation.path.split('/').collect();
            operation.method == method
                && template.len() == parts.len()
                && template.iter().zip(&parts).all(|(t, part)| t.starts_with('{') || t == part)
        };
        let literal =
            |operation: &&Operation| std::cmp::Reverse(operation.path.matches('{').count());
        self.operations.iter().filter(fits).max_by_key(literal)
    }

    /// The first violation of the document by a body; `None` if the body conforms, or if the
    /// document has no schema.
    pub fn objection(
        &self,
        operation: &Operation,
        side: Side,
        minor: u32,
        action: Option<&str>,
        body: &Value,
    ) -> Option<String> {
        let leaf = operation.leaf(side, minor, action)?;
        let validator = self.validator(leaf);
        let error = validator.iter_errors(body).next()?;
        Some(format!("{}: {} at {}", leaf.name, error, error.instance_path()))
    }

    fn validator(&self, leaf: &Leaf) -> Arc<Validator> {
        let mut known = self.validators.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(validator) = known.get(&leaf.name) {
            return Arc::clone(validator);
        }
        let built = jsonschema::options()
            .with_draft(jsonschema::Draft::Draft202012)
            .should_validate_formats(true)
            .with_format("date-time", |text| time::parse(text).is_some())
            .build(&leaf.schema);
        let built =
            built.unwrap_or_else(|error| panic!("{} is not a valid schema: {error}", leaf.name));
        let validator = Arc::new(built);
        known.insert(leaf.name.clone(), Arc::clone(&validator));
        validator
    }
}

fn operation(root: &Value, method: &str, path: &str, found: &Value) -> Operation {
    let mut requests = Vec::new();
    let mut answers = Vec::new();
    let at = |content: &Value| content["content"]["application/json"]["schema"].clone();
    let method = method.to_uppercase();
    let inline = format!("{method} {path}");
    leaves(root, &inline, &at(&found["requestBody"]), None, &mut requests);
    for (status, answer) in found["responses"].as_object().into_iter().flatten() {
        if status.starts_with('2') {
            leaves(root, &format!("{inline} {status}"), &at(answer), None, &mut answers);
        }
    }
    let mut boundaries = BTreeSet::from([MIN.1, MAX.1]);
    let mut note = |first: u32, last: u32| {
        for minor in [first, last, last.saturating_add(1)] {
            boundaries.insert(minor.clamp(MIN.1, MAX.1));
        }
    };
    let (first, last) = range(found);
    note(first, last);
    for leaf in requests.iter().chain(&answers) {
        note(leaf.first, leaf.last);
    }
    let mut queries = Vec::new();
    for parameter in found["parameters"].as_array().into_iter().flatten() {
        let parameter = resolved(root, parameter);
        if parameter["in"] == "query" {
            queries.extend(parameter["name"].as_str().map(str::to_owned));
        }
        let (first, last) = range(&parameter);
        note(first, last);
        for part in parameter["schema"]["oneOf"].as_array().into_iter().flatten() {
            let (first, last) = range(part);
            note(first, last);
        }
    }
    Operation { method, path: path.to_owned(), requests, answers, boundaries, queries }
}

/// Follows references and alternatives to the schemas of one range.
fn leaves(root: &Value, name: &str, schema: &Value, action: Option<&str>, found: &mut Vec<Leaf>) {
    if schema.is_null() {
        return;
    }
    if let Some(target) = schema["$ref"].as_str() {
        let name = target.rsplit('/').next().unwrap_or(target);
        return leaves(root, name, &resolved(root, schema), action, found);
    }
    let extra = &schema["x-openstack"];
    let action = extra["action-name"].as_str().or(action);
    let by = extra["discriminator"].as_str();
    let alternatives = schema["oneOf"].as_array();
    let named = alternatives.is_some_and(|all| all.iter().all(|one| one.get("$ref").is_some()));
    if let Some(all) = alternatives.filter(|_| named || by.is_some()) {
        for (index, one) in all.iter().enumerate() {
            leaves(root, &format!("{name}#{index}"), one, action, found);
        }
        return;
    }
    let (first, last) = range(schema);
    found.push(Leaf {
        schema: Arc::new(inlined(root, schema)),
        name: name.to_owned(),
        first,
        last,
        action: action.map(str::to_owned).or_else(|| action_of(name)),
    });
}

/// The action of a response schema that does not name its action.
fn action_of(name: &str) -> Option<String> {
    let known = [
        ("ServersActionEvacuateResponse", "evacuate"),
        ("ServersAction_RescueResponse", "rescue"),
        ("ServersActionGet_Console_OutputResponse", "os-getConsoleOutput"),
    ];
    known.iter().find(|(have, _)| *have == name).map(|(_, action)| (*action).to_owned())
}

fn resolved(root: &Value, value: &Value) -> Value {
    match value["$ref"].as_str().and_then(|target| target.strip_prefix('#')) {
        Some(pointer) => root.pointer(pointer).cloned().unwrap_or(Value::Null),
        None => value.clone(),
    }
}

/// A schema without references. The document sorts `prefixItems`, so their order is not upstream's:
/// each item may match any of them. A single one stays unchanged.
fn inlined(root: &Value, value: &Value) -> Value {
    match value {
        Value::Object(map) if map.contains_key("$ref") => inlined(root, &resolved(root, value)),
        Value::Object(map) => {
            let entry = |(key, value): (&String, &Value)| match key.as_str() {
                "prefixItems" if value.as_array().is_some_and(|items| items.len() > 1) => {
                    ("items".to_owned(), json!({"anyOf": inlined(root, value)}))
                }
                _ => (key.clone(), inlined(root, value)),
            };
            map.iter().map(entry).collect()
        }
        Value::Array(items) => items.iter().map(|item| inlined(root, item)).collect(),
        other => other.clone(),
    }
}

/// The range of minor versions, inclusive.
fn range(value: &Value) -> (u32, u32) {
    let minor =
        |key: &str| value["x-openstack"][key].as_str()?.strip_prefix("2.")?.parse::<u32>().ok();
    let first = minor("min-ver").unwrap_or(0);
    // Ignores the end of a range that ends before it begins, as some ranges in the document do.
    (first, minor("max-ver").filter(|last| *last >= first).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
paths:
  /v2.1/things/{id}:
    put:
      requestBody: {content: {application/json: {schema: {$ref: '#/components/schemas/Put'}}}}
      responses:
        '200': {content: {application/json: {schema: {oneOf: [
          {$ref: '#/components/schemas/Old'}, {$ref: '#/components/schemas/New'}]}}}}
  /v2.1/things/detail:
    put: {responses: {}}
components:
  schemas:
    Put:
      oneOf: [{$ref: '#/components/schemas/PutA'}]
      x-openstack: {discriminator: microversion}
    PutA: {type: object, required: [a], x-openstack: {min-ver: '2.1'}}
    Old: {type: object, additionalProperties: false, x-openstack: {min-ver: '2.1', max-ver: '2.4'}}
    New: {type: object, required: [n], x-openstack: {min-ver: '2.5'}}
";

    #[test]
    fn a_schema_holds_in_its_range() {
        let document = Document::read(TEXT).expect("the document is valid");
        let operation = document.find("PUT", "/v2.1/things/x").expect("the operation exists");
        assert_eq!(operation.path, "/v2.1/things/{id}");
        let object = |side, minor, body: &Value| {
            document.objection(operation, side, minor, None, body).is_some()
        };
        assert!(!object(Side::Answer, 4, &json!({})) && object(Side::Answer, 4, &json!({"n": 1})));
        assert!(object(Side::Answer, 5, &json!({})) && !object(Side::Answer, 5, &json!({"n": 1})));
        assert!(
            object(Side::Request, 1, &json!({})) && !object(Side::Request, 1, &json!({"a": 1}))
        );
        assert_eq!(operation.boundaries, [1, 4, 5, MAX.1].into());
        assert_eq!(
            document.find("PUT", "/v2.1/things/detail").map(|found| found.path.as_str()),
            Some("/v2.1/things/detail")
        );
    }
}

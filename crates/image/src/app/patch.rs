//! Parses and applies a JSON patch in Glance's dialects: `add`, `replace` and `remove` of whole attributes.

use serde_json::Value;

use super::Requester;
use super::rules::{BASE, apply, check_visibility, check_writable};
use crate::{Error, ImageRecord};

/// The operation on an attribute.
#[derive(Debug, Clone)]
pub(crate) enum Verb {
    Add(Value),
    /// Adds the attribute only if it is missing.
    AddNew(Value),
    Replace(Value),
    Remove,
}

/// One step of a patch.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub key: String,
    pub verb: Verb,
}

/// The dialect of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `{"op": "replace", "path": "/name", "value": "x"}` (draft 10 of JSON patch).
    Draft10,
    /// `{"replace": "/name", "value": "x"}` (draft 4). `add` fails if the attribute exists.
    Draft4,
}

const OPERATIONS: [&str; 3] = ["add", "remove", "replace"];

/// Parses the body.
pub(crate) fn read(body: &Value, form: Form) -> Result<Vec<Step>, Error> {
    let wrong = || Error::Invalid("Request body must be a JSON array of operation objects.".into());
    body.as_array().ok_or_else(wrong)?.iter().map(|one| step(one, form)).collect()
}

fn step(operation: &Value, form: Form) -> Result<Step, Error> {
    let wrong = |why: String| Error::Invalid(why);
    let Some(fields) = operation.as_object() else {
        return Err(wrong("Operations must be JSON objects.".into()));
    };
    let (op, path) = match form {
        Form::Draft10 => {
            let available = OPERATIONS.join(", ");
            let Some(op) = fields.get("op") else {
                return Err(wrong(format!(
                    "Unable to find `op` in JSON Schema change. It must be one of the following: \
                     {available}."
                )));
            };
            let op = op.as_str().unwrap_or_default();
            if !OPERATIONS.contains(&op) {
                return Err(wrong(format!(
                    "Invalid operation: `{}`. It must be one of the following: {available}.",
                    op.escape_debug()
                )));
            }
            (op, fields.get("path"))
        }
        Form::Draft4 => {
            let mut named = OPERATIONS.iter().filter(|op| fields.contains_key(**op));
            let (Some(op), None) = (named.next(), named.next()) else {
                return Err(wrong(
                    "Operation objects must contain exactly one member named \"add\", \"remove\", or \
                     \"replace\"."
                        .into(),
                ));
            };
            (*op, fields.get(*op))
        }
    };
    let Some(path) = path.and_then(Value::as_str) else {
        return Err(wrong("Unable to find 'path' in JSON Schema change".into()));
    };
    let key = pointer(path)?;
    let value = || {
        let value = fields.get("value").cloned();
        value.ok_or_else(|| wrong(format!("Operation \"{op}\" requires a member named \"value\".")))
    };
    let verb = match op {
        "add" if form == Form::Draft4 => Verb::AddNew(value()?),
        "add" => Verb::Add(value()?),
        "replace" => Verb::Replace(value()?),
        _ => Verb::Remove,
    };
    Ok(Step { key, verb })
}

/// The attribute that a JSON pointer names.
fn pointer(path: &str) -> Result<String, Error> {
    let shown = path.escape_debug();
    let Some(key) = path.strip_prefix('/') else {
        return Err(Error::Invalid(format!("Pointer `{shown}` does not start with \"/\".")));
    };
    if key.trim().is_empty() || (key.contains('/') && !key.starts_with("locations/")) {
        return Err(Error::Invalid(format!("Invalid JSON pointer for this resource: '{shown}'")));
    }
    let key = key.split('/').next().unwrap_or_default();
    if key.split('~').skip(1).any(|rest| !rest.starts_with(['0', '1'])) {
        return Err(Error::Invalid(format!(
            "Pointer `{shown}` contains \"~\" not part of a recognized escape sequence."
        )));
    }
    Ok(key.replace("~1", "/").replace("~0", "~"))
}

impl Step {
    pub(crate) fn run(&self, image: &mut ImageRecord, caller: &Requester) -> Result<(), Error> {
        let key = self.key.as_str();
        let shown = key.escape_debug();
        check_writable(key)?;
        let base = BASE.contains(&key);
        let there = base || image.properties.contains_key(key);
        match &self.verb {
            Verb::AddNew(_) if there => {
                Err(Error::Conflict(format!("Property {shown} already present.")))
            }
            Verb::Replace(_) | Verb::Remove if !there => {
                Err(Error::Conflict(format!("Property {shown} does not exist.")))
            }
            Verb::Add(value) | Verb::AddNew(value) | Verb::Replace(value) => {
                let before = image.visibility;
                apply(image, key, value, caller)?;
                if key == "visibility" && image.visibility != before {
                    check_visibility(image, |rule| caller.allows(rule, image, None))?;
                }
                Ok(())
            }
            Verb::Remove if base => {
                Err(Error::Forbidden(format!("Property {shown} may not be removed.")))
            }
            Verb::Remove => {
                image.properties.remove(key);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pointer_names_one_attribute() {
        for (path, key) in [
            ("/name", Some("name")),
            ("/a~1b~0", Some("a/b~")),
            ("/locations/-", Some("locations")),
        ] {
            assert_eq!(pointer(path).ok().as_deref(), key, "{path}");
        }
        for path in ["name", "/", "", "/a/b", "/a~2", "/a~", "/tags/-"] {
            assert!(pointer(path).is_err(), "{path}");
        }
    }

    #[test]
    fn both_dialects_are_parsed() {
        let old = json!([{"replace": "/name", "value": "x"}, {"add": "/k", "value": "v"}, {"remove": "/p"}]);
        let steps = read(&old, Form::Draft4).unwrap();
        let keys: Vec<&str> = steps.iter().map(|step| step.key.as_str()).collect();
        assert_eq!(keys, ["name", "k", "p"]);
        assert!(matches!(steps[1].verb, Verb::AddNew(_)));
        for wrong in [
            json!({}),
            json!(["x"]),
            json!([{}]),
            json!([{"add": "/a", "remove": "/b", "value": 1}]),
            json!([{"add": "/a"}]),
            json!([{"op": "add", "path": "/a", "value": 1}]),
        ] {
            assert!(read(&wrong, Form::Draft4).is_err(), "{wrong}");
        }
        for wrong in [json!([{"op": "move", "path": "/a"}]), json!([{"add": "/a", "value": 1}])] {
            assert!(read(&wrong, Form::Draft10).is_err(), "{wrong}");
        }
    }
}

//! Reading a JSON patch as Glance takes it: `add`, `replace` and `remove` of whole attributes.

use serde_json::Value;

use super::rules::{BASE, READ_ONLY, apply};
use crate::{Error, ImageRecord};
use kilonova_wire::Context;

/// What is to happen to an attribute.
#[derive(Debug, Clone)]
pub(crate) enum Verb {
    Add(Value),
    Replace(Value),
    Remove,
}

/// One step of a patch.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub key: String,
    pub verb: Verb,
}

/// Reads the body.
pub(crate) fn read(body: &Value) -> Result<Vec<Step>, Error> {
    let wrong = || Error::Invalid("Request body must be a JSON array of operation objects.".into());
    body.as_array().ok_or_else(wrong)?.iter().map(step).collect()
}

fn step(operation: &Value) -> Result<Step, Error> {
    let wrong = |why: &str| Error::Invalid(format!("Invalid patch operation: {why}."));
    let text = |key: &str| operation.get(key).and_then(Value::as_str);
    let value = || operation.get("value").cloned().ok_or_else(|| wrong("it has no value"));
    let verb = match text("op") {
        Some("add") => Verb::Add(value()?),
        Some("replace") => Verb::Replace(value()?),
        Some("remove") => Verb::Remove,
        _ => return Err(wrong("op has to be add, replace or remove")),
    };
    let path = text("path").and_then(|path| path.strip_prefix('/'));
    let path = path.ok_or_else(|| wrong("path has to begin with a slash"))?;
    if path.is_empty() || path.contains('/') {
        return Err(wrong("path has to name one attribute"));
    }
    Ok(Step { key: path.replace("~1", "/").replace("~0", "~"), verb })
}

impl Step {
    pub(crate) fn run(&self, image: &mut ImageRecord, context: &Context) -> Result<(), Error> {
        let key = self.key.as_str();
        let fixed = READ_ONLY.contains(&key) || BASE.contains(&key);
        if !fixed && !matches!(self.verb, Verb::Add(_)) && !image.properties.contains_key(key) {
            let key = key.escape_debug();
            return Err(Error::Conflict(format!("Property {key} does not exist.")));
        }
        match &self.verb {
            Verb::Add(value) | Verb::Replace(value) => apply(image, key, value, context),
            Verb::Remove if fixed => {
                Err(Error::Forbidden(format!("Property {key} may not be removed.")))
            }
            Verb::Remove => {
                image.properties.remove(key);
                Ok(())
            }
        }
    }
}

//! Policy targets: the ids in the URL and the objects that they name.
//!
//! This is what `enforce_call` of `keystone/common/rbac_enforcer/enforcer.py` gives to oslo.policy: `user_id` for the
//! id in the URL, and `target.user.name` for an attribute of the object. Lists are left out.

use kilonova_wire::{Base, JsonBody};
use serde_json::Value;

use super::{groups, projects, roles, users};
use crate::{Error, Identity};

/// A target that owns its values. An object that does not exist has no attributes: the operation reports that after
/// the rule has passed.
#[derive(Debug, Default)]
pub(super) struct PolicyTarget(Vec<(String, String)>);

impl PolicyTarget {
    /// Adds one value.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.0.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds the attributes of an object.
    pub fn object(mut self, kind: &str, view: &Value) -> Self {
        flatten(&mut self.0, &format!("target.{kind}"), view);
        self
    }

    /// Adds the attributes that a request sends for a new object.
    pub fn sent(self, kind: &str, body: &JsonBody) -> Self {
        match body.0.get(kind) {
            Some(fields) => self.object(kind, fields),
            None => self,
        }
    }

    /// Adds the user of the URL.
    pub async fn user(self, identity: &Identity, id: &str) -> Result<Self, Error> {
        let found = if is_id(id) { known(identity.user(id).await)? } else { None };
        Ok(self.named("user", id, found.map(|user| users::view(&user, &no_base()))))
    }

    /// Adds the project of the URL.
    pub async fn project(self, identity: &Identity, id: &str) -> Result<Self, Error> {
        let found = if is_id(id) { known(identity.project(id).await)? } else { None };
        Ok(self.named("project", id, found.map(|project| projects::view(&project, &no_base()))))
    }

    /// Adds the group of the URL.
    pub async fn group(self, identity: &Identity, id: &str) -> Result<Self, Error> {
        let found = if is_id(id) { known(identity.group(id).await)? } else { None };
        Ok(self.named("group", id, found.map(|group| groups::view(&group, &no_base()))))
    }

    /// Adds the role of the URL.
    pub async fn role(self, identity: &Identity, id: &str) -> Result<Self, Error> {
        let found = if is_id(id) { known(identity.role(id).await)? } else { None };
        Ok(self.named("role", id, found.map(|role| roles::view(&role, &no_base()))))
    }

    fn named(self, kind: &str, id: &str, found: Option<Value>) -> Self {
        let target = self.with(&format!("{kind}_id"), id);
        match found {
            Some(view) => target.object(kind, &view),
            None => target,
        }
    }

    /// The names and values for rules.
    pub fn pairs(&self) -> Vec<(&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }
}

/// True for a text that a query may contain.
fn is_id(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

/// Targets have no links, so their views need no base.
fn no_base() -> Base {
    Base(String::new())
}

/// The object, or `None` if it does not exist.
fn known<T>(found: Result<T, Error>) -> Result<Option<T>, Error> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Error::NotFound(..)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Adds the attributes of an object under dotted names, with the values as Python writes them.
fn flatten(into: &mut Vec<(String, String)>, prefix: &str, value: &Value) {
    let text = match value {
        Value::Object(fields) => {
            for (key, value) in fields.iter().filter(|(key, _)| *key != "links") {
                flatten(into, &format!("{prefix}.{key}"), value);
            }
            return;
        }
        Value::Array(_) => return,
        Value::String(text) => text.clone(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Null => "None".to_owned(),
        Value::Number(number) => number.to_string(),
    };
    into.push((prefix.to_owned(), text));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn attributes_have_dotted_names_and_pythons_values() {
        let view = json!({"name": "n", "enabled": true, "description": null, "tags": ["t"],
            "options": {"immutable": false, "count": 3}, "links": {"self": "x"}});
        let target = PolicyTarget::default().with("user_id", "u").object("user", &view);
        let mut pairs = target.pairs();
        pairs.sort_unstable();
        assert_eq!(
            pairs,
            [
                ("target.user.description", "None"),
                ("target.user.enabled", "True"),
                ("target.user.name", "n"),
                ("target.user.options.count", "3"),
                ("target.user.options.immutable", "False"),
                ("user_id", "u"),
            ]
        );
    }
}

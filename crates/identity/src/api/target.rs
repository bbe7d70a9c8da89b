//! Policy targets: the ids in the URL and the objects that they name.
//!
//! This is what `enforce_call` of `keystone/common/rbac_enforcer/enforcer.py` gives to oslo.policy: `user_id` for the
//! id in the URL, and `target.user.name` for an attribute of the object. Lists are left out.
//!
//! A target has only the attributes that its rule needs: the policy bounds their number and the length of their names,
//! whatever a request sends, and objects that no rule compares are not read.

use kilonova_access::Caller;
use kilonova_wire::{Base, JsonBody, Refusal};
use serde_json::Value;

use super::{groups, may, projects, roles, users};
use crate::Identity;
use crate::app::objects::ObjectIds;

/// The target of one rule. An object that does not exist has no attributes but its id: the operation reports that after
/// the rule has passed.
#[derive(Debug)]
pub(super) struct PolicyTarget<'a> {
    caller: &'a Caller,
    rule: &'a str,
    values: Vec<(String, String)>,
    /// The objects that the rule compares.
    ids: ObjectIds,
}

impl<'a> PolicyTarget<'a> {
    /// The target of a rule for a caller.
    pub fn of(caller: &'a Caller, rule: &'a str) -> Self {
        Self { caller, rule, values: Vec::new(), ids: ObjectIds::default() }
    }

    /// Adds one value.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.values.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds the attributes of an object.
    pub fn object(mut self, kind: &str, view: &Value) -> Self {
        self.values.extend(attributes(self.caller.policy().needs(self.rule), kind, view));
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
    pub fn user(mut self, id: &str) -> Self {
        self.ids.user = self.wanted("user", id);
        self.named("user", id)
    }

    /// Adds the project of the URL.
    pub fn project(mut self, id: &str) -> Self {
        self.ids.project = self.wanted("project", id);
        self.named("project", id)
    }

    /// Adds the group of the URL.
    pub fn group(mut self, id: &str) -> Self {
        self.ids.group = self.wanted("group", id);
        self.named("group", id)
    }

    /// Adds the role of the URL.
    pub fn role(mut self, id: &str) -> Self {
        self.ids.role = self.wanted("role", id);
        self.named("role", id)
    }

    fn named(self, kind: &str, id: &str) -> Self {
        self.with(&format!("{kind}_id"), id).with(&format!("target.{kind}.id"), id)
    }

    /// The id, if the rule compares attributes of the object that are neither in the URL nor constant.
    fn wanted(&self, kind: &str, id: &str) -> Option<String> {
        let needs = self.caller.policy().needs(self.rule);
        let mut names = needs.iter().filter_map(|name| attribute(name, kind));
        let compares = names.any(|name| name != "id" && name != "domain_id");
        (compares && is_id(id)).then(|| id.to_owned())
    }

    /// Reads the objects and enforces the rule.
    pub async fn may(mut self, identity: &Identity) -> Result<(), Refusal> {
        let found = identity.objects(std::mem::take(&mut self.ids)).await?;
        // Targets have no links, so their views need no base.
        let base = Base(String::new());
        for (kind, view) in [
            ("user", found.user.map(|user| users::view(&user, &base))),
            ("project", found.project.map(|project| projects::view(&project, &base))),
            ("group", found.group.map(|group| groups::view(&group, &base))),
            ("role", found.role.map(|role| roles::view(&role, &base))),
        ] {
            if let Some(view) = view {
                self = self.object(kind, &view);
            }
        }
        let pairs: Vec<(&str, &str)> =
            self.values.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        may(self.caller, self.rule, &pairs)
    }
}

/// True for a text that a query may contain.
fn is_id(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

/// The attribute of an object of this kind that the name of a value refers to: `name` for `target.user.name`.
fn attribute<'a>(name: &'a str, kind: &str) -> Option<&'a str> {
    name.strip_prefix("target.")?.strip_prefix(kind)?.strip_prefix('.')
}

/// The attributes of the object that the rule needs, by the names of the values.
fn attributes(needs: &[String], kind: &str, view: &Value) -> Vec<(String, String)> {
    let value = |name: &String| Some((name.clone(), value(view, attribute(name, kind)?)?));
    needs.iter().filter_map(value).collect()
}

/// The value of an attribute as Python writes it. A dotted name may also refer to a value within an attribute.
fn value(view: &Value, name: &str) -> Option<String> {
    let fields = view.as_object()?;
    if let Some(value) = fields.get(name).and_then(text) {
        return Some(value);
    }
    let mut dots = name.match_indices('.').map(|(at, _)| (&name[..at], &name[at + 1..]));
    dots.find_map(
        |(first, rest)| {
            if first == "links" { None } else { value(fields.get(first)?, rest) }
        },
    )
}

/// The text of a value that is neither a list nor an object.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Object(_) | Value::Array(_) => None,
        Value::String(text) => Some(text.clone()),
        Value::Bool(true) => Some("True".to_owned()),
        Value::Bool(false) => Some("False".to_owned()),
        Value::Null => Some("None".to_owned()),
        Value::Number(number) => Some(number.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn attributes_have_dotted_names_and_pythons_values() {
        let view = json!({"name": "n", "enabled": true, "description": null, "tags": ["t"], "a.b": "c",
            "options": {"immutable": false, "count": 3}, "links": {"self": "x"}});
        let needs = [
            "target.user.a.b",
            "target.user.description",
            "target.user.enabled",
            "target.user.links.self",
            "target.user.name",
            "target.user.options",
            "target.user.options.count",
            "target.user.options.immutable",
            "target.user.tags",
            "target.users.name",
            "user_id",
        ]
        .map(str::to_owned);
        let found = attributes(&needs, "user", &view);
        let found: Vec<_> = found.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(
            found,
            [
                ("target.user.a.b", "c"),
                ("target.user.description", "None"),
                ("target.user.enabled", "True"),
                ("target.user.name", "n"),
                ("target.user.options.count", "3"),
                ("target.user.options.immutable", "False"),
            ]
        );
        let nested = json!({"name": {"name": "n"}, "x".repeat(1000): {"y": 1}});
        assert!(attributes(&needs, "user", &nested).is_empty());
    }
}

//! The attributes of resources: allowed values and policy rules. Pure: one table per resource kind
//! and the functions that apply it.

use kilonova_access::Caller;
use kilonova_wire::Refusal;
use serde_json::{Map, Value, json};

use crate::api::RULES;
use crate::app::sets_project;
use crate::app::targets::Target;
use crate::error::{invalid_value, malformed};
use crate::record::Body;

/// Validates and normalizes a value, or returns the reason for a refusal.
pub(crate) type Check = fn(&Value) -> Result<Value, String>;

/// One attribute.
pub(crate) struct Attribute {
    pub name: &'static str,
    pub check: Check,
    pub on: On,
    /// The default; `None` makes the attribute required.
    pub default: Option<fn() -> Value>,
}

/// The requests in which an attribute may be sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    /// In `POST` and `PUT`.
    Both,
    /// In `POST` only.
    Post,
}

impl Attribute {
    pub const fn new(name: &'static str, check: Check, default: fn() -> Value) -> Self {
        Self { name, check, on: On::Both, default: Some(default) }
    }

    pub const fn required(name: &'static str, check: Check) -> Self {
        Self { name, check, on: On::Post, default: None }
    }

    /// Makes the attribute read-only after creation.
    pub const fn fixed(mut self) -> Self {
        self.on = On::Post;
        self
    }
}

/// The project of a new resource: the caller's, or any project if the caller may set it.
pub(crate) fn owner(caller: &Caller, sent: &Body) -> Result<String, Refusal> {
    let named = sent.get("project_id").or(sent.get("tenant_id")).and_then(Value::as_str);
    match named {
        Some(other) if other != caller.project_id && !sets_project(caller) => Err(malformed(
            "Specifying 'project_id' or 'tenant_id' other than the authenticated project in request \
             requires admin privileges",
        )),
        Some(named) if !named.is_empty() => Ok(named.to_owned()),
        _ if caller.project_id.is_empty() => {
            Err(malformed("Running without keystone AuthN requires that tenant_id is specified"))
        }
        _ => Ok(caller.project_id.clone()),
    }
}

/// Attributes that resources show and no request sets. A few kinds lack some of them.
const READ_ONLY: [&str; 7] =
    ["created_at", "id", "project_id", "revision_number", "status", "tenant_id", "updated_at"];

/// The body of a new resource, with defaults. (Upstream: `prepare_request_body` in `neutron/api/v2/base.py`.)
pub(crate) fn of_new(table: &[Attribute], sent: &Body) -> Result<Body, Refusal> {
    known(table, sent)?;
    let is_owner = |name: &str| matches!(name, "project_id" | "tenant_id");
    if let Some(name) = sent.keys().find(|name| is_read_only(table, name) && !is_owner(name)) {
        return Err(malformed(format!("Attribute '{name}' not allowed in POST")));
    }
    let mut body = Map::new();
    for attribute in table {
        let name = attribute.name;
        let value = match (sent.get(name), attribute.default) {
            (Some(value), _) => checked(attribute, value)?,
            (None, Some(default)) => default(),
            (None, None) => {
                return Err(malformed(format!(
                    "Failed to parse request. Required attribute '{name}' not specified"
                )));
            }
        };
        body.insert(name.to_owned(), value);
    }
    Ok(body)
}

/// The validated attributes of an update.
pub(crate) fn of_change(table: &[Attribute], sent: &Body) -> Result<Body, Refusal> {
    known(table, sent)?;
    let read_only = |name: &str| malformed(format!("Cannot update read-only attribute {name}"));
    let mut body = Map::new();
    for (name, value) in sent {
        let Some(attribute) = table.iter().find(|attribute| attribute.name == *name) else {
            return Err(read_only(name));
        };
        if attribute.on == On::Post {
            return Err(read_only(name));
        }
        body.insert(name.clone(), checked(attribute, value)?);
    }
    Ok(body)
}

/// Enforces the rule of an operation and the rules of the attributes that it sets, where such rules
/// exist. Setting an attribute of a new resource to its default needs no permission.
///
/// # Errors
/// A 403 that names the rule.
pub(crate) fn permitted(
    table: &[Attribute],
    rule: &str,
    caller: &Caller,
    set: &Body,
    target: &Target<'_>,
) -> Result<(), Refusal> {
    target.may(caller, rule)?;
    let is_new = rule.starts_with("create_");
    for (name, value) in set {
        let Some(attribute) = table.iter().find(|attribute| attribute.name == *name) else {
            continue;
        };
        let is_default = attribute.default.is_some_and(|default| default() == *value);
        if is_new && is_default {
            continue;
        }
        let one = format!("{rule}:{name}");
        enforce(caller, &one, target)?;
        let parts = value.as_array().into_iter().flatten().chain([value]);
        let parts = parts.filter_map(Value::as_object);
        let parts: std::collections::BTreeSet<&String> = parts.flat_map(Map::keys).collect();
        for part in parts {
            enforce(caller, &format!("{one}:{part}"), target)?;
        }
    }
    Ok(())
}

fn enforce(caller: &Caller, rule: &str, target: &Target<'_>) -> Result<(), Refusal> {
    match RULES.iter().any(|known| known.name == rule) {
        true => target.may(caller, rule),
        false => Ok(()),
    }
}

/// The rules that hide single attributes of a kind from a caller, such as `get_network:segments`. A list looks them up
/// once.
pub(crate) struct AttributeRules<'a> {
    caller: &'a Caller,
    /// Each attribute with its rule.
    rules: Vec<(&'static str, &'static str)>,
}

impl<'a> AttributeRules<'a> {
    /// The rules for the attributes of `operation`, such as `get_network`.
    pub fn of(caller: &'a Caller, operation: &str) -> Self {
        let attribute = |rule: &'static str| rule.strip_prefix(operation)?.strip_prefix(':');
        let rules = RULES.iter().filter_map(|known| Some((attribute(known.name)?, known.name)));
        Self { caller, rules: rules.collect() }
    }

    /// Removes the attributes that are hidden from the caller.
    pub fn hide(&self, view: &mut Body, target: &Target<'_>) {
        for (name, rule) in &self.rules {
            if view.contains_key(*name) && !target.allows(self.caller, rule) {
                view.remove(*name);
            }
        }
    }
}

/// True for an attribute that a resource shows and its table does not have.
fn is_read_only(table: &[Attribute], name: &str) -> bool {
    READ_ONLY.contains(&name) && !table.iter().any(|attribute| attribute.name == name)
}

fn known(table: &[Attribute], sent: &Body) -> Result<(), Refusal> {
    let is_known = |name: &str| table.iter().any(|a| a.name == name) || is_read_only(table, name);
    let unknown: Vec<&str> =
        sent.keys().map(String::as_str).filter(|name| !is_known(name)).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    Err(malformed(format!("Unrecognized attribute(s) '{}'", unknown.join(", ").escape_debug())))
}

fn checked(attribute: &Attribute, value: &Value) -> Result<Value, Refusal> {
    (attribute.check)(value).map_err(|why| invalid_value(attribute.name, why))
}

// Defaults for the tables.
pub(crate) fn empty() -> Value {
    json!("")
}
pub(crate) fn none() -> Value {
    Value::Null
}
pub(crate) fn yes() -> Value {
    json!(true)
}
pub(crate) fn no() -> Value {
    json!(false)
}
pub(crate) fn nothing() -> Value {
    json!([])
}

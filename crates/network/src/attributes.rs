//! What may be set of a thing, with which values, by whom. Pure: a table for each kind of thing, and
//! the two walks over it.

use kilonova_wire::{Context, Fault};
use serde_json::{Map, Value, json};

use crate::error::{invalid_value, malformed, not_allowed};
use crate::record::Body;

/// Turns a value into the one that is kept, or says what is wrong with it.
pub(crate) type Check = fn(&Value) -> Result<Value, String>;

/// One attribute.
pub(crate) struct Attribute {
    pub name: &'static str,
    pub check: Check,
    pub on: On,
    /// The value where none is sent; without one it has to be sent.
    pub default: Option<fn() -> Value>,
    /// Whether only administrators set it.
    pub admin: bool,
}

/// When an attribute may be sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    /// Whenever.
    Both,
    /// With a new thing only.
    Post,
}

impl Attribute {
    pub const fn new(name: &'static str, check: Check, default: fn() -> Value) -> Self {
        Self { name, check, on: On::Both, default: Some(default), admin: false }
    }

    pub const fn required(name: &'static str, check: Check) -> Self {
        Self { name, check, on: On::Post, default: None, admin: false }
    }

    /// Cannot be changed later.
    pub const fn fixed(mut self) -> Self {
        self.on = On::Post;
        self
    }

    pub const fn admin(mut self) -> Self {
        self.admin = true;
        self
    }
}

/// Whose a new thing is: the caller's project, or another for administrators.
pub(crate) fn owner(context: &Context, sent: &Body) -> Result<String, Fault> {
    let named = sent.get("project_id").or(sent.get("tenant_id")).and_then(Value::as_str);
    match named {
        Some(other) if other != context.project_id && !context.is_admin() => Err(malformed(
            "Specifying 'project_id' or 'tenant_id' other than the authenticated project in request \
             requires admin privileges",
        )),
        Some(named) if !named.is_empty() => Ok(named.to_owned()),
        _ if context.project_id.is_empty() => {
            Err(malformed("Running without keystone AuthN requires that tenant_id is specified"))
        }
        _ => Ok(context.project_id.clone()),
    }
}

/// The body of a new thing, with its defaults.
pub(crate) fn of_new(
    table: &[Attribute],
    kind: &str,
    context: &Context,
    sent: &Body,
) -> Result<Body, Fault> {
    known(table, sent, &["project_id", "tenant_id"])?;
    let mut body = Map::new();
    for attribute in table {
        let name = attribute.name;
        let value = match (sent.get(name), attribute.default) {
            (Some(value), _) => set(attribute, &format!("create_{kind}"), context, value)?,
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

/// What is set anew of a thing that is there.
pub(crate) fn of_change(
    table: &[Attribute],
    kind: &str,
    context: &Context,
    sent: &Body,
) -> Result<Body, Fault> {
    known(table, sent, &[])?;
    let mut body = Map::new();
    for (name, value) in sent {
        let Some(attribute) = table.iter().find(|attribute| attribute.name == *name) else {
            continue;
        };
        if attribute.on == On::Post {
            return Err(malformed(format!("Cannot update read-only attribute {name}")));
        }
        body.insert(name.clone(), set(attribute, &format!("update_{kind}"), context, value)?);
    }
    Ok(body)
}

fn known(table: &[Attribute], sent: &Body, more: &[&str]) -> Result<(), Fault> {
    let is_known = |name: &str| table.iter().any(|a| a.name == name) || more.contains(&name);
    let unknown: Vec<&str> =
        sent.keys().map(String::as_str).filter(|name| !is_known(name)).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    Err(malformed(format!("Unrecognized attribute(s) '{}'", unknown.join(", ").escape_debug())))
}

fn set(
    attribute: &Attribute,
    rule: &str,
    context: &Context,
    value: &Value,
) -> Result<Value, Fault> {
    let value = (attribute.check)(value).map_err(|why| invalid_value(attribute.name, why))?;
    let default = attribute.default.map(|default| default());
    if attribute.admin && !context.is_admin() && default.as_ref() != Some(&value) {
        return Err(not_allowed(&format!("{rule}:{}", attribute.name)));
    }
    Ok(value)
}

/// Defaults.
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

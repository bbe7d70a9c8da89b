//! Attributes that administrators add. They are descriptive only: scheduling uses the host's
//! attributes. Reports do not change them.

use kilonova_store::Tx;
use kilonova_wire::time;
use serde_json::Value;
use uuid::Uuid;

use super::grammar::{coerced, shown};
use crate::Error;
use crate::db::attributes::{self, AttributeRow, NewAttribute};
use crate::db::deployables;

const FIELDS: [&str; 3] = ["deployable_id", "key", "value"];
const MAX_TEXT: usize = 65_535;

/// A validated attribute.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Draft {
    pub deployable_id: i64,
    pub name: String,
    pub value: String,
}

/// Reads the body of `POST /v2/attributes`, bare or wrapped in `attribute` as openstacksdk sends
/// it.
pub(crate) fn draft(body: &Value) -> Result<Draft, Error> {
    let body = body.get("attribute").filter(|inner| inner.is_object()).unwrap_or(body);
    let Some(fields) = body.as_object() else {
        return Err(Error::Invalid("An attribute must be an object.".into()));
    };
    if let Some(field) = fields.keys().find(|key| !FIELDS.contains(&key.as_str())) {
        let field = shown(field);
        return Err(Error::Invalid(format!("Unknown attribute: {field:?} of an attribute")));
    }
    let text = |field: &str| match fields.get(field).and_then(coerced) {
        Some(text) if text.len() <= MAX_TEXT && !text.chars().any(char::is_control) => Ok(text),
        _ => Err(Error::Invalid(format!(
            "{field} must be a printable string of at most {MAX_TEXT} bytes."
        ))),
    };
    let number = match fields.get("deployable_id") {
        Some(Value::Number(number)) => number.as_i64(),
        Some(Value::String(text)) => text.parse().ok(),
        _ => None,
    };
    let deployable_id = number.ok_or_else(|| {
        Error::Invalid("deployable_id must be the number of a deployable.".into())
    })?;
    Ok(Draft { deployable_id, name: text("key")?, value: text("value")? })
}

/// Stores a new attribute.
pub(crate) fn create(tx: &mut Tx<'_>, draft: &Draft) -> Result<AttributeRow, Error> {
    if !deployables::exists(tx, draft.deployable_id)? {
        return Err(Error::not_found("Deployable", "id", draft.deployable_id));
    }
    let Draft { deployable_id, name, value } = draft;
    let new = NewAttribute {
        deployable_id: *deployable_id,
        name: name.into(),
        value: value.into(),
        reported: false,
    };
    let inserted = attributes::insert(tx, &[new], time::now())?;
    let row = inserted.first().map(|uuid| attributes::by_uuid(tx, *uuid)).transpose()?.flatten();
    row.ok_or_else(|| Error::not_found("Attribute", "name", name))
}

/// Deletes an attribute that an administrator added.
pub(crate) fn delete(tx: &mut Tx<'_>, uuid: Uuid) -> Result<(), Error> {
    let row = attributes::by_uuid(tx, uuid)?
        .ok_or_else(|| Error::not_found("Attribute", "uuid", uuid))?;
    if row.reported {
        return Err(Error::Reported { uuid, name: row.name });
    }
    Ok(attributes::delete(tx, row.id)?)
}

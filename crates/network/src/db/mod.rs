//! The SQL of the network service.

pub(crate) mod changes;
pub(crate) mod groups;
pub(crate) mod networks;
pub(crate) mod ports;
pub(crate) mod quotas;
mod schema;
pub(crate) mod subnets;

use kilonova_store::{Error, Row, Value};
use newtype_uuid::TypedUuidKind;

use crate::record::{Body, Record};

pub use schema::MIGRATIONS;

/// Every statement of this service; tests prepare them on each database.
pub fn statements() -> Vec<&'static [(&'static str, &'static str)]> {
    vec![
        networks::STATEMENTS,
        subnets::STATEMENTS,
        ports::STATEMENTS,
        groups::STATEMENTS,
        quotas::STATEMENTS,
        changes::STATEMENTS,
        crate::ledger::AUDIT,
        crate::ledger::HOSTS,
        crate::ledger::SHOW,
    ]
}

/// Reads the columns `id, project_id, body, revision, created_at, updated_at`, starting at `at`.
fn record<K: TypedUuidKind>(row: &Row, at: usize) -> Result<Record<K>, Error> {
    Ok(Record {
        id: row.id(at)?,
        project: row.string(at + 1)?,
        body: serde_json::from_str(row.text(at + 2)?)
            .map_err(|error| Error::Shape(format!("network resource: {error}")))?,
        revision: row.int(at + 3)?,
        created_at: row.int(at + 4)?,
        updated_at: row.int(at + 5)?,
    })
}

fn text(body: &Body) -> Result<Value, Error> {
    serde_json::to_string(body).map(Value::Text).map_err(|error| Error::Shape(error.to_string()))
}

//! The SQL of the network service. No other module contains a statement or runs one.

/// The columns of a [`Record`] in the table with this alias.
macro_rules! record_columns {
    ($table:literal) => {
        concat!(
            $table,
            ".id, ",
            $table,
            ".project_id, ",
            $table,
            ".body, ",
            $table,
            ".revision, ",
            $table,
            ".created_at, ",
            $table,
            ".updated_at"
        )
    };
}

mod audit;
pub(crate) mod changes;
pub(crate) mod filters;
pub(crate) mod floating;
pub(crate) mod groups;
pub(crate) mod networks;
pub(crate) mod ports;
pub(crate) mod quotas;
pub(crate) mod router_hosts;
pub(crate) mod routers;
mod schema;
pub(crate) mod server_ports;
pub(crate) mod subnets;

use kilonova_store::{Error, Row, Tx, Value, listed};
use newtype_uuid::TypedUuidKind;

use crate::record::{Body, Record};

pub use audit::AUDIT;
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
        filters::STATEMENTS,
        server_ports::STATEMENTS,
        routers::STATEMENTS,
        router_hosts::STATEMENTS,
        floating::STATEMENTS,
        AUDIT,
    ]
}

/// Maximum number of ids in one statement.
const BATCH: usize = 100;

/// Runs a statement with a list `({})` for these ids, in batches, and returns all rows.
fn rows_in<T: Into<Value>>(
    tx: &mut Tx<'_>,
    sql: &str,
    ids: impl IntoIterator<Item = T>,
) -> Result<Vec<Row>, Error> {
    let ids: Vec<Value> = ids.into_iter().map(Into::into).collect();
    let mut rows = Vec::new();
    for batch in ids.chunks(BATCH) {
        rows.extend(tx.rows(&listed(sql, batch.len()), batch)?);
    }
    Ok(rows)
}

/// Announces [`rows_in`].
fn expect_in<T: Into<Value>>(
    tx: &mut Tx<'_>,
    sql: &str,
    ids: impl IntoIterator<Item = T>,
) -> Result<(), Error> {
    let ids: Vec<Value> = ids.into_iter().map(Into::into).collect();
    ids.chunks(BATCH).try_for_each(|batch| tx.expect(&listed(sql, batch.len()), batch))
}

/// Reads the columns of `record_columns!`.
fn record<K: TypedUuidKind>(row: &Row) -> Result<Record<K>, Error> {
    Ok(Record {
        id: row.id("id")?,
        project: row.string("project_id")?,
        body: parse(row.text("body")?)?,
        revision: row.int("revision")?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
    })
}

/// Parses a stored body.
fn parse(body: &str) -> Result<Body, Error> {
    serde_json::from_str(body).map_err(|error| Error::Shape(format!("network resource: {error}")))
}

fn text(body: &Body) -> Result<Value, Error> {
    serde_json::to_string(body).map(Value::Text).map_err(|error| Error::Shape(error.to_string()))
}

//! The SQL of the identity service: one file per table, with named statements and the functions that
//! run them. Nothing here enforces policy.

pub(crate) mod assignments;
pub(crate) mod catalog;
pub(crate) mod credentials;
pub(crate) mod domains;
pub(crate) mod groups;
pub(crate) mod keys;
pub(crate) mod limits;
pub(crate) mod lockouts;
pub(crate) mod projects;
pub(crate) mod revocations;
pub(crate) mod roles;
mod schema;
pub(crate) mod secrets;
pub(crate) mod trusts;
pub(crate) mod users;

pub use schema::MIGRATIONS;

/// Every statement of this service; tests prepare them on each database.
pub fn statements() -> Vec<&'static [(&'static str, &'static str)]> {
    vec![
        assignments::STATEMENTS,
        catalog::STATEMENTS,
        credentials::STATEMENTS,
        domains::STATEMENTS,
        groups::STATEMENTS,
        keys::STATEMENTS,
        limits::STATEMENTS,
        lockouts::STATEMENTS,
        projects::STATEMENTS,
        revocations::STATEMENTS,
        roles::STATEMENTS,
        secrets::STATEMENTS,
        trusts::STATEMENTS,
        users::STATEMENTS,
    ]
}

/// Parses a JSON column.
pub(crate) fn json(text: &str) -> Result<serde_json::Value, kilonova_store::Error> {
    serde_json::from_str(text).map_err(|e| kilonova_store::Error::Shape(e.to_string()))
}

/// Parses a JSON column that contains an object.
pub(crate) fn object(
    text: &str,
) -> Result<serde_json::Map<String, serde_json::Value>, kilonova_store::Error> {
    serde_json::from_str(text).map_err(|e| kilonova_store::Error::Shape(e.to_string()))
}

/// Serializes an object for a JSON column.
pub(crate) fn text(object: &serde_json::Map<String, serde_json::Value>) -> String {
    serde_json::Value::Object(object.clone()).to_string()
}

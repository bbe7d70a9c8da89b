//! The SQL of the identity service: one file per table, named statements and the functions that
//! run them. Nothing here decides who may do what.

pub(crate) mod assignments;
pub(crate) mod catalog;
pub(crate) mod credentials;
pub(crate) mod groups;
pub(crate) mod lockouts;
pub(crate) mod projects;
pub(crate) mod revocations;
pub(crate) mod roles;
mod schema;
pub(crate) mod trusts;
pub(crate) mod users;

pub use schema::MIGRATIONS;

/// Every statement of this service, to be prepared on each database in a test.
pub fn statements() -> Vec<&'static [(&'static str, &'static str)]> {
    vec![
        assignments::STATEMENTS,
        catalog::STATEMENTS,
        credentials::STATEMENTS,
        groups::STATEMENTS,
        lockouts::STATEMENTS,
        projects::STATEMENTS,
        revocations::STATEMENTS,
        roles::STATEMENTS,
        trusts::STATEMENTS,
        users::STATEMENTS,
    ]
}

/// A JSON text column.
pub(crate) fn json(text: &str) -> Result<serde_json::Value, kilonova_store::Error> {
    serde_json::from_str(text).map_err(|e| kilonova_store::Error::Shape(e.to_string()))
}

/// A JSON text column that holds an object.
pub(crate) fn object(
    text: &str,
) -> Result<serde_json::Map<String, serde_json::Value>, kilonova_store::Error> {
    serde_json::from_str(text).map_err(|e| kilonova_store::Error::Shape(e.to_string()))
}

/// An object as a JSON text column.
pub(crate) fn text(object: &serde_json::Map<String, serde_json::Value>) -> String {
    serde_json::Value::Object(object.clone()).to_string()
}

//! The SQL of the identity service: one file per table, named statements and the functions that
//! run them. Nothing here decides who may do what.

pub(crate) mod assignments;
pub(crate) mod credentials;
pub(crate) mod projects;
pub(crate) mod revocations;
pub(crate) mod roles;
mod schema;
pub(crate) mod users;

pub use schema::MIGRATIONS;

/// Every statement of this service, to be prepared on each database in a test.
pub fn statements() -> Vec<&'static [(&'static str, &'static str)]> {
    vec![
        assignments::STATEMENTS,
        credentials::STATEMENTS,
        projects::STATEMENTS,
        revocations::STATEMENTS,
        roles::STATEMENTS,
        users::STATEMENTS,
    ]
}

/// A JSON text column.
pub(crate) fn json(text: &str) -> Result<serde_json::Value, kilonova_store::Error> {
    serde_json::from_str(text).map_err(|e| kilonova_store::Error::Shape(e.to_string()))
}

//! The SQL of the image service.

pub(crate) mod images;
pub(crate) mod members;
mod schema;
pub(crate) mod uploads;

pub use schema::MIGRATIONS;

/// Every statement of this service; tests prepare them on each database.
pub fn statements() -> Vec<&'static [(&'static str, &'static str)]> {
    vec![images::STATEMENTS, members::STATEMENTS, uploads::STATEMENTS]
}

//! The SQL of the image service.

pub(crate) mod images;
pub(crate) mod members;
mod schema;

pub use schema::MIGRATIONS;

/// Every statement of this service, to be prepared on each database in a test.
pub fn statements() -> Vec<&'static [(&'static str, &'static str)]> {
    vec![images::STATEMENTS, members::STATEMENTS]
}

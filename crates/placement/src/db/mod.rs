//! The SQL of this service and the rows it yields. Nothing here decides anything: what a row means
//! is for `app` and `ledger` to say.

pub mod aggregates;
pub mod changes;
pub mod classes;
pub mod consumers;
pub mod copies;
pub mod drains;
pub mod inventories;
pub mod providers;
pub mod schema;
pub mod traits;
pub mod trees;

/// Every statement list of this service, for a test that prepares each on both databases.
pub fn statements() -> Vec<&'static [(&'static str, &'static str)]> {
    vec![
        aggregates::STATEMENTS,
        changes::STATEMENTS,
        classes::STATEMENTS,
        consumers::STATEMENTS,
        copies::STATEMENTS,
        drains::STATEMENTS,
        inventories::STATEMENTS,
        providers::STATEMENTS,
        traits::STATEMENTS,
        trees::STATEMENTS,
        crate::AUDIT,
    ]
}

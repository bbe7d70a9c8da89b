//! The SQL of this service and its row types. This module makes no decisions: `app` and `ledger`
//! interpret the rows.

pub mod aggregates;
pub mod audit;
pub mod classes;
pub mod consumers;
pub mod copies;
pub mod drains;
pub mod inventories;
pub mod providers;
pub mod schema;
pub mod traits;
pub mod trees;

/// All statement lists of this service. A test prepares each statement on both databases.
pub fn statements() -> Vec<&'static [(&'static str, &'static str)]> {
    vec![
        aggregates::STATEMENTS,
        classes::STATEMENTS,
        consumers::STATEMENTS,
        copies::STATEMENTS,
        drains::STATEMENTS,
        inventories::STATEMENTS,
        providers::STATEMENTS,
        traits::STATEMENTS,
        trees::STATEMENTS,
        audit::AUDIT,
    ]
}

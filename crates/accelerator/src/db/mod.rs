//! The SQL of this service, about one file per table. No other module contains a statement or runs
//! one. No rule lives here: `app` and `ledger` enforce them.

pub(crate) mod arqs;
pub(crate) mod attributes;
mod audit;
pub(crate) mod awaiting;
pub(crate) mod census;
pub(crate) mod changes;
pub(crate) mod deployables;
pub(crate) mod devices;
pub(crate) mod events;
pub(crate) mod excluded;
pub(crate) mod floor;
pub(crate) mod handles;
pub(crate) mod health;
pub(crate) mod history;
pub(crate) mod islands;
pub(crate) mod mig;
pub(crate) mod near;
pub(crate) mod orders;
pub(crate) mod parked;
pub(crate) mod profiles;
pub(crate) mod withheld;

pub use audit::AUDIT;

/// Every statement of this service. A test prepares each on both databases.
pub fn statements() -> Vec<&'static [(&'static str, &'static str)]> {
    vec![
        AUDIT,
        arqs::STATEMENTS,
        attributes::STATEMENTS,
        awaiting::STATEMENTS,
        census::STATEMENTS,
        changes::STATEMENTS,
        deployables::STATEMENTS,
        devices::STATEMENTS,
        events::STATEMENTS,
        excluded::STATEMENTS,
        floor::STATEMENTS,
        handles::STATEMENTS,
        health::STATEMENTS,
        history::STATEMENTS,
        islands::STATEMENTS,
        mig::STATEMENTS,
        near::STATEMENTS,
        orders::STATEMENTS,
        parked::STATEMENTS,
        profiles::STATEMENTS,
        withheld::STATEMENTS,
    ]
}

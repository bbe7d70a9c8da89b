//! The SQL of this service, one file per table. No rule lives here: `app` and `ledger` enforce
//! them.

pub(crate) mod arqs;
pub(crate) mod attributes;
pub(crate) mod changes;
pub(crate) mod deployables;
pub(crate) mod devices;
pub(crate) mod events;
pub(crate) mod handles;
pub(crate) mod orders;
pub(crate) mod parked;
pub(crate) mod profiles;

/// Every statement of this service. A test prepares each on both databases.
pub fn statements() -> Vec<&'static [(&'static str, &'static str)]> {
    vec![
        arqs::STATEMENTS,
        attributes::STATEMENTS,
        changes::STATEMENTS,
        deployables::STATEMENTS,
        devices::STATEMENTS,
        events::STATEMENTS,
        handles::STATEMENTS,
        orders::STATEMENTS,
        parked::STATEMENTS,
        profiles::STATEMENTS,
        crate::ledger::AUDIT,
        crate::ledger::CENSUS,
        crate::ledger::EXCLUDED,
        crate::ledger::HEALTH,
        crate::ledger::HISTORY,
    ]
}

//! The SQL of this service, roughly one file per table. No other module contains or runs a statement.
//! This module must never enforce a rule of the service: `app` and `ledger` do that.

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

use kilonova_ids::ascending;
use newtype_uuid::GenericUuid;
use uuid::Uuid;

/// The bits of an ascending id after its variant.
const TAIL: u128 = (1 << 62) - 1;

/// Ids of rows that are inserted together: a new ascending id and its successors. The random bits
/// are drawn once for all of them, because a report has hundreds of rows.
pub(crate) fn consecutive<T: GenericUuid>() -> impl Iterator<Item = T> {
    let first = ascending::<Uuid>().as_u128();
    (0..).map(move |n| {
        let tail = (first & TAIL).wrapping_add(n) & TAIL;
        T::from_untyped_uuid(Uuid::from_u128((first & !TAIL) | tail))
    })
}

/// Every statement of this service. A test prepares each one on both databases.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kilonova_ids::{AttachHandleId, ascending};
    use uuid::{Uuid, Variant};

    use super::consecutive;

    #[test]
    fn consecutive_ids_ascend_and_follow_earlier_ones() {
        let earlier: AttachHandleId = ascending();
        let ids: Vec<Uuid> = consecutive::<Uuid>().take(1000).collect();
        assert!(ids.is_sorted() && ids.iter().collect::<BTreeSet<_>>().len() == 1000);
        assert!(ids[0].to_string() > earlier.to_string());
        for id in ids {
            assert_eq!((id.get_version_num(), id.get_variant()), (4, Variant::RFC4122));
        }
    }
}

//! Mutual exclusion on one card: between the card itself and its virtual functions, between a
//! function that is passed through and its mediated devices, and between the vGPU types of a card
//! that can have only one at a time.
//!
//! The first assignment decides. The choice of a handle enforces this; the functions here update
//! Placement in the same transaction, so that the scheduler offers only available handles.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_placement::{World, ledger as placement};
use kilonova_store::Tx;

use crate::Error;
use crate::db::handles::{HandleKey, MixedCard};
use crate::db::withheld;
use crate::states::AttachType;

/// Updates the reserved amounts of the cards' providers in Placement. The number of round trips
/// does not depend on the number of cards or handles.
pub(crate) fn update_exclusions(
    tx: &mut Tx<'_>,
    world: &World,
    cards: impl IntoIterator<Item = MixedCard>,
) -> Result<(), Error> {
    let cards: BTreeSet<MixedCard> = cards.into_iter().collect();
    if cards.is_empty() {
        return Ok(());
    }
    let withheld = withheld::each(tx, [], &cards)?;
    Ok(placement::reserve_each(tx, world, &withheld)?)
}

/// True if these handles have different vGPU types.
pub(super) fn has_types<'a>(handles: impl Iterator<Item = &'a HandleKey>) -> bool {
    let mut types = handles.map(|key| &key.mdev_type).filter(|one| !one.is_empty());
    let first = types.next();
    types.any(|one| Some(one) != first)
}

/// True if some of these handles of one card exclude each other.
pub(super) fn is_mixed<'a>(
    card: &str,
    handles: impl Iterator<Item = &'a HandleKey> + Clone,
) -> bool {
    let mut real = handles.filter(|key| key.attach_type != AttachType::TestPci);
    let own = |key: &HandleKey| key.address == card;
    let (mut on_card, mut on_parts) = (false, false);
    let mut whole: BTreeMap<&str, &HandleKey> = BTreeMap::new();
    let mut cut: BTreeSet<&str> = BTreeSet::new();
    real.any(|key| {
        if own(key) {
            on_card = true;
        } else {
            on_parts = true;
        }
        let address = key.address.as_str();
        let is_shared = match key.attach_type {
            AttachType::Mdev => {
                cut.insert(address);
                whole.contains_key(address)
            }
            // Two handles of one function, such as for two vGPU types, exclude each other.
            AttachType::Pci | AttachType::TestPci | AttachType::Vfio => {
                whole.insert(address, key).is_some_and(|other| other != key)
                    || cut.contains(address)
            }
        };
        (on_card && on_parts) || is_shared
    })
}

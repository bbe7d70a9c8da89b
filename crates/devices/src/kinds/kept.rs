//! Cards that are kept for one of their types (`[mdev_<type>] min_instances`).
//!
//! The choice depends on the options and on what the cards can hold, not on their guests, so that it
//! is the same in every scan.

use std::collections::BTreeMap;

use crate::MdevConfig;
use crate::collector::DeviceProblem;

/// The capacity of each empty card, by address and type: vGPUs, or virtual functions where the driver does not say how
/// many vGPUs an empty card holds.
pub(super) type Capacity = BTreeMap<String, BTreeMap<String, u32>>;

/// The type of each kept card. For each type with a minimum, cards that have no other type count first; then the first
/// cards by address are kept. `is_theirs` is true for types that the cards may have.
pub(super) fn kept(
    config: &MdevConfig,
    capacity: &Capacity,
    is_theirs: impl Fn(&str) -> bool,
    problems: &mut Vec<DeviceProblem>,
) -> BTreeMap<String, String> {
    let mut kept: BTreeMap<String, String> = BTreeMap::new();
    for (mdev_type, least) in config.minimums().iter().filter(|(one, _)| is_theirs(one)) {
        let room = |types: &BTreeMap<String, u32>| types.get(mdev_type).copied().unwrap_or(0);
        let only = capacity.values().filter(|types| types.len() == 1);
        let mut sum: u32 = only.map(room).fold(0, u32::saturating_add);
        for (card, types) in capacity.iter().filter(|(_, types)| types.len() > 1) {
            if sum >= *least {
                break;
            }
            if room(types) > 0 && !kept.contains_key(card) {
                kept.insert(card.clone(), mdev_type.clone());
                sum = sum.saturating_add(room(types));
            }
        }
        // Mediated devices, VFIO functions and MIG mode count their own cards: without any, they report no problem.
        if sum < *least && !capacity.is_empty() {
            let reason = format!("min_instances = {least}, but its cards hold only {sum}");
            problems.push(DeviceProblem::note(&format!("[mdev_{mdev_type}]"), reason));
        }
    }
    kept
}

//! All trees, each in a slot. Chunks of a fixed number of slots are copied on write.
//!
//! A chunk records, for each class, the maximum room of any provider in it, so that a search skips full
//! regions of the cloud without examining each tree. Slots of removed trees are reused.

use std::sync::Arc;

use super::compact::{CompactTree, raise};
use crate::intern::Name;

/// Trees per chunk. Copying this many pointers must be cheap, and so must copying the list of
/// chunks of a large cloud.
pub(crate) const CHUNK: usize = 64;

/// The position of a tree in the forest.
pub(crate) type Slot = usize;

#[derive(Debug, Clone, Default)]
pub(crate) struct Chunk {
    trees: Vec<Option<Arc<CompactTree>>>,
    max_room: Vec<(Name, i64)>,
}

impl Chunk {
    pub(crate) fn max_room(&self) -> &[(Name, i64)] {
        &self.max_room
    }

    fn update_max_room(&mut self) {
        self.max_room.clear();
        for tree in self.trees.iter().flatten() {
            for (class, room) in tree.max_room() {
                raise(&mut self.max_room, *class, *room);
            }
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Forest {
    chunks: Arc<Vec<Arc<Chunk>>>,
    vacant: Arc<Vec<Slot>>,
    slots: usize,
    /// The slots whose trees are folded here, but not in the forest that this one [copies](Forest::copy_slots_from);
    /// sorted.
    folded: Arc<Vec<Slot>>,
}

impl Forest {
    /// One past the last slot that was ever used.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    pub(crate) fn len(&self) -> usize {
        self.slots - self.vacant.len()
    }

    pub(crate) fn chunk(&self, slot: Slot) -> Option<&Chunk> {
        self.chunks.get(slot / CHUNK).map(AsRef::as_ref)
    }

    pub(crate) fn get(&self, slot: Slot) -> Option<&CompactTree> {
        self.chunk(slot)?.trees.get(slot % CHUNK)?.as_deref()
    }

    /// The earlier and the present tree of each slot that does not hold the same object as in `earlier`.
    /// Compares the pointers of all chunks, and those of the trees in chunks that differ.
    pub(crate) fn changed_since<'a>(
        &'a self,
        earlier: &'a Self,
    ) -> impl Iterator<Item = (Option<&'a CompactTree>, Option<&'a CompactTree>)> {
        let chunks = self.chunks.len().max(earlier.chunks.len());
        let differs = |at: &usize| match (self.chunks.get(*at), earlier.chunks.get(*at)) {
            (Some(now), Some(then)) => !Arc::ptr_eq(now, then),
            (now, then) => now.is_some() || then.is_some(),
        };
        let slots = (0..chunks).filter(differs).flat_map(|at| at * CHUNK..(at + 1) * CHUNK);
        slots.filter_map(|slot| {
            let (now, then) = (self.get(slot), earlier.get(slot));
            let is_same = match (now, then) {
                (Some(now), Some(then)) => std::ptr::eq(now, then),
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            };
            (!is_same).then_some((then, now))
        })
    }

    pub(crate) fn arc(&self, slot: Slot) -> Option<Arc<CompactTree>> {
        self.chunk(slot)?.trees.get(slot % CHUNK)?.clone()
    }

    /// The number of folded trees.
    pub(crate) fn folded(&self) -> usize {
        self.folded.len()
    }

    /// Copies the assignment of slots from another forest. The caller then calls [`Forest::set_from`]
    /// for each tree that differs.
    pub(crate) fn copy_slots_from(&mut self, other: &Self) {
        (self.vacant, self.slots) = (Arc::clone(&other.vacant), other.slots);
    }

    /// Sets the tree of a slot that the other forest has assigned, and records whether the tree
    /// is folded.
    pub(crate) fn set_from(&mut self, slot: Slot, tree: Option<Arc<CompactTree>>, is_folded: bool) {
        match self.folded.binary_search(&slot) {
            Ok(at) if !is_folded => drop(Arc::make_mut(&mut self.folded).remove(at)),
            Err(at) if is_folded => Arc::make_mut(&mut self.folded).insert(at, slot),
            Ok(_) | Err(_) => {}
        }
        self.put(slot, tree);
    }

    /// Puts a tree into a free slot.
    pub(crate) fn add(&mut self, tree: CompactTree) -> Slot {
        let slot = if self.vacant.is_empty() {
            self.slots += 1;
            self.slots - 1
        } else {
            Arc::make_mut(&mut self.vacant).pop().unwrap_or_default()
        };
        self.put(slot, Some(Arc::new(tree)));
        slot
    }

    /// Replaces the tree in a slot.
    pub(crate) fn replace(&mut self, slot: Slot, tree: CompactTree) {
        self.put(slot, Some(Arc::new(tree)));
    }

    /// Empties a slot.
    pub(crate) fn remove(&mut self, slot: Slot) {
        if self.get(slot).is_some() {
            self.put(slot, None);
            Arc::make_mut(&mut self.vacant).push(slot);
        }
    }

    /// Changes a tree in place. `with` may change only the usage and the versions, because copies
    /// of a tree share its shape.
    pub(crate) fn change(&mut self, slot: Slot, with: impl FnOnce(&mut CompactTree)) {
        let chunks = Arc::make_mut(&mut self.chunks);
        let Some(chunk) = chunks.get_mut(slot / CHUNK) else { return };
        let chunk = Arc::make_mut(chunk);
        let Some(Some(tree)) = chunk.trees.get_mut(slot % CHUNK) else { return };
        with(Arc::make_mut(tree));
        chunk.update_max_room();
    }

    fn put(&mut self, slot: Slot, tree: Option<Arc<CompactTree>>) {
        let chunks = Arc::make_mut(&mut self.chunks);
        while chunks.len() <= slot / CHUNK {
            chunks.push(Arc::default());
        }
        let chunk = Arc::make_mut(&mut chunks[slot / CHUNK]);
        if chunk.trees.len() <= slot % CHUNK {
            chunk.trees.resize(slot % CHUNK + 1, None);
        }
        chunk.trees[slot % CHUNK] = tree;
        chunk.update_max_room();
    }
}

//! All provider trees at one moment. A clone copies a handful of pointers, and a change copies only
//! what it touches, so readers keep their version.
//!
//! The database, not a snapshot, is authoritative. A snapshot contains only committed state, except
//! for a scratch copy that is changed by [`Snapshot::add_usage`] or [`Snapshot::subtract_usage`].

mod cells;
mod compact;
mod forest;
mod index;

use std::sync::Arc;

use kilonova_ids::{ProviderId, ResourceClass};

pub use cells::{CELL_CLASSES, CELL_TRAIT, is_of_cell};
pub(crate) use compact::{CompactTree, Node, max_room_of};
pub(crate) use forest::{CHUNK, Forest, Slot};

use crate::explain::{Explanation, explain};
use crate::intern::Names;
use crate::model::{Candidate, Inventory, Provider, Tree};
use crate::query::{Query, QueryError};
use crate::search::Search;
use index::Index;

/// The slot of a provider's tree, and the provider's position in the tree.
pub(crate) type Location = (Slot, usize);

/// All provider trees; see the module documentation.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    pub(crate) names: Names,
    pub(crate) forest: Forest,
    /// Sharing providers; sorted.
    pub(crate) sharing: Arc<Vec<Location>>,
    locations: Index<Location>,
    roots: Index<Slot>,
}

impl Snapshot {
    /// Inserts a tree, or replaces the one with the same root. Ignores a tree without providers.
    pub fn upsert(&mut self, tree: Tree) {
        let Some(tree) = CompactTree::build(tree, &mut self.names) else { return };
        let root = tree.root().id;
        let ids: Vec<ProviderId> = tree.nodes().iter().map(|node| node.id).collect();
        let sharing = tree.shape.sharing.clone();
        let slot = match self.roots.get(root) {
            Some(slot) => {
                self.remove_locations(slot, &ids);
                self.forest.replace(slot, tree);
                slot
            }
            None => self.forest.add(tree),
        };
        self.roots.insert(root, slot);
        for (position, id) in ids.into_iter().enumerate() {
            self.locations.insert(id, (slot, position));
        }
        self.set_sharing(slot, &sharing);
    }

    /// Removes the tree with that root.
    pub fn remove(&mut self, root: ProviderId) {
        let Some(slot) = self.roots.get(root) else { return };
        self.remove_locations(slot, &[]);
        self.roots.remove(root);
        self.set_sharing(slot, &[]);
        self.forest.remove(slot);
    }

    /// The root of the tree that contains a provider.
    pub fn root_of(&self, provider: ProviderId) -> Option<ProviderId> {
        let (slot, _) = self.locations.get(provider)?;
        Some(self.forest.get(slot)?.root().id)
    }

    /// The tree with that root.
    pub fn tree(&self, root: ProviderId) -> Option<TreeView<'_>> {
        let tree = self.forest.get(self.roots.get(root)?)?;
        Some(TreeView { tree, names: &self.names })
    }

    /// The roots of all trees, in no particular order.
    pub fn roots(&self) -> impl Iterator<Item = ProviderId> + '_ {
        self.roots.keys()
    }

    /// The roots of the trees that may differ from those of an earlier or later snapshot of the same forest:
    /// changed, new and removed ones, in no particular order; a root may appear twice. The cost grows with the
    /// number of changes, and hardly with the number of trees.
    pub fn changed_since<'a>(
        &'a self,
        other: &'a Self,
    ) -> impl Iterator<Item = ProviderId> + use<'a> {
        let changed = self.forest.changed_since(&other.forest);
        changed.flat_map(|(then, now)| {
            let then = then.map(|tree| tree.root().id);
            let now = now.map(|tree| tree.root().id);
            [then.filter(|then| Some(*then) != now), now].into_iter().flatten()
        })
    }

    /// The number of trees.
    pub fn len(&self) -> usize {
        self.forest.len()
    }

    /// True if there are no trees.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Records a provider's usage after a commit, in absolute amounts; other classes keep theirs.
    /// Ignores a version ([`Provider::version`]) older than the known one, because commits may be
    /// reported in any order.
    pub fn set_usage(&mut self, provider: ProviderId, version: i64, used: &[(ResourceClass, i64)]) {
        let Some((slot, node)) = self.locations.get(provider) else { return };
        let known = self.forest.get(slot).map(|tree| tree.version(node));
        if known.is_none_or(|known| version < known) {
            return;
        }
        let used: Vec<_> =
            used.iter().map(|(class, n)| (self.names.classes.find(class), *n)).collect();
        self.forest.change(slot, |tree| tree.set_usage(node, version, &used));
    }

    /// Adds a candidate's amounts to the usage. Used on a scratch copy to pick several candidates jointly.
    pub fn add_usage(&mut self, candidate: &Candidate) {
        for (provider, class, amount) in &candidate.allocations {
            let Some((slot, node)) = self.locations.get(*provider) else { continue };
            let more = [(self.names.classes.find(class), *amount)];
            let node = self.holder(slot, node, more[0].0);
            self.forest.change(slot, |tree| tree.add_usage(node, &more));
        }
    }

    /// Subtracts from the usage the amounts that a consumer will release. Used on a scratch copy for
    /// planning.
    pub fn subtract_usage(&mut self, released: &[(ProviderId, ResourceClass, i64)]) {
        for (provider, class, amount) in released {
            let Some((slot, node)) = self.locations.get(*provider) else { continue };
            let less = [(self.names.classes.find(class), amount.saturating_neg())];
            let node = self.holder(slot, node, less[0].0);
            self.forest.change(slot, |tree| tree.add_usage(node, &less));
        }
    }

    /// Finds candidates for a query one at a time: first one from every tree, then a second from
    /// every tree, and so on, starting at a tree that the seed determines. Within a tree, the first
    /// candidate of each kind precedes those that differ from it only in interchangeable providers
    /// or groups. Without a limit every candidate appears exactly once, unless the search runs out of
    /// tries ([`Search::gave_up`]).
    ///
    /// # Errors
    /// Returns an error if the query is invalid. A query that merely cannot be met yields no
    /// candidates.
    pub fn search<'a>(&'a self, query: &'a Query) -> Result<Search<'a>, QueryError> {
        Search::new(self, query)
    }

    /// Explains how many trees each condition of a query removes.
    pub fn explain(&self, query: &Query) -> Explanation {
        explain(self, query)
    }

    /// The free amount of a class, regardless of `max_unit`.
    pub(crate) fn free(&self, provider: ProviderId, class: &ResourceClass) -> i64 {
        let Some((slot, node)) = self.locations.get(provider) else { return 0 };
        let class = self.names.classes.find(class);
        let inventory = self.forest.get(slot).and_then(|tree| tree.inventory(node, class));
        inventory.map_or(0, |inventory| inventory.capacity().saturating_sub(inventory.used).max(0))
    }

    pub(crate) fn slot_of(&self, provider: ProviderId) -> Option<Slot> {
        self.locations.get(provider).map(|(slot, _)| slot)
    }

    /// Drops the index entries of a slot's providers, except those in `staying` and those that have
    /// since moved to another tree.
    fn remove_locations(&mut self, slot: Slot, staying: &[ProviderId]) {
        let Some(tree) = self.forest.get(slot) else { return };
        let shape = Arc::clone(&tree.shape);
        if shape.nodes.iter().map(|node| node.id).eq(staying.iter().copied()) {
            return;
        }
        for node in &shape.nodes {
            let here = self.locations.get(node.id).is_some_and(|(at, _)| at == slot);
            if here && !staying.contains(&node.id) {
                self.locations.remove(node.id);
            }
        }
    }

    fn set_sharing(&mut self, slot: Slot, nodes: &[usize]) {
        let known = self.sharing.iter().filter(|(at, _)| *at == slot).map(|(_, node)| node);
        if known.eq(nodes) {
            return;
        }
        let sharing = Arc::make_mut(&mut self.sharing);
        sharing.retain(|(at, _)| *at != slot);
        sharing.extend(nodes.iter().map(|node| (slot, *node)));
        sharing.sort_unstable();
    }
}

/// A read-only view of one tree of a snapshot.
#[derive(Debug, Clone, Copy)]
pub struct TreeView<'a> {
    tree: &'a CompactTree,
    names: &'a Names,
}

impl<'a> TreeView<'a> {
    /// The root's id.
    pub fn root(&self) -> ProviderId {
        self.tree.root().id
    }

    /// Its providers with their present usage: the root first, parents before children.
    pub fn providers(&self) -> impl Iterator<Item = Provider> + use<'a> {
        self.tree.providers(self.names)
    }

    /// The same providers as views that copy nothing, for responses that list thousands of providers.
    pub fn nodes(&self) -> impl Iterator<Item = NodeView<'a>> + use<'a> {
        let Self { tree, names } = *self;
        (0..tree.nodes().len()).map(move |position| NodeView { tree, names, position })
    }

    /// Id, name, parent and version of its providers.
    pub fn outline(
        &self,
    ) -> impl Iterator<Item = (ProviderId, &'a Arc<str>, Option<ProviderId>, i64)> + use<'a> {
        let tree = self.tree;
        tree.nodes().iter().enumerate().map(move |(position, node)| {
            let parent = node.parent.map(|parent| tree.nodes()[parent].id);
            (node.id, &node.name, parent, tree.version(position))
        })
    }
}

/// A read-only view of one provider of a snapshot.
#[derive(Debug, Clone, Copy)]
pub struct NodeView<'a> {
    tree: &'a CompactTree,
    names: &'a Names,
    position: usize,
}

impl<'a> NodeView<'a> {
    fn node(&self) -> &'a Node {
        &self.tree.nodes()[self.position]
    }

    /// Its id.
    pub fn id(&self) -> ProviderId {
        self.node().id
    }

    /// Its name.
    pub fn name(&self) -> &'a str {
        &self.node().name
    }

    /// Its parent.
    pub fn parent(&self) -> Option<ProviderId> {
        self.node().parent.map(|parent| self.tree.nodes()[parent].id)
    }

    /// Its inventories with the present usage.
    pub fn inventories(&self) -> impl Iterator<Item = (&'a ResourceClass, Inventory)> + use<'a> {
        let names = self.names;
        self.tree
            .inventories(self.position)
            .filter_map(move |(class, inventory)| Some((names.classes.name(class)?, inventory)))
    }

    /// Its traits, in no particular order.
    pub fn traits(&self) -> impl Iterator<Item = &'a Arc<str>> + use<'a> {
        let names = self.names;
        self.node().traits.iter().filter_map(move |name| names.traits.name(*name))
    }
}

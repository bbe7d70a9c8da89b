//! All provider trees at one moment. Cloning is a handful of pointers; a change copies only what it
//! touches, so that readers go on with what they have.
//!
//! It must never be taken for the truth: the database is. It only ever holds what was committed,
//! except on a scratch copy that [`Snapshot::take`] is used on.

mod forest;
mod index;
mod planted;

use std::sync::Arc;

use kilonova_ids::ProviderId;

pub(crate) use forest::{CHUNK, Forest, Slot};
pub(crate) use planted::{Node, Planted, best_of};

use crate::explain::{Explanation, explain};
use crate::intern::Names;
use crate::model::{Candidate, Inventory, Provider, Tree};
use crate::query::{Query, QueryError};
use crate::search::Search;
use index::Index;

/// Where a provider is: slot of its tree, position in it.
pub(crate) type Place = (Slot, usize);

/// All provider trees; see the head of the module.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    pub(crate) names: Names,
    pub(crate) forest: Forest,
    /// Providers that lend to other trees; sorted.
    pub(crate) sharing: Arc<Vec<Place>>,
    places: Index<Place>,
    roots: Index<Slot>,
}

impl Snapshot {
    /// Puts a tree in, in place of the one with the same root. A tree without providers is nothing.
    pub fn upsert(&mut self, tree: Tree) {
        let Some(tree) = Planted::plant(tree, &mut self.names) else { return };
        let root = tree.root().id;
        let ids: Vec<ProviderId> = tree.nodes().iter().map(|node| node.id).collect();
        let sharing = tree.shape.sharing.clone();
        let slot = match self.roots.get(root) {
            Some(slot) => {
                self.forget(slot, &ids);
                self.forest.replace(slot, tree);
                slot
            }
            None => self.forest.add(tree),
        };
        self.roots.insert(root, slot);
        for (position, id) in ids.into_iter().enumerate() {
            self.places.insert(id, (slot, position));
        }
        self.set_sharing(slot, &sharing);
    }

    /// Takes the tree with that root out.
    pub fn remove(&mut self, root: ProviderId) {
        let Some(slot) = self.roots.get(root) else { return };
        self.forget(slot, &[]);
        self.roots.remove(root);
        self.set_sharing(slot, &[]);
        self.forest.remove(slot);
    }

    /// The root of the tree that a provider is in.
    pub fn root_of(&self, provider: ProviderId) -> Option<ProviderId> {
        let (slot, _) = self.places.get(provider)?;
        Some(self.forest.get(slot)?.root().id)
    }

    /// The tree with that root.
    pub fn tree(&self, root: ProviderId) -> Option<TreeView<'_>> {
        let tree = self.forest.get(self.roots.get(root)?)?;
        Some(TreeView { tree, names: &self.names })
    }

    /// The roots of all trees, in no order.
    pub fn roots(&self) -> impl Iterator<Item = ProviderId> + '_ {
        self.roots.keys()
    }

    /// How many trees there are.
    pub fn len(&self) -> usize {
        self.forest.len()
    }

    /// Whether there are no trees.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shows what is used of a provider after a commit: absolute amounts; classes that are not named
    /// stay. A generation older than the one that is known is ignored, for commits may be told in
    /// any order.
    pub fn set_usage(&mut self, provider: ProviderId, generation: i64, used: &[(&str, i64)]) {
        let Some((slot, node)) = self.places.get(provider) else { return };
        let known = self.forest.get(slot).map(|tree| tree.generation(node));
        if known.is_none_or(|known| generation < known) {
            return;
        }
        let used: Vec<_> = used.iter().map(|(class, n)| (self.names.find(class), *n)).collect();
        self.forest.change(slot, |tree| tree.set_usage(node, generation, &used));
    }

    /// Uses up what a candidate takes. For joint picks on a scratch copy.
    pub fn take(&mut self, candidate: &Candidate) {
        for (provider, class, amount) in &candidate.allocations {
            let Some((slot, node)) = self.places.get(*provider) else { continue };
            let more = [(self.names.find(class), *amount)];
            self.forest.change(slot, |tree| tree.add_usage(node, &more));
        }
    }

    /// Candidates for a query, found one at a time: one for every tree first, then a second for
    /// every tree, and so on, from a tree that the seed picks. Candidates of one tree that are alike
    /// but for interchangeable providers or groups come after the first of their kind. Without a
    /// limit every candidate comes exactly once.
    ///
    /// # Errors
    /// A query that makes no sense. One that merely cannot be met gives no candidates.
    pub fn search<'a>(&'a self, query: &'a Query) -> Result<Search<'a>, QueryError> {
        Search::new(self, query)
    }

    /// Which condition of a query stands in the way of how many trees.
    pub fn explain(&self, query: &Query) -> Explanation {
        explain(self, query)
    }

    /// What a provider can still give of a class, however large one request may be.
    pub(crate) fn free(&self, provider: ProviderId, class: &str) -> i64 {
        let Some((slot, node)) = self.places.get(provider) else { return 0 };
        let class = self.names.find(class);
        let inventory = self.forest.get(slot).and_then(|tree| tree.inventory(node, class));
        inventory.map_or(0, |inventory| inventory.capacity().saturating_sub(inventory.used).max(0))
    }

    pub(crate) fn slot_of(&self, provider: ProviderId) -> Option<Slot> {
        self.places.get(provider).map(|(slot, _)| slot)
    }

    /// Drops the places of a slot's providers, but for those that stay and those that have moved to
    /// another tree since.
    fn forget(&mut self, slot: Slot, staying: &[ProviderId]) {
        let Some(tree) = self.forest.get(slot) else { return };
        let shape = Arc::clone(&tree.shape);
        if shape.nodes.iter().map(|node| node.id).eq(staying.iter().copied()) {
            return;
        }
        for node in &shape.nodes {
            let here = self.places.get(node.id).is_some_and(|(at, _)| at == slot);
            if here && !staying.contains(&node.id) {
                self.places.remove(node.id);
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

/// A tree of a snapshot, to be read.
#[derive(Debug, Clone, Copy)]
pub struct TreeView<'a> {
    tree: &'a Planted,
    names: &'a Names,
}

impl<'a> TreeView<'a> {
    /// The root's id.
    pub fn root(&self) -> ProviderId {
        self.tree.root().id
    }

    /// Its providers as they are now: the root first, parents before children.
    pub fn providers(&self) -> impl Iterator<Item = Provider> + use<'a> {
        let Self { tree, names } = *self;
        tree.nodes().iter().enumerate().map(move |(position, node)| Provider {
            id: node.id,
            name: Arc::clone(&node.name),
            parent: node.parent.map(|parent| tree.nodes()[parent].id),
            generation: tree.generation(position),
            inventories: tree
                .inventories(position)
                .filter_map(|(class, inventory)| Some((Arc::clone(names.name(class)?), inventory)))
                .collect(),
            traits: node.traits.iter().filter_map(|t| names.name(*t).cloned()).collect(),
            aggregates: node.aggregates.to_vec(),
        })
    }

    /// The same to look at without copies, for answers that show thousands.
    pub fn nodes(&self) -> impl Iterator<Item = NodeView<'a>> + use<'a> {
        let Self { tree, names } = *self;
        (0..tree.nodes().len()).map(move |position| NodeView { tree, names, position })
    }

    /// Id, name, parent and generation of its providers, without the rest.
    pub fn outline(
        &self,
    ) -> impl Iterator<Item = (ProviderId, &'a Arc<str>, Option<ProviderId>, i64)> + use<'a> {
        let tree = self.tree;
        tree.nodes().iter().enumerate().map(move |(position, node)| {
            let parent = node.parent.map(|parent| tree.nodes()[parent].id);
            (node.id, &node.name, parent, tree.generation(position))
        })
    }
}

/// A provider of a snapshot, to be looked at.
#[derive(Debug, Clone, Copy)]
pub struct NodeView<'a> {
    tree: &'a Planted,
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

    /// The provider above it.
    pub fn parent(&self) -> Option<ProviderId> {
        self.node().parent.map(|parent| self.tree.nodes()[parent].id)
    }

    /// What it has and what is used of it now.
    pub fn inventories(&self) -> impl Iterator<Item = (&'a Arc<str>, Inventory)> + use<'a> {
        let names = self.names;
        self.tree
            .inventories(self.position)
            .filter_map(move |(class, inventory)| Some((names.name(class)?, inventory)))
    }

    /// Its traits, in no order.
    pub fn traits(&self) -> impl Iterator<Item = &'a Arc<str>> + use<'a> {
        let names = self.names;
        self.node().traits.iter().filter_map(move |name| names.name(*name))
    }
}

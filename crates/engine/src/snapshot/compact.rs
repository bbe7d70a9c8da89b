//! One tree in a snapshot's internal form: a shape that rarely changes, and columns that often change.
//!
//! The split makes a usage update cheap: a commit copies three short columns, and never the traits,
//! names or aggregates. A provider is identified by its position; the root's position is 0.

use std::collections::HashMap;
use std::sync::Arc;

use kilonova_ids::ProviderId;
use uuid::Uuid;

use crate::intern::{Name, Names, SHARES};
use crate::model::{Inventory, Provider, Tree};

/// A provider without its usage.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: ProviderId,
    pub(crate) name: Arc<str>,
    pub(crate) parent: Option<usize>,
    pub(crate) leaf: bool,
    /// Sorted.
    pub(crate) traits: Box<[Name]>,
    /// Sorted.
    pub(crate) aggregates: Box<[Uuid]>,
    stock: std::ops::Range<usize>,
}

impl Node {
    pub(crate) fn has_trait(&self, wanted: Name) -> bool {
        self.traits.binary_search(&wanted).is_ok()
    }

    pub(crate) fn in_aggregate(&self, wanted: &Uuid) -> bool {
        self.aggregates.binary_search(wanted).is_ok()
    }
}

#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) nodes: Box<[Node]>,
    /// Positions of the sharing providers.
    pub(crate) sharing: Box<[usize]>,
    /// Aggregates of all providers; sorted.
    pub(crate) aggregates: Box<[Uuid]>,
    /// The class of every inventory and its other values, in the order of the nodes. The field `used`
    /// of each inventory is ignored.
    stock: Box<[(Name, Inventory)]>,
}

/// A tree: its shape and its usage.
#[derive(Debug, Clone)]
pub(crate) struct CompactTree {
    pub(crate) shape: Arc<Shape>,
    versions: Box<[i64]>,
    used: Box<[i64]>,
    /// By class: the maximum room of any one provider; sorted by class.
    max_room: Box<[(Name, i64)]>,
}

impl CompactTree {
    /// `None` if the tree has no providers. The root becomes the parent of a provider whose parent
    /// is not in the tree.
    pub(crate) fn build(tree: Tree, names: &mut Names) -> Option<Self> {
        let shares = names.traits.intern(&SHARES.into());
        let mut positions = HashMap::new();
        let mut nodes = Vec::with_capacity(tree.providers.len());
        let (mut stock, mut used, mut versions) = (Vec::new(), Vec::new(), Vec::new());
        for (position, provider) in tree.providers.into_iter().enumerate() {
            let Provider { id, name, parent, version, inventories, traits, aggregates } = provider;
            let parent = match position {
                0 => None,
                _ => Some(parent.and_then(|id| positions.get(&id).copied()).unwrap_or(0)),
            };
            positions.insert(id, position);
            let start = stock.len();
            for (class, inventory) in inventories {
                used.push(inventory.used);
                stock.push((names.classes.intern(&class), inventory));
            }
            let mut traits: Vec<Name> =
                traits.iter().map(|name| names.traits.intern(name)).collect();
            traits.sort_unstable();
            traits.dedup();
            let aggregates = sorted(aggregates);
            let stock = start..stock.len();
            versions.push(version);
            let traits = traits.into();
            nodes.push(Node { id, name, parent, leaf: true, traits, aggregates, stock });
        }
        for position in 0..nodes.len() {
            if let Some(parent) = nodes[position].parent {
                nodes[parent].leaf = false;
            }
        }
        let is_sharing = |node: &Node| node.has_trait(shares) && !node.aggregates.is_empty();
        let sharing = (0..nodes.len()).filter(|&at| is_sharing(&nodes[at])).collect();
        let aggregates = sorted(nodes.iter().flat_map(|n| n.aggregates.iter().copied()).collect());
        let shape = Shape { nodes: nodes.into(), sharing, aggregates, stock: stock.into() };
        let mut compact = Self {
            shape: Arc::new(shape),
            versions: versions.into(),
            used: used.into(),
            max_room: Box::default(),
        };
        compact.update_max_room();
        (!compact.shape.nodes.is_empty()).then_some(compact)
    }

    pub(crate) fn nodes(&self) -> &[Node] {
        &self.shape.nodes
    }

    pub(crate) fn root(&self) -> &Node {
        &self.shape.nodes[0]
    }

    /// Its providers with their present usage, by position.
    pub(crate) fn providers<'a>(
        &'a self,
        names: &'a Names,
    ) -> impl Iterator<Item = Provider> + use<'a> {
        self.nodes().iter().enumerate().map(move |(position, node)| Provider {
            id: node.id,
            name: Arc::clone(&node.name),
            parent: node.parent.map(|parent| self.nodes()[parent].id),
            version: self.version(position),
            inventories: self
                .inventories(position)
                .filter_map(|(class, inventory)| {
                    Some((names.classes.name(class)?.clone(), inventory))
                })
                .collect(),
            traits: node.traits.iter().filter_map(|t| names.traits.name(*t).cloned()).collect(),
            aggregates: node.aggregates.to_vec(),
        })
    }

    pub(crate) fn version(&self, node: usize) -> i64 {
        self.versions[node]
    }

    pub(crate) fn max_room(&self) -> &[(Name, i64)] {
        &self.max_room
    }

    /// The inventory of a class with its present usage.
    pub(crate) fn inventory(&self, node: usize, class: Name) -> Option<Inventory> {
        self.inventories(node).find(|(known, _)| *known == class).map(|(_, inventory)| inventory)
    }

    pub(crate) fn inventories(
        &self,
        node: usize,
    ) -> impl Iterator<Item = (Name, Inventory)> + use<'_> {
        let range = self.shape.nodes[node].stock.clone();
        range.map(|at| {
            let (class, terms) = self.shape.stock[at];
            (class, Inventory { used: self.used[at], ..terms })
        })
    }

    /// True if `node` is `top` or a descendant of it.
    pub(crate) fn is_under(&self, node: usize, top: usize) -> bool {
        let mut at = Some(node);
        while let Some(here) = at {
            if here == top {
                return true;
            }
            at = self.shape.nodes[here].parent;
        }
        false
    }

    pub(crate) fn set_usage(&mut self, node: usize, version: i64, used: &[(Name, i64)]) {
        self.versions[node] = version;
        self.change(node, used, |_, new| new);
    }

    pub(crate) fn add_usage(&mut self, node: usize, more: &[(Name, i64)]) {
        self.change(node, more, |old, more| old + more);
    }

    fn change(&mut self, node: usize, amounts: &[(Name, i64)], to: impl Fn(i64, i64) -> i64) {
        for at in self.shape.nodes[node].stock.clone() {
            let class = self.shape.stock[at].0;
            if let Some((_, amount)) = amounts.iter().find(|(known, _)| *known == class) {
                self.used[at] = to(self.used[at], *amount);
            }
        }
        self.update_max_room();
    }

    fn update_max_room(&mut self) {
        let mut max_room = Vec::with_capacity(self.max_room.len());
        for (at, (class, terms)) in self.shape.stock.iter().enumerate() {
            raise(&mut max_room, *class, Inventory { used: self.used[at], ..*terms }.room());
        }
        self.max_room = max_room.into();
    }
}

fn sorted(mut aggregates: Vec<Uuid>) -> Box<[Uuid]> {
    aggregates.sort_unstable();
    aggregates.dedup();
    aggregates.into()
}

/// Enters a value into a list sorted by class, keeping the larger value of a class.
pub(crate) fn raise(max_room: &mut Vec<(Name, i64)>, class: Name, room: i64) {
    match max_room.binary_search_by_key(&class, |(class, _)| *class) {
        Ok(at) => max_room[at].1 = max_room[at].1.max(room),
        Err(at) => max_room.insert(at, (class, room)),
    }
}

/// Reads a list made by [`raise`]. A class that is not in it has no room.
pub(crate) fn max_room_of(max_room: &[(Name, i64)], class: Name) -> i64 {
    max_room.binary_search_by_key(&class, |(class, _)| *class).map_or(0, |at| max_room[at].1)
}

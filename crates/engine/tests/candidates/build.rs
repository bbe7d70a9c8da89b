//! Builders for forests and queries.

use kilonova_engine::{Group, Inventory, Provider, Query, Snapshot, Tree};
use kilonova_ids::{ProviderId, ResourceClass};
use uuid::Uuid;

pub fn id(number: u128) -> ProviderId {
    ProviderId::from_bytes(number.to_be_bytes())
}

pub fn class(name: &str) -> ResourceClass {
    ResourceClass::verbatim(name)
}

pub fn agg(number: u128) -> Uuid {
    Uuid::from_u128(0xa99_0000 + number)
}

pub fn stock(total: i64) -> Inventory {
    Inventory { max_unit: i64::from(i32::MAX), ..Inventory::of(total) }
}

pub fn provider(number: u128, parent: Option<u128>) -> Provider {
    Provider {
        id: id(number),
        name: format!("p{number}").into(),
        parent: parent.map(id),
        version: 0,
        inventories: Vec::new(),
        traits: Vec::new(),
        aggregates: Vec::new(),
    }
}

pub trait With: Sized {
    fn has(self, class: &str, total: i64) -> Self;
    fn is(self, name: &str) -> Self;
    fn within(self, aggregate: u128) -> Self;
}

impl With for Provider {
    fn has(mut self, class: &str, total: i64) -> Self {
        self.inventories.push((self::class(class), stock(total)));
        self
    }

    fn is(mut self, name: &str) -> Self {
        self.traits.push(name.into());
        self
    }

    fn within(mut self, aggregate: u128) -> Self {
        self.aggregates.push(agg(aggregate));
        self
    }
}

pub fn forest(trees: impl IntoIterator<Item = Vec<Provider>>) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for providers in trees {
        snapshot.upsert(Tree { providers });
    }
    snapshot
}

/// A host with VCPU and `gpus` equal children of `units` VGPU each. Ids start at `first`.
pub fn gpu_host(first: u128, gpus: u128, units: i64) -> Vec<Provider> {
    let mut tree = vec![provider(first, None).has("VCPU", 64).has("MEMORY_MB", 65_536)];
    tree.extend((1..=gpus).map(|n| provider(first + n, Some(first)).has("VGPU", units)));
    tree
}

/// `group("1", &[("VGPU", 1)])`; an empty suffix is the unsuffixed group.
pub fn group(suffix: &str, resources: &[(&str, i64)]) -> Group {
    Group {
        suffix: suffix.into(),
        resources: resources.iter().map(|(class, n)| (self::class(class), *n)).collect(),
        ..Group::default()
    }
}

pub fn query(groups: Vec<Group>) -> Query {
    Query { groups, ..Query::default() }
}

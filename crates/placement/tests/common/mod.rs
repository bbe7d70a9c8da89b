//! Shared by the tests of this crate: stores, hosts, the audit.

pub mod http;

use kilonova_engine::{Group, Inventory, Query};
use kilonova_ids::{ConsumerId, ProviderId};
use kilonova_placement::ledger::{Allocation, Claim, ProviderSpec};
use kilonova_placement::{AUDIT, MIGRATIONS, World};
use kilonova_store::Store;

pub async fn stores() -> Vec<(&'static str, Store, kilonova_testkit::Guard)> {
    kilonova_testkit::stores(&[MIGRATIONS]).await
}

pub fn inventory(total: i64) -> Inventory {
    Inventory {
        total,
        reserved: 0,
        min_unit: 1,
        max_unit: total,
        step_size: 1,
        allocation_ratio: 1.0,
        used: 0,
    }
}

pub fn spec(name: &str, inventories: &[(&str, i64)], traits: &[&str]) -> ProviderSpec {
    ProviderSpec {
        id: ProviderId::new_v4(),
        name: name.to_owned(),
        inventories: inventories.iter().map(|(c, n)| ((*c).to_owned(), inventory(*n))).collect(),
        traits: traits.iter().map(|t| (*t).to_owned()).collect(),
    }
}

pub fn claim_of(consumer: ConsumerId, parts: &[(ProviderId, &str, i64)]) -> Claim {
    Claim {
        consumer,
        consumer_type: Some("INSTANCE".into()),
        project_id: "p1".into(),
        user_id: "u1".into(),
        allocations: parts
            .iter()
            .map(|(provider, class, amount)| Allocation {
                provider: *provider,
                class: (*class).to_owned(),
                amount: *amount,
            })
            .collect(),
    }
}

/// Providers on which the snapshot finds room.
pub fn room(world: &World, class: &str, amount: i64) -> Vec<ProviderId> {
    let query = Query {
        groups: vec![Group { resources: vec![(class.to_owned(), amount)], ..Group::default() }],
        ..Query::default()
    };
    let snapshot = world.snapshot();
    let mut found: Vec<ProviderId> = snapshot
        .search(&query)
        .expect("the query is valid")
        .flat_map(|candidate| candidate.allocations)
        .map(|(provider, _, _)| provider)
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Panics with the violations of the audit.
pub async fn audited(store: &Store) {
    assert_eq!(kilonova_testkit::audit::broken(store, &[AUDIT]).await, Vec::<String>::new());
}

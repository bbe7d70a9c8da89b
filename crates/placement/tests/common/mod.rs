//! Shared by the tests of this crate: stores, hosts, the audit.

pub mod http;

use std::sync::{Arc, Mutex};

use kilonova_changes::{Applied, Entry, Followed, Follower, Subscriber};
use kilonova_engine::{Group, Inventory, Query};
use kilonova_ids::{ConsumerId, ProviderId, ResourceClass};
use kilonova_placement::ledger::{Allocation, Claim, ProviderSpec};
use kilonova_placement::{AUDIT, MIGRATIONS, World};
use kilonova_store::Store;

pub async fn stores() -> Vec<(&'static str, Store, kilonova_testkit::Guard)> {
    kilonova_testkit::stores(&[MIGRATIONS]).await
}

pub fn inventory(total: i64) -> Inventory {
    Inventory::of(total)
}

pub fn spec(name: &str, inventories: &[(&str, i64)], traits: &[&str]) -> ProviderSpec {
    ProviderSpec {
        id: ProviderId::new_v4(),
        name: name.to_owned(),
        inventories: inventories
            .iter()
            .map(|(c, n)| (ResourceClass::verbatim(*c), inventory(*n)))
            .collect(),
        initial_ratios: Vec::new(),
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
                class: ResourceClass::verbatim(*class),
                amount: *amount,
            })
            .collect(),
    }
}

/// Providers on which the snapshot finds room.
pub fn room(world: &World, class: &str, amount: i64) -> Vec<ProviderId> {
    let query = Query {
        groups: vec![Group {
            resources: vec![(ResourceClass::verbatim(class), amount)],
            ..Group::default()
        }],
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

/// A copy that follows the change log of a database.
pub struct Replica {
    pub world: World,
    follower: Follower,
    read: Arc<Mutex<Vec<ProviderId>>>,
}

/// The trees that a copy read again.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    Trees(Vec<ProviderId>),
    Everything,
}

struct Recording {
    world: World,
    store: Store,
    read: Arc<Mutex<Vec<ProviderId>>>,
}

impl Subscriber for Recording {
    fn apply<'a>(&'a self, entries: &'a [Entry]) -> Applied<'a> {
        Box::pin(async move {
            let trees = self.world.follow(&self.store, entries).await?;
            self.read.lock().expect("no panic").extend(trees);
            Ok(())
        })
    }

    fn reload(&self) -> Applied<'_> {
        Box::pin(async move { Ok(self.world.load(&self.store).await?) })
    }
}

impl Replica {
    /// A copy of the database's present content.
    pub async fn of(store: &Store) -> Self {
        let mut follower = Follower::open(store).await.expect("the log is read");
        let (world, read) = (World::new(), Arc::default());
        world.load(store).await.expect("the copy is loaded");
        let (store, of) = (store.clone(), Arc::clone(&read));
        follower.subscribe(Arc::new(Recording { world: world.clone(), store, read: of }));
        Self { world, follower, read }
    }

    /// Polls once.
    pub async fn follow(&mut self) -> News {
        match self.follower.poll().await.expect("the poll succeeds") {
            Followed::Entries(_) => {
                News::Trees(std::mem::take(&mut self.read.lock().expect("no panic")))
            }
            Followed::Everything(_) => News::Everything,
        }
    }
}

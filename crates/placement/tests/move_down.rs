//! An inventory that moves from a host's root provider to its children, with its allocations.

use std::collections::BTreeMap;

use kilonova_ids::{ConsumerId, ProviderId};
use kilonova_placement::ledger::{self, ProviderSpec};
use kilonova_placement::{Error, World};
use kilonova_store::{Store, params};

use crate::common::{audited, claim_of, inventory, room, spec, stores};

struct Host {
    store: Store,
    world: World,
    root: ProviderSpec,
}

impl Host {
    async fn reports(&self, children: &[ProviderSpec]) {
        let (world, root, children) = (self.world.clone(), self.root.clone(), children.to_vec());
        self.store
            .write(move |tx| ledger::report_host(tx, &world, &root, &children))
            .await
            .expect("the report is applied");
        audited(&self.store).await;
        let fresh = World::new();
        fresh.load(&self.store).await.expect("the copy is loaded");
        for units in 1..4 {
            assert_eq!(room(&fresh, "VGPU", units), room(&self.world, "VGPU", units));
        }
    }

    async fn claims(&self, units: i64) -> ConsumerId {
        let (world, id) = (self.world.clone(), ConsumerId::new_v4());
        let claim = claim_of(id, &[(self.root.id, "VCPU", 1), (self.root.id, "VGPU", units)]);
        let done = self.store.write(move |tx| ledger::claim(tx, &world, &claim)).await;
        done.unwrap_or_else(|error: Error| panic!("{error}"));
        id
    }

    /// The VGPU allocations of a consumer, by provider.
    async fn vgpus(&self, id: ConsumerId) -> BTreeMap<ProviderId, i64> {
        let sql = "SELECT provider_id, used FROM allocations WHERE consumer_id = ?1
            AND class = 'VGPU'";
        let read = move |tx: &mut kilonova_store::Tx<'_>| -> Result<_, Error> {
            let rows = tx.rows(sql, params![id])?;
            rows.iter().map(|row| Ok((row.id("provider_id")?, row.int("used")?))).collect()
        };
        self.store.read(read).await.expect("the query succeeds")
    }

    /// The reserved amount of the root's VGPU inventory, if it exists.
    async fn left(&self) -> Option<i64> {
        let root = self.root.id;
        let sql = "SELECT reserved FROM inventories WHERE provider_id = ?1 AND class = 'VGPU'";
        let read = move |tx: &mut kilonova_store::Tx<'_>| -> Result<_, Error> {
            Ok(tx.row(sql, params![root])?.map(|row| row.int("reserved")).transpose()?)
        };
        self.store.read(read).await.expect("the query succeeds")
    }
}

/// A host that reported `units` VGPUs on its root provider and now reports none there.
async fn hosts(units: i64) -> Vec<(Host, kilonova_testkit::Guard)> {
    let mut all = Vec::new();
    for (_, store, guard) in stores().await {
        let (world, root) = (World::new(), spec("h1", &[("VCPU", 8), ("VGPU", units)], &[]));
        let host = Host { store, world, root };
        host.reports(&[]).await;
        all.push((host, guard));
    }
    all
}

fn now_without(mut host: Host) -> Host {
    host.root.inventories.retain(|(class, _)| class != "VGPU");
    host
}

#[tokio::test]
async fn allocations_move_with_the_inventory_in_one_commit() {
    for (host, _guard) in hosts(3).await {
        let (one, two) = (host.claims(1).await, host.claims(1).await);
        let host = now_without(host);
        let gpus: Vec<ProviderSpec> =
            (0..3).map(|n| spec(&format!("h1_gpu{n}"), &[("VGPU", 1)], &[])).collect();
        host.reports(&gpus).await;
        assert_eq!(host.left().await, None);
        let (first, second) = (host.vgpus(one).await, host.vgpus(two).await);
        assert_eq!((first.len(), second.len()), (1, 1));
        assert_ne!(first, second, "each GPU with one vGPU has one consumer");
        assert!(!first.contains_key(&host.root.id) && !second.contains_key(&host.root.id));
        assert_eq!(room(&host.world, "VGPU", 1).len(), 1, "the third GPU is free");
        host.reports(&gpus).await;
        assert_eq!((host.vgpus(one).await, host.vgpus(two).await), (first, second));
    }
}

#[tokio::test]
async fn a_consumer_stays_on_the_root_until_the_children_have_room() {
    for (host, _guard) in hosts(8).await {
        let (large, small) = (host.claims(4).await, host.claims(1).await);
        let host = now_without(host);
        let mut gpu = spec("h1_gpu", &[("VGPU", 2)], &[]);
        host.reports(std::slice::from_ref(&gpu)).await;
        assert_eq!(host.vgpus(large).await, [(host.root.id, 4)].into());
        assert_eq!(host.vgpus(small).await, [(gpu.id, 1)].into());
        assert_eq!(host.left().await, Some(8), "the rest of the old inventory is reserved");
        assert_eq!(room(&host.world, "VGPU", 1), [gpu.id]);
        gpu.inventories = vec![(kilonova_ids::ResourceClass::verbatim("VGPU"), inventory(5))];
        host.reports(std::slice::from_ref(&gpu)).await;
        assert_eq!(host.vgpus(large).await, [(gpu.id, 4)].into());
        assert_eq!(host.left().await, None);
        assert_eq!(room(&host.world, "VGPU", 1), Vec::<ProviderId>::new());
    }
}

#[tokio::test]
async fn a_consumer_that_no_child_can_hold_alone_is_spread() {
    for (host, _guard) in hosts(8).await {
        let id = host.claims(3).await;
        let host = now_without(host);
        let gpus = [spec("h1_gpu0", &[("VGPU", 2)], &[]), spec("h1_gpu1", &[("VGPU", 2)], &[])];
        host.reports(&gpus).await;
        assert_eq!(host.vgpus(id).await, [(gpus[0].id, 2), (gpus[1].id, 1)].into());
        assert_eq!(host.left().await, None);
    }
}

/// An inventory of another class than the children's stays.
#[tokio::test]
async fn a_class_that_no_child_offers_stays() {
    for (host, _guard) in hosts(4).await {
        let id = host.claims(2).await;
        let host = now_without(host);
        host.reports(&[spec("h1_fpga", &[("FPGA", 4)], &[])]).await;
        assert_eq!(host.vgpus(id).await, [(host.root.id, 2)].into());
        assert_eq!(host.left().await, Some(4));
    }
}

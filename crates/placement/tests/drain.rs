//! Draining a provider, on both stores: it ends only explicitly, and its end changes nothing else.

use kilonova_engine::Inventory;
use kilonova_ids::{ConsumerId, ProviderId};
use kilonova_placement::{Error, World, app, ledger};
use kilonova_store::{Store, params};
use kilonova_wire::Microversion;

use crate::common::{audited, claim_of, inventory, room, spec, stores};

struct Host {
    store: Store,
    world: World,
    root: ledger::ProviderSpec,
}

impl Host {
    async fn report(&self, children: &[ledger::ProviderSpec]) {
        let (world, root, children) = (self.world.clone(), self.root.clone(), children.to_vec());
        self.store
            .write(move |tx| ledger::report_host(tx, &world, &root, &children))
            .await
            .expect("the report is applied");
    }

    async fn drain(&self, provider: ProviderId, drained: bool) {
        let world = self.world.clone();
        self.store
            .write(move |tx| ledger::drain(tx, &world, provider, drained))
            .await
            .expect("the drain succeeds");
    }

    async fn claim(&self, consumer: ConsumerId, provider: ProviderId) -> Result<(), Error> {
        let (world, claim) = (self.world.clone(), claim_of(consumer, &[(provider, "VGPU", 1)]));
        self.store.write(move |tx| ledger::claim(tx, &world, &claim)).await
    }

    async fn operator_reserves(&self, provider: ProviderId, total: i64, reserved: i64) {
        let world = self.world.clone();
        let wanted = vec![(
            kilonova_ids::ResourceClass::verbatim("VGPU"),
            Inventory { reserved, ..inventory(total) },
        )];
        self.store
            .write(move |tx| {
                let version = Microversion(1, 39);
                app::inventories::replace(tx, &world, provider, None, &wanted, version)
            })
            .await
            .expect("the inventories are replaced");
    }

    async fn reserved(&self, provider: ProviderId) -> (i64, i64) {
        self.store
            .read(move |tx| -> Result<_, Error> {
                let sql = "SELECT i.reserved, p.generation FROM inventories i
                    JOIN resource_providers p ON p.id = i.provider_id WHERE i.provider_id = ?1";
                let row = tx.row(sql, params![provider])?.expect("the inventory exists");
                Ok((row.int("reserved")?, row.int("generation")?))
            })
            .await
            .expect("the query succeeds")
    }
}

async fn hosts() -> Vec<(&'static str, Host, kilonova_testkit::Guard)> {
    let root = spec("cmp1", &[("VCPU", 8)], &[]);
    stores()
        .await
        .into_iter()
        .map(|(name, store, guard)| {
            (name, Host { store, world: World::new(), root: root.clone() }, guard)
        })
        .collect()
}

#[tokio::test]
async fn a_drained_provider_keeps_its_allocations_and_accepts_no_more() {
    for (name, host, _guard) in hosts().await {
        let (gpu, other) = (spec("gpu", &[("VGPU", 4)], &[]), spec("other", &[("VGPU", 4)], &[]));
        host.report(&[gpu.clone(), other.clone()]).await;
        let held = ConsumerId::new_v4();
        host.claim(held, gpu.id).await.expect("the claim succeeds");
        host.drain(gpu.id, true).await;
        assert_eq!(host.reserved(gpu.id).await.0, 4, "{name}");
        assert_eq!(room(&host.world, "VGPU", 1), [other.id], "{name}");
        let refused = host.claim(ConsumerId::new_v4(), gpu.id).await;
        assert!(matches!(refused, Err(Error::Capacity { .. })), "{name}: {refused:?}");
        audited(&host.store).await;
        host.drain(gpu.id, false).await;
        assert_eq!(host.reserved(gpu.id).await.0, 0, "{name}");
        host.claim(ConsumerId::new_v4(), gpu.id).await.expect("the claim succeeds after the drain");
        audited(&host.store).await;
    }
}

#[tokio::test]
async fn a_drain_survives_reports_growth_absence_and_operators() {
    for (name, host, _guard) in hosts().await {
        let gpu = spec("gpu", &[("VGPU", 4)], &[]);
        host.report(std::slice::from_ref(&gpu)).await;
        host.drain(gpu.id, true).await;
        let before = host.reserved(gpu.id).await;
        host.report(std::slice::from_ref(&gpu)).await;
        host.drain(gpu.id, true).await;
        assert_eq!(
            host.reserved(gpu.id).await,
            before,
            "{name}: an unchanged report writes nothing"
        );
        let mut grown = gpu.clone();
        grown.inventories = vec![(kilonova_ids::ResourceClass::verbatim("VGPU"), inventory(6))];
        host.report(std::slice::from_ref(&grown)).await;
        assert_eq!(host.reserved(gpu.id).await.0, 6, "{name}");
        host.report(&[]).await;
        host.report(std::slice::from_ref(&grown)).await;
        assert_eq!(host.reserved(gpu.id).await.0, 6, "{name}: a device that returns is drained");
        host.operator_reserves(gpu.id, 6, 1).await;
        assert_eq!(
            host.reserved(gpu.id).await.0,
            6,
            "{name}: the operator's number does not apply during the drain"
        );
        host.operator_reserves(gpu.id, 6, 6).await;
        audited(&host.store).await;
        host.drain(gpu.id, false).await;
        assert_eq!(
            host.reserved(gpu.id).await.0,
            1,
            "{name}: the operator's number applies after the drain"
        );
        let again = host.reserved(gpu.id).await;
        host.drain(gpu.id, false).await;
        assert_eq!(host.reserved(gpu.id).await, again, "{name}");
        audited(&host.store).await;
    }
}

#[tokio::test]
async fn the_end_of_a_drain_restores_no_vanished_inventory() {
    for (name, host, _guard) in hosts().await {
        let gpu = spec("gpu", &[("VGPU", 4)], &[]);
        host.report(std::slice::from_ref(&gpu)).await;
        host.claim(ConsumerId::new_v4(), gpu.id).await.expect("the claim succeeds");
        host.drain(gpu.id, true).await;
        host.report(&[]).await;
        host.drain(gpu.id, false).await;
        assert_eq!(host.reserved(gpu.id).await.0, 4, "{name}: an absent device stays reserved");
        host.report(std::slice::from_ref(&gpu)).await;
        assert_eq!(host.reserved(gpu.id).await.0, 0, "{name}");
        audited(&host.store).await;
    }
}

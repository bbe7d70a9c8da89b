//! Claims, releases and reports on both stores, and their effect on the in-memory copy.

use jiff::Timestamp;
use kilonova_ids::{ConsumerId, ProviderId};
use kilonova_placement::{Error, World, ledger};
use kilonova_store::testing::Meter;
use kilonova_store::{Store, Tx, params};

use crate::common::{News, Replica, audited, claim_of, inventory, room, spec, stores};

async fn report(
    store: &Store,
    world: &World,
    root: &ledger::ProviderSpec,
    children: &[ledger::ProviderSpec],
) {
    let (world, root, children) = (world.clone(), root.clone(), children.to_vec());
    store
        .write(move |tx| ledger::report_host(tx, &world, &root, &children))
        .await
        .expect("the report is applied");
}

async fn claim(store: &Store, world: &World, claim: ledger::Claim) -> Result<(), Error> {
    let world = world.clone();
    store.write(move |tx| ledger::claim(tx, &world, &claim)).await
}

async fn release(store: &Store, world: &World, consumer: ConsumerId) {
    let world = world.clone();
    store
        .write(move |tx| ledger::release(tx, &world, consumer))
        .await
        .expect("the release succeeds");
}

async fn number(store: &Store, sql: &'static str) -> i64 {
    store
        .read(move |tx| -> Result<_, Error> {
            Ok(tx.row(sql, params![])?.expect("the query returns a row").int(0)?)
        })
        .await
        .expect("the query succeeds")
}

#[tokio::test]
async fn every_statement_is_accepted_by_both_databases() {
    for (name, store, _guard) in stores().await {
        for list in kilonova_placement::statements() {
            assert_eq!(store.refused(list).await, Vec::<String>::new(), "{name}");
        }
        assert_eq!(
            store.refused(kilonova_changes::STATEMENTS).await,
            Vec::<String>::new(),
            "{name}"
        );
        assert_eq!(store.refused(kilonova_placement::AUDIT).await, Vec::<String>::new(), "{name}");
        if name == "postgresql" {
            for only_there in [
                kilonova_changes::POSTGRES_STATEMENTS,
                kilonova_placement::db::providers::POSTGRES_STATEMENTS,
            ] {
                assert_eq!(store.refused(only_there).await, Vec::<String>::new());
            }
        }
    }
}

#[tokio::test]
async fn a_claim_never_exceeds_the_capacity() {
    for (_, store, _guard) in stores().await {
        let world = World::new();
        let host = spec("h1", &[("VCPU", 8)], &[]);
        let gpu = spec("h1_gpu0", &[("VGPU", 2)], &["CUSTOM_NVIDIA_35"]);
        report(&store, &world, &host, std::slice::from_ref(&gpu)).await;
        assert_eq!(room(&world, "VGPU", 2), vec![gpu.id]);

        let (a, b) = (ConsumerId::new_v4(), ConsumerId::new_v4());
        let parts = [(host.id, "VCPU", 4), (gpu.id, "VGPU", 1), (gpu.id, "VGPU", 1)];
        claim(&store, &world, claim_of(a, &parts)).await.expect("the claim succeeds");
        assert_eq!(room(&world, "VGPU", 1), Vec::<ProviderId>::new());
        let refused =
            claim(&store, &world, claim_of(b, &[(host.id, "VCPU", 1), (gpu.id, "VGPU", 1)]))
                .await
                .expect_err("the GPU is full");
        assert!(matches!(refused, Error::Capacity { provider, .. } if provider == gpu.id));
        assert!(refused.no_longer_fits());
        assert_eq!(room(&world, "VCPU", 4), vec![host.id], "the refused claim changes nothing");

        let again = claim(&store, &world, claim_of(a, &[(host.id, "VCPU", 1)])).await;
        assert!(matches!(again, Err(Error::ConsumerExists(_))));
        let missing = claim(&store, &world, claim_of(b, &[(host.id, "FPGA", 1)])).await;
        assert!(matches!(missing, Err(Error::NoInventory { .. })));
        audited(&store).await;

        release(&store, &world, a).await;
        release(&store, &world, a).await;
        assert_eq!(room(&world, "VGPU", 2), vec![gpu.id]);
        assert_eq!(room(&world, "VCPU", 8), vec![host.id]);
        audited(&store).await;
    }
}

#[tokio::test]
async fn a_claim_takes_any_number_of_classes_of_one_provider() {
    const CLASSES: [&str; 6] = ["VCPU", "MEMORY_MB", "DISK_GB", "VGPU", "FPGA", "PCPU"];
    for (_, store, _guard) in stores().await {
        let world = World::new();
        let host = spec("h1", &CLASSES.map(|class| (class, 2)), &[]);
        report(&store, &world, &host, &[]).await;
        let (a, b) = (ConsumerId::new_v4(), ConsumerId::new_v4());
        let all = CLASSES.map(|class| (host.id, class, 2));
        claim(&store, &world, claim_of(a, &all)).await.expect("the claim succeeds");
        for class in CLASSES {
            let full = claim(&store, &world, claim_of(b, &[(host.id, class, 1)])).await;
            assert!(matches!(full, Err(Error::Capacity { .. })), "{class}: {full:?}");
        }
        release(&store, &world, a).await;
        claim(&store, &world, claim_of(b, &all)).await.expect("everything is free again");
        audited(&store).await;
    }
}

#[tokio::test]
async fn a_loaded_world_equals_the_one_that_hooks_updated() {
    for (_, store, _guard) in stores().await {
        let world = World::new();
        let host = spec("h1", &[("VCPU", 8)], &["HW_CPU_X86_AVX2"]);
        report(&store, &world, &host, &[spec("h1_gpu0", &[("VGPU", 2)], &[])]).await;
        claim(&store, &world, claim_of(ConsumerId::new_v4(), &[(host.id, "VCPU", 5)]))
            .await
            .expect("the claim succeeds");
        let fresh = World::new();
        fresh.load(&store).await.expect("the copy is loaded");
        for amount in [3, 4] {
            assert_eq!(room(&fresh, "VCPU", amount), room(&world, "VCPU", amount));
        }
        assert_eq!(room(&fresh, "VGPU", 2), room(&world, "VGPU", 2));
    }
}

#[tokio::test]
async fn a_replica_that_follows_sees_reports_claims_and_removals() {
    for (_, store, _guard) in stores().await {
        let (world, mut copy) = (World::new(), Replica::of(&store).await);
        let replica = copy.world.clone();
        let host = spec("h1", &[("VCPU", 8)], &[]);
        let gpu = spec("h1_gpu0", &[("VGPU", 2)], &[]);
        report(&store, &world, &host, std::slice::from_ref(&gpu)).await;
        copy.follow().await;
        assert_eq!(room(&replica, "VGPU", 2), vec![gpu.id]);
        claim(&store, &world, claim_of(ConsumerId::new_v4(), &[(host.id, "VCPU", 8)]))
            .await
            .expect("the claim succeeds");
        report(&store, &world, &host, &[]).await;
        copy.follow().await;
        assert!(room(&replica, "VGPU", 1).is_empty() && room(&replica, "VCPU", 1).is_empty());
        assert_eq!(copy.follow().await, News::Trees(Vec::new()));
    }
}

#[tokio::test]
async fn an_unchanged_report_writes_nothing() {
    for (_, store, _guard) in stores().await {
        let world = World::new();
        let host = spec("h1", &[("VCPU", 8)], &["HW_CPU_X86_AVX2"]);
        let gpu = spec("h1_gpu0", &[("VGPU", 2)], &[]);
        report(&store, &world, &host, std::slice::from_ref(&gpu)).await;
        let notes = number(&store, "SELECT COUNT(*) FROM change_log").await;
        report(&store, &world, &host, std::slice::from_ref(&gpu)).await;
        assert_eq!(number(&store, "SELECT COUNT(*) FROM change_log").await, notes);
        let sum = "SELECT CAST(SUM(generation) AS BIGINT) FROM resource_providers";
        assert_eq!(number(&store, sum).await, 2);
        kilonova_changes::prune(&store, Timestamp::MAX).await.expect("old entries are deleted");
        assert_eq!(number(&store, "SELECT COUNT(*) FROM change_log").await, 0);
    }
}

/// The number of statements that a report executes.
async fn cost(
    store: &Store,
    world: &World,
    root: &ledger::ProviderSpec,
    children: &[ledger::ProviderSpec],
) -> u64 {
    let meter = Meter::counting();
    report(&store.with_meter(meter.clone()), world, root, children).await;
    meter.take()
}

#[tokio::test]
async fn a_report_is_compared_again_after_another_change_of_its_tree() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let host = spec("h1", &[("VCPU", 8)], &[]);
        let gpu = spec("h1_gpu0", &[("VGPU", 2)], &["CUSTOM_GOLD"]);
        let gpus = std::slice::from_ref(&gpu);
        report(&store, &world, &host, gpus).await;
        assert_eq!(
            cost(&store, &world, &host, gpus).await,
            1,
            "{name}: an unchanged report is one query"
        );
        let consumer = ConsumerId::new_v4();
        let both = [(host.id, "VCPU", 1), (gpu.id, "VGPU", 1)];
        claim(&store, &world, claim_of(consumer, &both)).await.expect("the claim succeeds");
        assert_eq!(
            cost(&store, &world, &host, gpus).await,
            1,
            "{name}: a claim does not require a comparison"
        );

        for drained in [true, false] {
            let (world, id) = (world.clone(), gpu.id);
            let drain = move |tx: &mut Tx<'_>| ledger::drain(tx, &world, id, drained);
            store.write(drain).await.expect("the drain changes");
        }
        assert!(
            cost(&store, &world, &host, gpus).await > 1,
            "{name}: the report after a drain is compared"
        );
        assert_eq!(
            cost(&store, &world, &host, gpus).await,
            1,
            "{name}: the next report is one query again"
        );
        let (id, mark) = (gpu.id, |tx: &mut Tx<'_>, id| ledger::mark_drained(tx, id, true));
        store.write(move |tx| mark(tx, id)).await.expect("the drain is marked");
        report(&store, &world, &host, gpus).await;
        assert!(room(&world, "VGPU", 1).is_empty(), "{name}: the report applies the drain");

        // An absent device with allocations: the same report is compared again until they are
        // released.
        for _ in 0..2 {
            assert!(
                cost(&store, &world, &host, &[]).await > 1,
                "{name}: the absent device has allocations"
            );
        }
        release(&store, &world, consumer).await;
        report(&store, &world, &host, &[]).await;
        assert_eq!(number(&store, "SELECT COUNT(*) FROM resource_providers").await, 1, "{name}");
        assert_eq!(
            cost(&store, &world, &host, &[]).await,
            1,
            "{name}: the absent device is removed"
        );
        audited(&store).await;
    }
}

#[tokio::test]
async fn a_vanished_device_stays_reserved_while_it_has_allocations() {
    for (_, store, _guard) in stores().await {
        let world = World::new();
        let host = spec("h1", &[("VCPU", 8)], &[]);
        let at_island = &["CUSTOM_A40", "CUSTOM_GPU_ISLAND_0"];
        let (held, idle) =
            (spec("gpu0", &[("VGPU", 2)], at_island), spec("gpu1", &[("VGPU", 2)], &[]));
        report(&store, &world, &host, &[held.clone(), idle.clone()]).await;
        let consumer = ConsumerId::new_v4();
        claim(&store, &world, claim_of(consumer, &[(held.id, "VGPU", 1)]))
            .await
            .expect("the claim succeeds");

        report(&store, &world, &host, &[]).await;
        assert_eq!(room(&world, "VGPU", 1), Vec::<ProviderId>::new());
        assert_eq!(number(&store, "SELECT COUNT(*) FROM resource_providers").await, 2);
        let traits = || {
            let snapshot = world.snapshot();
            let tree = snapshot.tree(host.id).expect("the host is known");
            let node = tree.nodes().find(|node| node.id() == held.id);
            let node = node.expect("the provider stays");
            node.traits().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(traits(), "CUSTOM_A40", "another device may have its place now");
        audited(&store).await;

        report(&store, &world, &host, std::slice::from_ref(&held)).await;
        assert_eq!(traits(), "CUSTOM_A40 CUSTOM_GPU_ISLAND_0");
        assert_eq!(room(&world, "VGPU", 1), vec![held.id], "the device is offered again");

        release(&store, &world, consumer).await;
        report(&store, &world, &host, &[]).await;
        assert_eq!(number(&store, "SELECT COUNT(*) FROM resource_providers").await, 1);
    }
}

#[tokio::test]
async fn root_by_name_ignores_children() {
    for (_, store, _guard) in stores().await {
        let world = World::new();
        let host = spec("h1", &[("VCPU", 8)], &[]);
        report(&store, &world, &host, &[spec("gpu0", &[("VGPU", 2)], &[])]).await;
        let found = store
            .read(|tx| -> Result<_, Error> {
                Ok((ledger::root_by_name(tx, "h1")?, ledger::root_by_name(tx, "gpu0")?))
            })
            .await
            .expect("the query succeeds");
        assert_eq!(found, (Some(host.id), None));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_claims_take_exactly_the_capacity() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let mut host = spec("h1", &[("VCPU", 10)], &[]);
        host.inventories
            .push((kilonova_ids::ResourceClass::verbatim("MEMORY_MB"), inventory(1000)));
        let gpus = [spec("gpu0", &[("VGPU", 7)], &[]), spec("gpu1", &[("VGPU", 7)], &[])];
        report(&store, &world, &host, &gpus).await;
        let mut tries = Vec::new();
        for n in 0..24 {
            let (store, world) = (store.clone(), world.clone());
            let (root, gpu) = (host.id, gpus[n % 2].id);
            tries.push(tokio::spawn(async move {
                let consumer = ConsumerId::new_v4();
                let parts = [(gpu, "VGPU", 1), (root, "VCPU", 1), (root, "MEMORY_MB", 10)];
                claim(&store, &world, claim_of(consumer, &parts)).await
            }));
        }
        let mut won = 0;
        for one in tries {
            match one.await.expect("the claim does not panic") {
                Ok(()) => won += 1,
                Err(error) => assert!(matches!(error, Error::Capacity { .. }), "{name}: {error}"),
            }
        }
        assert_eq!(won, 10, "{name}");
        audited(&store).await;
        assert_eq!(room(&world, "VCPU", 1), Vec::<ProviderId>::new(), "{name}");
        let fresh = World::new();
        fresh.load(&store).await.expect("the copy is loaded");
        for amount in 1..8 {
            assert_eq!(room(&world, "VGPU", amount), room(&fresh, "VGPU", amount), "{name}");
        }
    }
}

/// The in-memory trees, each provider with its traits in order.
fn trees(world: &World, roots: &[ProviderId]) -> Vec<Vec<kilonova_engine::Provider>> {
    let snapshot = world.stored();
    let tree = |root: &ProviderId| {
        let tree = snapshot.tree(*root).expect("the tree is known");
        let mut providers: Vec<_> = tree.providers().collect();
        providers.iter_mut().for_each(|provider| provider.traits.sort());
        providers
    };
    roots.iter().map(tree).collect()
}

/// The tree of a new host is not read again, so the in-memory copy must equal what was written.
#[tokio::test]
async fn memory_has_the_tree_of_a_new_host_as_the_database_has_it() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let host = spec("h1", &[("VCPU", 8), ("MEMORY_MB", 1024)], &["COMPUTE_NODE", "CUSTOM_B"]);
        let gpu = spec("h1_gpu0", &[("VGPU", 2)], &["CUSTOM_B", "CUSTOM_A", "CUSTOM_A"]);
        let fpga = spec("h1_fpga", &[("CUSTOM_FPGA", 1), ("FPGA", 1)], &[]);
        let (drained, bare) = (spec("h1_old", &[("VGPU", 4)], &[]), spec("h1_bare", &[], &[]));
        let id = drained.id;
        let early = move |tx: &mut Tx<'_>| ledger::mark_drained(tx, id, true);
        store.write(early).await.expect("a device is drained before its host reports it");
        let children = [gpu.clone(), fpga, drained.clone(), bare.clone()];
        report(&store, &world, &host, &children).await;
        let empty = spec("h2", &[], &[]);
        report(&store, &world, &empty, &[]).await;

        let read = World::new();
        read.load(&store).await.expect("the trees are read");
        let roots = [host.id, empty.id];
        assert_eq!(trees(&world, &roots), trees(&read, &roots), "{name}");
        let reserved = "SELECT reserved FROM inventories i JOIN resource_providers p
            ON p.id = i.provider_id WHERE p.name = 'h1_old'";
        assert_eq!(number(&store, reserved).await, 4, "{name}");
        let generations = "SELECT COUNT(*) FROM resource_providers WHERE generation
            <> CASE WHEN name IN ('h1_bare', 'h2') THEN 0 ELSE 1 END";
        assert_eq!(
            number(&store, generations).await,
            0,
            "{name}: each provider with contents has one change"
        );

        // An equal report is recognized, and one with a change is compared.
        let writes = "SELECT CAST(SUM(version) AS BIGINT) FROM resource_providers";
        let before = number(&store, writes).await;
        report(&store, &world, &host, &children).await;
        assert_eq!(number(&store, writes).await, before, "{name}");
        let less = spec("h1_gpu0", &[("VGPU", 1)], &["CUSTOM_A"]);
        let less = ledger::ProviderSpec { id: gpu.id, ..less };
        report(&store, &world, &host, &[less, children[1].clone(), drained, bare]).await;
        let again = World::new();
        again.load(&store).await.expect("the trees are read");
        assert_eq!(trees(&world, &roots), trees(&again, &roots), "{name}");
        audited(&store).await;
    }
}

/// Another provider has the name of a device of a new host.
#[tokio::test]
async fn a_new_host_takes_no_name_of_another_provider() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let other = spec("h1_gpu0", &[("VCPU", 1)], &[]);
        report(&store, &world, &other, &[]).await;
        let host = spec("h1", &[("VCPU", 8)], &[]);
        let gpu = spec("h1_gpu0", &[("VGPU", 2)], &[]);
        let (world_, host_) = (world.clone(), host.clone());
        let refused = move |tx: &mut Tx<'_>| {
            ledger::report_host(tx, &world_, &host_, std::slice::from_ref(&gpu))
        };
        let refused = store.write(refused).await;
        assert!(matches!(refused, Err(Error::Taken { .. })), "{name}: {refused:?}");
        assert!(world.stored().tree(host.id).is_none(), "{name}");
        audited(&store).await;
    }
}

//! Several in-memory copies of one database. Each applies its own commits immediately and those of
//! the others by following the change log. SQLite has one process and therefore one copy, but the
//! same must hold, so the tests run there too. A test that needs PostgreSQL reports that it was
//! skipped.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use kilonova_engine::Provider;
use kilonova_ids::{ConsumerId, ProviderId};
use kilonova_placement::ledger::{self, ProviderSpec};
use kilonova_placement::{Error, World};
use kilonova_store::{Store, params};

use crate::common::{News, Replica, audited, claim_of, room, spec, stores};

type Content = BTreeMap<ProviderId, BTreeMap<ProviderId, String>>;

/// The content of a copy in a comparable form.
fn content(world: &World) -> Content {
    let snapshot = world.snapshot();
    let show = |provider: Provider| {
        let mut inventories = provider.inventories.clone();
        inventories.sort_by(|a, b| a.0.cmp(&b.0));
        let (mut traits, mut groups) = (provider.traits.clone(), provider.aggregates.clone());
        traits.sort();
        groups.sort();
        let what = format!(
            "{} {} {:?} {inventories:?} {traits:?} {groups:?}",
            provider.name, provider.version, provider.parent
        );
        (provider.id, what)
    };
    snapshot
        .roots()
        .filter_map(|root| {
            let tree = snapshot.tree(root)?;
            Some((root, tree.providers().map(show).collect()))
        })
        .collect()
}

async fn fresh(store: &Store) -> Content {
    let world = World::new();
    world.load(store).await.expect("the copy is loaded");
    content(&world)
}

async fn report(store: &Store, world: &World, root: &ProviderSpec, children: &[ProviderSpec]) {
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

fn forest(hosts: usize) -> Vec<(ProviderSpec, ProviderSpec)> {
    let host = |n: usize| {
        let root = spec(&format!("h{n}"), &[("VCPU", 64)], &["HW_CPU_X86_AVX2"]);
        (root, spec(&format!("h{n}_gpu"), &[("VGPU", 8)], &["CUSTOM_A"]))
    };
    (0..hosts).map(host).collect()
}

/// Both sides write while both follow. In the end both copies equal a fresh load.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_worlds_converge() {
    for (name, store, _guard) in stores().await {
        let replicas = [Replica::of(&store).await, Replica::of(&store).await];
        let worlds = [replicas[0].world.clone(), replicas[1].world.clone()];
        let hosts = Arc::new(forest(6));
        for (n, (root, card)) in hosts.iter().enumerate() {
            report(&store, &worlds[n % 2], root, std::slice::from_ref(card)).await;
        }
        let busy = Arc::new(AtomicBool::new(true));
        let followers: Vec<_> = replicas
            .into_iter()
            .map(|mut replica| {
                let busy = Arc::clone(&busy);
                tokio::spawn(async move {
                    while busy.load(Ordering::Relaxed) {
                        replica.follow().await;
                        tokio::time::sleep(Duration::from_millis(3)).await;
                    }
                    replica
                })
            })
            .collect();
        let writers: Vec<_> = (0..12)
            .map(|writer| {
                let (world, store, hosts) =
                    (worlds[writer % 2].clone(), store.clone(), Arc::clone(&hosts));
                tokio::spawn(async move { write_a_while(writer, &store, &world, &hosts).await })
            })
            .collect();
        for writer in writers {
            writer.await.expect("the writer succeeds");
        }
        busy.store(false, Ordering::Relaxed);
        let wanted = fresh(&store).await;
        for follower in followers {
            let mut replica = follower.await.expect("the follower succeeds");
            replica.follow().await;
            assert_eq!(content(&replica.world), wanted, "{name}");
            let nothing = News::Trees(Vec::new());
            assert_eq!(replica.follow().await, nothing, "{name}: no entry is unseen");
        }
        audited(&store).await;
    }
}

async fn write_a_while(
    writer: usize,
    store: &Store,
    world: &World,
    hosts: &[(ProviderSpec, ProviderSpec)],
) {
    for round in 0..25 {
        let (root, card) = &hosts[(writer + round) % hosts.len()];
        match (writer + round) % 5 {
            0 => {
                let mut changed = card.clone();
                changed.inventories[0].1.max_unit = 2 + (round as i64 % 3);
                changed.traits.push(format!("CUSTOM_T{round}"));
                report(store, world, root, std::slice::from_ref(&changed)).await;
            }
            1 => report(store, world, root, std::slice::from_ref(card)).await,
            _ => {
                let consumer = ConsumerId::new_v4();
                let parts = [(root.id, "VCPU", 1), (card.id, "VGPU", 1)];
                match claim(store, world, claim_of(consumer, &parts)).await {
                    Ok(()) if round % 2 == 0 => release(store, world, consumer).await,
                    Ok(()) => {}
                    Err(error) => assert!(error.no_longer_fits(), "{error}"),
                }
            }
        }
    }
}

#[tokio::test]
async fn own_commits_are_not_read_again() {
    for (name, store, _guard) in stores().await {
        let (mut replica, mut other) = (Replica::of(&store).await, Replica::of(&store).await);
        let mine = replica.world.clone();
        let (first, _) = forest(1).remove(0);
        let first = ProviderSpec { name: "first".into(), ..first };
        report(&store, &other.world, &first, &[]).await;
        assert_eq!(replica.follow().await, News::Trees(vec![first.id]), "{name}");
        other.follow().await;
        let (root, card) = forest(1).remove(0);
        report(&store, &mine, &root, std::slice::from_ref(&card)).await;
        claim(&store, &mine, claim_of(ConsumerId::new_v4(), &[(card.id, "VGPU", 1)]))
            .await
            .expect("the claim succeeds");
        let nothing = News::Trees(Vec::new());
        assert_eq!(replica.follow().await, nothing, "{name}");
        assert_eq!(other.follow().await, News::Trees(vec![root.id]), "{name}");
        assert_eq!(other.follow().await, nothing, "{name}");
        // Each copy reports which trees the other one changed and how many it has reread. Until a copy follows the log,
        // it takes its own entries for those of others.
        let lately = Duration::from_secs(3600);
        assert_eq!(mine.foreign(lately), HashSet::from([first.id]), "{name}");
        assert_eq!(mine.foreign(Duration::ZERO), HashSet::new(), "{name}");
        assert!(other.world.foreign(lately).contains(&root.id), "{name}");
        assert_eq!(mine.reread(), 1, "{name}");
    }
}

/// A provider is deleted and created again with its old id between two polls.
#[tokio::test]
async fn a_provider_recreated_with_its_id_replaces_the_old_one() {
    for (name, store, _guard) in stores().await {
        let (mine, mut other) = (World::new(), Replica::of(&store).await);
        let (root, card) = forest(1).remove(0);
        report(&store, &mine, &root, std::slice::from_ref(&card)).await;
        let consumer = ConsumerId::new_v4();
        for _ in 0..3 {
            let parts = [(card.id, "VGPU", 5)];
            claim(&store, &mine, claim_of(consumer, &parts)).await.expect("the claim succeeds");
            other.world.load(&store).await.expect("the copy is loaded");
            release(&store, &mine, consumer).await;
        }
        assert!(room(&other.world, "VGPU", 4).is_empty());
        report(&store, &mine, &root, &[]).await;
        report(&store, &mine, &root, std::slice::from_ref(&card)).await;
        other.follow().await;
        assert_eq!(room(&other.world, "VGPU", 8), vec![card.id], "{name}");
        assert_eq!(content(&other.world), fresh(&store).await, "{name}");
    }
}

#[tokio::test]
async fn a_claim_on_a_stale_snapshot_is_refused_and_leaves_nothing() {
    for (_, store, _guard) in stores().await {
        let mine = World::new();
        let (root, card) = forest(1).remove(0);
        report(&store, &mine, &root, std::slice::from_ref(&card)).await;
        let mut replica = Replica::of(&store).await;
        let stale = replica.world.clone();
        let all = [(card.id, "VGPU", 8)];
        claim(&store, &mine, claim_of(ConsumerId::new_v4(), &all))
            .await
            .expect("the claim succeeds");
        assert_eq!(room(&stale, "VGPU", 1), vec![card.id], "the copy is stale");
        let late = claim_of(ConsumerId::new_v4(), &[(root.id, "VCPU", 1), (card.id, "VGPU", 1)]);
        let error = claim(&store, &stale, late).await.expect_err("the provider is full");
        assert!(matches!(error, Error::Capacity { .. }) && error.no_longer_fits(), "{error}");
        audited(&store).await;
        replica.follow().await;
        assert!(room(&stale, "VGPU", 1).is_empty());
        assert_eq!(content(&stale), fresh(&store).await);
    }
}

/// A copy that missed deleted entries loads everything once.
#[tokio::test]
async fn a_replica_that_missed_deleted_entries_loads_everything() {
    for (name, store, _guard) in stores().await {
        let (mine, mut away) = (World::new(), Replica::of(&store).await);
        away.follow().await;
        let hosts = forest(3);
        for (root, card) in &hosts {
            report(&store, &mine, root, std::slice::from_ref(card)).await;
        }
        while kilonova_changes::prune(&store, Timestamp::MAX)
            .await
            .expect("old entries are deleted")
        {}
        let (root, card) = &hosts[0];
        claim(&store, &mine, claim_of(ConsumerId::new_v4(), &[(root.id, "VCPU", 3)]))
            .await
            .expect("the claim succeeds");
        assert_eq!(away.follow().await, News::Everything, "{name}");
        assert_eq!(content(&away.world), fresh(&store).await);
        claim(&store, &mine, claim_of(ConsumerId::new_v4(), &[(card.id, "VGPU", 3)]))
            .await
            .expect("the claim succeeds");
        let news = away.follow().await;
        assert!(matches!(&news, News::Trees(t) if t.contains(&root.id)), "{name}: {news:?}");
        assert_eq!(content(&away.world), fresh(&store).await);
    }
}

/// An open transaction of another session holds the horizon back, but does not delay entries.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_open_transaction_delays_no_entry() {
    let migrations = kilonova_placement::MIGRATIONS;
    let Some((store, _guard)) = kilonova_testkit::postgres_store(&[migrations]).await else {
        return;
    };
    let (mine, mut other) = (World::new(), Replica::of(&store).await);
    let (root, card) = forest(1).remove(0);
    let (open, close) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let slow = {
        let (store, open, close) = (store.clone(), Arc::clone(&open), Arc::clone(&close));
        let spare = World::new();
        let (host, _) = forest(1).remove(0);
        let host = ProviderSpec { name: "slow".into(), ..host };
        let id = host.id;
        let task = tokio::spawn(async move {
            store
                .write(move |tx| -> Result<(), Error> {
                    ledger::report_host(tx, &spare, &host, &[])?;
                    open.store(true, Ordering::SeqCst);
                    while !close.load(Ordering::SeqCst) {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    tx.row("SELECT 1", params![])?;
                    Ok(())
                })
                .await
        });
        (id, task)
    };
    while !open.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    report(&store, &mine, &root, std::slice::from_ref(&card)).await;
    assert_eq!(other.follow().await, News::Trees(vec![root.id]));
    assert_eq!(room(&other.world, "VGPU", 8), vec![card.id]);
    assert_eq!(other.follow().await, News::Trees(Vec::new()));
    close.store(true, Ordering::SeqCst);
    slow.1.await.expect("the task does not panic").expect("the slow transaction commits");
    assert_eq!(other.follow().await, News::Trees(vec![slow.0]));
    assert_eq!(content(&other.world), fresh(&store).await);
}

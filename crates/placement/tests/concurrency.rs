//! Many writers on few hosts, through the API. A client may see 204, or 409 for a true conflict,
//! but never a conflict merely because two writers collided.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use axum::http::StatusCode;
use kilonova_store::Store;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::common;
use crate::common::http::{Answer, Api};

const WRITERS: usize = 64;

/// Number of claims and releases, on each store.
fn operations() -> usize {
    std::env::var("KILONOVA_CLAIMS").ok().and_then(|n| n.parse().ok()).unwrap_or(4_000)
}

/// A host: a root with CPUs and a child with VGPUs.
struct Host {
    root: String,
    card: String,
    /// Number of writes that increment the generations of root and child.
    writes: [AtomicI64; 2],
}

async fn hosts(api: &Api, cpus: i64, units: i64) -> Vec<Host> {
    let mut hosts = Vec::new();
    for number in 0..4 {
        let name = format!("host-{number}");
        let root = api.provider(&name, None, &[("VCPU", cpus)]).await;
        let card = api.provider(&format!("{name}-gpu"), Some(&root), &[("VGPU", units)]).await;
        hosts.push(Host { root, card, writes: [AtomicI64::new(1), AtomicI64::new(1)] });
    }
    hosts
}

impl Host {
    fn wrote(&self) {
        for counter in &self.writes {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn claim(&self, cpus: i64, generation: Value) -> Value {
        json!({
            "allocations": {
                &self.root: {"resources": {"VCPU": cpus}},
                &self.card: {"resources": {"VGPU": 1}},
            },
            "project_id": "p", "user_id": "u", "consumer_type": "INSTANCE",
            "consumer_generation": generation,
        })
    }
}

fn path(consumer: Uuid) -> String {
    format!("/allocations/{consumer}")
}

async fn usage(api: &Api, provider: &str) -> (i64, i64) {
    let answer = api.get(&format!("/resource_providers/{provider}/usages")).await.is(200);
    let used = answer.body["usages"].as_object().expect("the answer has usages").values();
    let used = used.map(|n| n.as_i64().expect("a usage is a number")).sum();
    (
        used,
        answer.body["resource_provider_generation"].as_i64().expect("the answer has a generation"),
    )
}

/// Spawns the writers, each with its number, and waits for all of them.
async fn all<F, T>(work: impl Fn(usize) -> F) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let tasks: Vec<_> = (0..WRITERS).map(|writer| tokio::spawn(work(writer))).collect();
    let mut done = Vec::new();
    for task in tasks {
        done.push(task.await.expect("the writer succeeds"));
    }
    done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writers_see_no_conflict() {
    for (name, store, _guard) in common::stores().await {
        let begun = std::time::Instant::now();
        let count = operations() * 7 / 10;
        roomy(&store, count).await;
        println!("{name}: {count} claims and releases with room in {:?}", begun.elapsed());
    }
}

/// There is room for everyone, so every claim and every release must succeed.
async fn roomy(store: &Store, operations: usize) {
    let api = Arc::new(Api::new(store));
    let hosts = Arc::new(hosts(&api, 100_000, 100_000).await);
    let rounds = operations / WRITERS / 5;
    let kept = all(|writer| {
        let (api, hosts) = (Arc::clone(&api), Arc::clone(&hosts));
        async move {
            let mut last = None;
            for round in 0..rounds {
                let (here, there) =
                    (&hosts[(writer + round) % 4], &hosts[(writer * 7 + round) % 4]);
                let (one, two) = (Uuid::new_v4(), Uuid::new_v4());
                let cpus = 1 + (round % 3) as i64;
                api.put(&path(one), here.claim(cpus, Value::Null)).await.is(204);
                here.wrote();
                let stale = api.put(&path(one), here.claim(cpus, Value::Null)).await.is(409);
                assert_eq!(stale.code(), "placement.concurrent_update");
                assert!(stale.detail().contains("consumer generation conflict"), "{}", stale.body);
                let both = json!({
                    one.to_string(): there.claim(cpus, json!(1)),
                    two.to_string(): here.claim(1, Value::Null),
                });
                api.post("/allocations", both).await.is(204);
                here.wrote();
                if !std::ptr::eq(here, there) {
                    there.wrote();
                }
                api.ask("DELETE", &path(one), None).await.is(204);
                if round + 1 < rounds {
                    api.ask("DELETE", &path(two), None).await.is(204);
                } else {
                    last = Some(two);
                }
            }
            last.expect("there was at least one round")
        }
    })
    .await;
    common::audited(store).await;
    let (mut cpus, mut units) = (0, 0);
    for host in hosts.iter() {
        for (provider, writes, used) in
            [(&host.root, &host.writes[0], &mut cpus), (&host.card, &host.writes[1], &mut units)]
        {
            let (now, generation) = usage(&api, provider).await;
            *used += now;
            assert_eq!(
                generation,
                writes.load(Ordering::Relaxed),
                "the generation of {provider} counts every write"
            );
        }
    }
    assert_eq!((cpus, units), (WRITERS as i64, WRITERS as i64));
    for consumer in kept {
        api.ask("DELETE", &path(consumer), None).await.is(204);
    }
    for host in hosts.iter() {
        assert_eq!((usage(&api, &host.root).await.0, usage(&api, &host.card).await.0), (0, 0));
    }
    common::audited(store).await;
}

/// True if a 409 reports a full provider, and not concurrent writers.
fn full(answer: &Answer) -> bool {
    answer.status == StatusCode::CONFLICT
        && answer.code() == "placement.undefined_code"
        && answer.detail().contains("would exceed the capacity")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn scarce_units_are_claimed_once() {
    for (name, store, _guard) in common::stores().await {
        let begun = std::time::Instant::now();
        let count = operations() * 3 / 10;
        let refused = scarce(&store, count).await;
        println!(
            "{name}: {count} claims and releases, {refused} refused, in {:?}",
            begun.elapsed()
        );
    }
}

/// Half as many units as writers. `held` counts the claimed units, so that an over-commit is
/// detected immediately. After all releases every unit must be free.
async fn scarce(store: &Store, operations: usize) -> i64 {
    const UNITS: i64 = 8;
    let api = Arc::new(Api::new(store));
    let hosts = Arc::new(hosts(&api, 10_000, UNITS).await);
    let held: Arc<HashMap<String, AtomicI64>> =
        Arc::new(hosts.iter().map(|host| (host.root.clone(), AtomicI64::new(0))).collect());
    let rounds = operations / WRITERS / 2;
    let refused: Vec<i64> = all(|writer| {
        let (api, hosts, held) = (Arc::clone(&api), Arc::clone(&hosts), Arc::clone(&held));
        async move {
            let mut refused = 0;
            for round in 0..rounds {
                let host = &hosts[(writer + round) % 4];
                let consumer = Uuid::new_v4();
                let answer = api.put(&path(consumer), host.claim(1, Value::Null)).await;
                if answer.status == StatusCode::NO_CONTENT {
                    let holders = held[&host.root].fetch_add(1, Ordering::SeqCst) + 1;
                    assert!(holders <= UNITS, "{holders} consumers hold at most {UNITS} units");
                    tokio::task::yield_now().await;
                    held[&host.root].fetch_sub(1, Ordering::SeqCst);
                    api.ask("DELETE", &path(consumer), None).await.is(204);
                } else {
                    assert!(full(&answer), "{} {}", answer.status, answer.body);
                    refused += 1;
                }
            }
            refused
        }
    })
    .await;
    common::audited(store).await;
    for host in hosts.iter() {
        assert_eq!((usage(&api, &host.root).await.0, usage(&api, &host.card).await.0), (0, 0));
        let consumer = Uuid::new_v4();
        let mut whole = host.claim(1, Value::Null);
        whole["allocations"][&host.card]["resources"]["VGPU"] = UNITS.into();
        api.put(&path(consumer), whole).await.is(204);
        assert!(full(&api.put(&path(Uuid::new_v4()), host.claim(1, Value::Null)).await));
    }
    common::audited(store).await;
    refused.into_iter().sum()
}

/// An operator changes the inventories of a host that all writers claim from, with the generation
/// that was read before. The operator may see a generation conflict, no other error, and eventually
/// succeeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_operators_write_succeeds_among_claims() {
    for (_, store, _guard) in common::stores().await {
        let api = Arc::new(Api::new(&store));
        let hosts = Arc::new(hosts(&api, 100_000, 100_000).await);
        let stop = Arc::new(AtomicI64::new(0));
        let operator = {
            let (api, hosts, stop) = (Arc::clone(&api), Arc::clone(&hosts), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut through = 0;
                while stop.load(Ordering::Relaxed) < WRITERS as i64 || through == 0 {
                    let card = &hosts[0].card;
                    let (_, generation) = usage(&api, card).await;
                    let body = json!({
                        "resource_provider_generation": generation,
                        "inventories": {"VGPU": {"total": 100_000 + through}},
                    });
                    let at = format!("/resource_providers/{card}/inventories");
                    let answer = api.put(&at, body).await;
                    if answer.status == StatusCode::OK {
                        through += 1;
                    } else {
                        assert_eq!(answer.status, StatusCode::CONFLICT, "{}", answer.body);
                        assert!(answer.detail().contains("generation conflict"), "{}", answer.body);
                    }
                }
                through
            })
        };
        all(|writer| {
            let (api, hosts, stop) = (Arc::clone(&api), Arc::clone(&hosts), Arc::clone(&stop));
            async move {
                for round in 0..6 {
                    let host = &hosts[(writer + round) % 2];
                    let consumer = Uuid::new_v4();
                    api.put(&path(consumer), host.claim(1, Value::Null)).await.is(204);
                    api.ask("DELETE", &path(consumer), None).await.is(204);
                }
                stop.fetch_add(1, Ordering::Relaxed);
            }
        })
        .await;
        assert!(operator.await.expect("the operator's writes succeed") > 0);
        common::audited(&store).await;
    }
}

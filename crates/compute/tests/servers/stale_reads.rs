//! Memory only moves forward: a read that began before a commit and ends after it changes nothing.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use kilonova_changes::{Entry, Subscriber, Topic};
use kilonova_compute_nodes::Link;
use kilonova_ids::HostName;
use kilonova_node_api::{ControlPlane, Refusal};
use serde_json::json;
use tokio::sync::Notify;

use crate::kit::{Cloud, GPU, RunningCloud, hosts};

struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Runs `early` until its read of the database has ended, then `change`, and then the rest of `early`.
async fn overtaken<T, F: Future<Output = T>>(
    early: impl Fn() -> F,
    change: impl Future<Output = ()>,
) -> T {
    let woken = Arc::new(Woken(Notify::new()));
    let waker = Waker::from(Arc::clone(&woken));
    for _ in 0..1000 {
        let mut early = pin!(early());
        if early.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            // The thread that reads wakes the future with the answer.
            woken.0.notified().await;
            change.await;
            return early.await;
        }
        // The answer came so fast that nothing could overtake it.
    }
    panic!("no read ends after its first poll");
}

fn entry(topic: Topic, subject: &str) -> [Entry; 1] {
    [Entry { seq: 1, topic, subject: subject.into(), number: 0 }]
}

async fn switch(running: &RunningCloud, how: &str) {
    let body = json!({"host": "a", "binary": "nova-compute"});
    running.admin("2.11", &format!("PUT /os-services/{how}"), body).await.expect(200);
}

#[tokio::test]
async fn a_follower_that_read_a_hosts_row_too_early_does_not_enable_it_again() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let entries = entry(Topic::Host, "a");
        let follow = || running.compute.apply(&entries);
        overtaken(follow, switch(&running, "disable")).await.expect("the entry is applied");
        let host = running.compute.fleet.by_name("a").expect("the host is known");
        assert!(!host.is_enabled(), "{}", cloud.name);
        let id = running.active_server(&cloud, "one", "vgpu").await;
        assert_eq!(running.server(&id).await["OS-EXT-SRV-ATTR:host"], "b");
        let follow = || running.compute.reload();
        overtaken(follow, switch(&running, "enable")).await.expect("the rows are read");
        assert!(host.is_enabled(), "{}", cloud.name);
        cloud.teardown(&running, "an early read").await;
    }
}

#[tokio::test]
async fn a_poll_that_read_a_hosts_row_too_early_does_not_enable_it_again() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let (link, name) = (Link(running.compute.clone()), HostName::verbatim("a"));
        let host = running.compute.fleet.by_name("a").expect("the host is known");
        // The session is not in memory, so the row is read.
        let poll = || link.desired(&name, host.epoch() + 1, 0);
        let answer = overtaken(poll, switch(&running, "disable")).await;
        assert!(matches!(answer, Err(Refusal::Rejected(_))), "{answer:?}");
        assert!(!host.is_enabled(), "{}", cloud.name);
        switch(&running, "enable").await;
        cloud.teardown(&running, "an early read").await;
    }
}

#[tokio::test]
async fn a_follower_that_read_the_aggregates_too_early_does_not_take_them_back() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let body = json!({"aggregate": {"name": "fast"}});
        let made = running.admin("2.90", "POST /os-aggregates", body).await.expect(200);
        let path = format!("POST /os-aggregates/{}/action", made["aggregate"]["id"]);
        let act = async |body| {
            running.admin("2.90", &path, body).await.expect(200);
        };
        let host = running.compute.fleet.by_name("a").expect("the host is known");
        let entries = entry(Topic::Aggregates, "");
        let change = async {
            act(json!({"add_host": {"host": "a"}})).await;
            act(json!({"set_metadata": {"metadata": {"disk": "ssd"}}})).await;
        };
        let follow = || running.compute.apply(&entries);
        overtaken(follow, change).await.expect("the entry is applied");
        assert_eq!(host.aggregates().values("disk").collect::<String>(), "ssd", "{}", cloud.name);
        let follow = || running.compute.apply(&entries);
        let change = act(json!({"remove_host": {"host": "a"}}));
        overtaken(follow, change).await.expect("the entry is applied");
        assert_eq!(host.aggregates().all().count(), 0, "{}", cloud.name);
        cloud.teardown(&running, "an early read").await;
    }
}

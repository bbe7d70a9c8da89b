//! Live migrations whose old host does not know, or cannot say, where the guest is: it is found, lost
//! nowhere, and never runs twice.

use std::path::PathBuf;
use std::time::Duration;

use kilonova_compute::reconcile::nudge;
use kilonova_hypervisor::simulated::{Failure, Fate, Plan, Simulated};
use kilonova_hypervisor::{Hypervisor, Step};
use kilonova_ids::ServerId;
use kilonova_node::topology::Topology;
use kilonova_node_api::{OutgoingMigration, Peer};
use kilonova_store::testing::CrashPlan;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::kit::{Cloud, GPU, Up, fault, hosts, patiently};
use crate::servers::leaving::on_its_way;
use crate::servers::moving::admin;

const LASTING: &str = "times_ms = { migrate = 60000 }";

fn live() -> Value {
    json!({"os-migrateLive": {"host": "b", "block_migration": "auto"}})
}

fn two() -> Topology {
    hosts(&[("a", &[GPU, LASTING]), ("b", &[GPU])])
}

/// Watches, while it is kept, that a server's guest never runs on both hosts.
struct Watch(JoinHandle<()>);

impl Watch {
    fn over(cloud: &Cloud, id: &str) -> Self {
        let marks: Vec<PathBuf> =
            ["a", "b"].map(|host| cloud.nodes().join(host).join("running").join(id)).into();
        Self(tokio::spawn(async move {
            loop {
                let runs = |mark: &PathBuf| std::fs::read(mark).is_ok_and(|how| how.is_empty());
                assert!(!marks.iter().all(runs), "the guest runs twice");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }))
    }

    async fn end(self) {
        self.0.abort();
        assert!(self.0.await.is_err_and(|error| error.is_cancelled()), "it ran twice");
    }
}

/// A server with a vGPU whose guest is on its way from `a` to `b`.
async fn leaving(cloud: &Cloud, up: &Up) -> (String, Watch) {
    let id = up.active_on(cloud, "a", "vgpu").await;
    let watch = Watch::over(cloud, &id);
    admin(up, "2.90", &id, live()).await.expect(202);
    on_its_way(up, &id).await;
    (id, watch)
}

/// The guest arrives on `b`, and its old host does not hear of it. The agent of `a` must be away.
async fn goes_unheard(cloud: &Cloud, id: &str) {
    let (step, fate) = (Step::Migrate, Fate::Arrives);
    let failure = Failure { step, server_name: "*".into(), times: None, fate };
    let plan = Plan::new(Default::default(), vec![failure]);
    let there = Simulated::open(cloud.nodes().join("a"), plan).expect("a host");
    let server: ServerId = id.parse().expect("an id");
    let to = Peer { host: "b".into(), address: String::new() };
    let departure = OutgoingMigration { to, devices: Vec::new(), force: true };
    let error = there.migrate_out(server, &departure).await.expect_err("it says so");
    assert!(error.message.contains("simulated"), "{error}");
    assert_eq!(cloud.files("b", "running"), [id], "it has arrived");
}

/// The services begin again, and have not heard of a host for so long that it counts as lost.
async fn silent_for_long(cloud: &Cloud, up: &mut Up, host: &str) {
    up.force_down(host, false).await;
    let sql = match host {
        "a" => "UPDATE hosts SET last_seen = last_seen - 61000000 WHERE host = 'a'",
        _ => "UPDATE hosts SET last_seen = last_seen - 61000000 WHERE host = 'b'",
    };
    cloud.execute(sql).await;
    up.succeed(cloud, CrashPlan::default()).await;
}

/// What runs every few seconds, as if ten had passed.
async fn later(cloud: &Cloud, up: &Up) {
    cloud.execute("UPDATE operations SET updated_at = 0 WHERE outcome = 'open'").await;
    nudge::run(up.compute.clone()).await.expect("runs");
}

async fn step(cloud: &Cloud, is: &str) {
    patiently(is, async || {
        cloud.column("SELECT step FROM operations WHERE outcome = 'open'").await == [is]
    })
    .await;
}

/// The server is on that host, the migration ended so, and nothing is left on the other.
async fn ends(cloud: &Cloud, up: &Up, (id, watch): (String, Watch), host: &str, status: &str) {
    let server = up.becomes(&id, "ACTIVE").await;
    assert_eq!(server["OS-EXT-SRV-ATTR:host"], host);
    assert_eq!(server["OS-EXT-STS:power_state"], 1);
    let last = "SELECT status FROM moves ORDER BY number DESC LIMIT 1";
    assert_eq!(cloud.column(last).await, [status]);
    up.hosts_have_dropped(cloud).await;
    cloud.sound(up, host).await;
    watch.end().await;
    cloud.sweep(up, host).await;
}

/// The guest goes while both agents are dead, and only that of its old host comes back.
async fn is_looked_for(cloud: &Cloud, up: &mut Up, id: &str) {
    up.nodes.kill("a").await;
    up.nodes.kill("b").await;
    goes_unheard(cloud, id).await;
    up.start_node(cloud, "a").await;
    step(cloud, "find").await;
}

#[tokio::test]
async fn a_guest_that_arrived_though_its_host_says_that_it_failed() {
    for fate in ["goes", "stands"] {
        let fail = format!("fail = [{{ step = \"migrate\", guest = \"{fate}\" }}]");
        for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU, &fail]), ("b", &[GPU])])).await {
            for paused in [false, true] {
                let id = up.active_on(&cloud, "a", "vgpu-pair").await;
                let watch = Watch::over(&cloud, &id);
                let status = if paused { "PAUSED" } else { "ACTIVE" };
                if paused {
                    admin(&up, "2.90", &id, json!({"pause": null})).await.expect(202);
                    up.becomes(&id, status).await;
                }
                admin(&up, "2.90", &id, live()).await.expect(202);
                let server = up.becomes(&id, status).await;
                // One that stood still anyway, and is still there, is believed to have stayed.
                let there = if paused && fate == "stands" { "a" } else { "b" };
                assert_eq!(server["OS-EXT-SRV-ATTR:host"], there, "{fate} {status}");
                up.hosts_have_dropped(&cloud).await;
                cloud.sound(&up, fate).await;
                watch.end().await;
                cloud.sweep(&up, fate).await;
            }
        }
    }
}

#[tokio::test]
async fn a_guest_that_arrived_while_the_agent_of_its_host_was_dead() {
    for (cloud, mut up) in Cloud::all_up(two()).await {
        let one = leaving(&cloud, &up).await;
        up.nodes.kill("a").await;
        goes_unheard(&cloud, &one.0).await;
        up.start_node(&cloud, "a").await;
        ends(&cloud, &up, one, "b", "completed").await;
    }
}

#[tokio::test]
async fn a_guest_that_arrived_while_nobody_looked_is_waited_for() {
    for (cloud, mut up) in Cloud::all_up(two()).await {
        let one = leaving(&cloud, &up).await;
        is_looked_for(&cloud, &mut up, &one.0).await;
        for _ in 0..3 {
            later(&cloud, &up).await;
        }
        assert_eq!(up.server(&one.0).await["status"], "MIGRATING");
        assert_eq!(cloud.files("a", "running"), Vec::<String>::new(), "not started anew");
        cloud.audit("nobody says where it is").await;
        up.start_node(&cloud, "b").await;
        ends(&cloud, &up, one, "b", "completed").await;
    }
}

#[tokio::test]
async fn a_new_host_that_is_silent_for_long_is_told_of_and_nothing_is_removed() {
    for (cloud, mut up) in Cloud::all_up(two()).await {
        let one = leaving(&cloud, &up).await;
        is_looked_for(&cloud, &mut up, &one.0).await;
        silent_for_long(&cloud, &mut up, "b").await;
        later(&cloud, &up).await;
        assert_eq!(up.server(&one.0).await["status"], "MIGRATING", "not yet");
        let long_ago = "UPDATE operations SET data = REPLACE(data, '\"asked\":', '\"asked\":-')
            WHERE outcome = 'open'";
        cloud.execute(long_ago).await;
        later(&cloud, &up).await;
        let server = up.server(&one.0).await;
        assert_eq!(server["status"], "ERROR");
        assert!(fault(&server).contains("b has not said for 300 s"), "{server}");
        later(&cloud, &up).await;
        cloud.audit("told").await;
        assert_eq!(cloud.files("b", "running"), [one.0.as_str()], "it runs on");
        assert_eq!(cloud.files("a", "running"), Vec::<String>::new(), "not started anew");
        up.start_node(&cloud, "b").await;
        patiently("it is found", async || up.server(&one.0).await["status"] == "ACTIVE").await;
        ends(&cloud, &up, one, "b", "completed").await;
    }
}

/// The guest is nowhere; its new host is silent, until somebody declares it dead.
#[tokio::test]
async fn a_new_host_that_is_declared_dead_has_nothing() {
    for (cloud, mut up) in Cloud::all_up(two()).await {
        let one = leaving(&cloud, &up).await;
        up.nodes.kill("b").await;
        let server: ServerId = one.0.parse().expect("an id");
        up.nodes.hypervisor("a").destroy(server).await.expect("it died");
        step(&cloud, "find").await;
        later(&cloud, &up).await;
        assert_eq!(cloud.files("a", "running"), Vec::<String>::new(), "not started anew");
        up.force_down("b", true).await;
        later(&cloud, &up).await;
        later(&cloud, &up).await;
        let server = up.becomes(&one.0, "ACTIVE").await;
        assert_eq!(server["OS-EXT-SRV-ATTR:host"], "a");
        up.force_down("b", false).await;
        up.start_node(&cloud, "b").await;
        ends(&cloud, &up, one, "a", "failed").await;
    }
}

#[tokio::test]
async fn a_guest_that_is_nowhere_goes_on_where_it_was() {
    for (cloud, up) in Cloud::all_up(two()).await {
        for how in ["died", "stands still"] {
            let one = leaving(&cloud, &up).await;
            let server: ServerId = one.0.parse().expect("an id");
            let host = up.nodes.hypervisor("a");
            if how == "died" {
                host.destroy(server).await.expect("it died");
            } else {
                host.pause(server).await.expect("it stands still");
                let list = up.get("admin", "2.80", &format!("/servers/{}/migrations", one.0)).await;
                let number = &list.body["migrations"][0]["id"];
                let what = format!("DELETE /servers/{}/migrations/{number}", one.0);
                up.call("admin", "2.80", &what, None).await.expect(202);
            }
            let status = if how == "died" { "failed" } else { "cancelled" };
            ends(&cloud, &up, one, "a", status).await;
        }
    }
}

#[tokio::test]
async fn a_guest_whose_old_host_is_lost_is_asked_for_on_the_new_one() {
    for (cloud, mut up) in Cloud::all_up(two()).await {
        let one = leaving(&cloud, &up).await;
        up.nodes.kill("a").await;
        silent_for_long(&cloud, &mut up, "a").await;
        later(&cloud, &up).await;
        step(&cloud, "find").await;
        later(&cloud, &up).await;
        assert_eq!(up.server(&one.0).await["status"], "MIGRATING", "it may still be on its way");
        goes_unheard(&cloud, &one.0).await;
        later(&cloud, &up).await;
        let server = up.becomes(&one.0, "ACTIVE").await;
        assert_eq!(server["OS-EXT-SRV-ATTR:host"], "b");
        cloud.audit("the old host has not dropped it").await;
        up.start_node(&cloud, "a").await;
        ends(&cloud, &up, one, "b", "completed").await;
    }
}

#[tokio::test]
async fn an_old_host_that_was_silent_goes_on_sending() {
    for (cloud, mut up) in Cloud::all_up(two()).await {
        let one = leaving(&cloud, &up).await;
        up.nodes.kill("a").await;
        silent_for_long(&cloud, &mut up, "a").await;
        later(&cloud, &up).await;
        step(&cloud, "find").await;
        up.start_node(&cloud, "a").await;
        step(&cloud, "transfer").await;
        let number = on_its_way(&up, &one.0).await;
        let what = format!("POST /servers/{}/migrations/{number}/action", one.0);
        up.call("admin", "2.80", &what, Some(json!({"force_complete": null}))).await.expect(202);
        ends(&cloud, &up, one, "b", "completed").await;
    }
}

#[tokio::test]
async fn one_that_nobody_finds_can_be_deleted() {
    for (cloud, mut up) in Cloud::all_up(two()).await {
        let (id, watch) = leaving(&cloud, &up).await;
        is_looked_for(&cloud, &mut up, &id).await;
        up.call("admin", "2.90", &format!("DELETE /servers/{id}"), None).await.expect(204);
        up.start_node(&cloud, "b").await;
        up.goes(&id).await;
        up.hosts_have_dropped(&cloud).await;
        watch.end().await;
        cloud.empty(&up, "deleted").await;
    }
}

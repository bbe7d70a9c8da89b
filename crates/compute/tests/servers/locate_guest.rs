//! Live migrations whose source does not know, or cannot report, where the guest is: the guest is
//! located, and never runs twice.

use std::path::PathBuf;
use std::time::Duration;

use kilonova_compute_app::reconcile::nudge;
use kilonova_hypervisor::simulated::{Failure, GuestLocation, Plan, Simulated};
use kilonova_hypervisor::{Hypervisor, Step};
use kilonova_ids::{HostName, ServerId};
use kilonova_node::topology::Topology;
use kilonova_node_api::{OutgoingMigration, Peer};
use kilonova_store::testing::CrashPlan;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::kit::{Cloud, GPU, RunningCloud, fault, hosts, wait_until};
use crate::servers::live_migration::wait_until_migrating;
use crate::servers::resize::admin;

const SLOW_MIGRATION: &str = "times_ms = { migrate = 60000 }";

fn live() -> Value {
    json!({"os-migrateLive": {"host": "b", "block_migration": "auto"}})
}

fn two() -> Topology {
    hosts(&[("a", &[GPU, SLOW_MIGRATION]), ("b", &[GPU])])
}

/// Checks continuously that a server's guest does not run on both hosts.
struct SplitBrainWatch(JoinHandle<()>);

impl SplitBrainWatch {
    fn over(cloud: &Cloud, id: &str) -> Self {
        let marks: Vec<PathBuf> =
            ["a", "b"].map(|host| cloud.nodes().join(host).join("running").join(id)).into();
        Self(tokio::spawn(async move {
            loop {
                let runs = |mark: &PathBuf| std::fs::read(mark).is_ok_and(|how| how.is_empty());
                assert!(!marks.iter().all(runs), "the guest runs on both hosts");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }))
    }

    async fn end(self) {
        self.0.abort();
        assert!(
            self.0.await.is_err_and(|error| error.is_cancelled()),
            "the guest ran on both hosts"
        );
    }
}

/// Boots a server with a vGPU on `a`, and starts its live migration to `b`.
async fn start_migration(cloud: &Cloud, running: &RunningCloud) -> (String, SplitBrainWatch) {
    let id = running.active_server_on(cloud, "a", "vgpu").await;
    let watch = SplitBrainWatch::over(cloud, &id);
    admin(running, "2.90", &id, live()).await.expect(202);
    wait_until_migrating(running, &id).await;
    (id, watch)
}

/// Makes the guest arrive on `b` without an acknowledgement for `a`. The agent of `a` must be stopped.
async fn arrive_unacknowledged(cloud: &Cloud, id: &str) {
    let (step, guest) = (Step::Migrate, GuestLocation::Destination);
    let failure = Failure { step, server_name: "*".into(), times: None, guest };
    let plan = Plan::new(Default::default(), vec![failure]);
    let there = Simulated::open(cloud.nodes().join("a"), plan).expect("the host is known");
    let server: ServerId = id.parse().expect("the id is a UUID");
    let to = Peer { host: HostName::verbatim("b"), address: String::new() };
    let departure = OutgoingMigration {
        to,
        devices: Vec::new(),
        force: true,
        volumes: Vec::new(),
        numa: None,
        interfaces: Vec::new(),
    };
    let error =
        there.migrate_out(server, &departure).await.expect_err("the hypervisor reports a failure");
    assert!(error.message.contains("simulated"), "{error}");
    assert_eq!(cloud.files("b", "running"), [id], "the guest has arrived");
}

/// Restarts the services after a host has been down for long enough.
async fn silent_for_long(cloud: &Cloud, running: &mut RunningCloud, host: &str) {
    running.force_down(host, false).await;
    let sql = match host {
        "a" => "UPDATE hosts SET last_seen = last_seen - 61000000 WHERE host = 'a'",
        _ => "UPDATE hosts SET last_seen = last_seen - 61000000 WHERE host = 'b'",
    };
    cloud.execute(sql).await;
    running.replace_services(cloud, CrashPlan::default()).await;
}

/// Runs the periodic task as if ten seconds had passed.
async fn run_periodic_tasks(cloud: &Cloud, running: &RunningCloud) {
    cloud.execute("UPDATE operations SET updated_at = 0 WHERE outcome = 'open'").await;
    nudge::run(running.compute.clone()).await.expect("the periodic task succeeds");
}

async fn wait_for_step(cloud: &Cloud, is: &str) {
    wait_until(is, async || {
        cloud.column("SELECT step FROM operations WHERE outcome = 'open'").await == [is]
    })
    .await;
}

/// Checks the host and the migration's status, and that nothing is left on the other host.
async fn assert_ended(
    cloud: &Cloud,
    running: &RunningCloud,
    (id, watch): (String, SplitBrainWatch),
    host: &str,
    status: &str,
) {
    let server = running.wait_for_status(&id, "ACTIVE").await;
    assert_eq!(server["OS-EXT-SRV-ATTR:host"], host);
    assert_eq!(server["OS-EXT-STS:power_state"], 1);
    let last = "SELECT status FROM moves ORDER BY number DESC LIMIT 1";
    assert_eq!(cloud.column(last).await, [status]);
    running.wait_for_host_cleanup(cloud).await;
    cloud.assert_consistent(running, host).await;
    watch.end().await;
    cloud.teardown(running, host).await;
}

/// Makes the guest migrate while both agents are dead, and only the source's agent returns.
async fn arrive_while_agents_are_dead(cloud: &Cloud, running: &mut RunningCloud, id: &str) {
    running.nodes.kill("a").await;
    running.nodes.kill("b").await;
    arrive_unacknowledged(cloud, id).await;
    running.start_node(cloud, "a").await;
    wait_for_step(cloud, "find").await;
}

#[tokio::test]
async fn a_guest_that_arrived_is_found_after_a_reported_failure() {
    for guest in ["destination", "both"] {
        let fail = format!("fail = [{{ step = \"migrate\", guest = \"{guest}\" }}]");
        for (cloud, running) in
            Cloud::all_running(hosts(&[("a", &[GPU, &fail]), ("b", &[GPU])])).await
        {
            for paused in [false, true] {
                let id = running.active_server_on(&cloud, "a", "vgpu-pair").await;
                let watch = SplitBrainWatch::over(&cloud, &id);
                let status = if paused { "PAUSED" } else { "ACTIVE" };
                if paused {
                    admin(&running, "2.90", &id, json!({"pause": null})).await.expect(202);
                    running.wait_for_status(&id, status).await;
                }
                admin(&running, "2.90", &id, live()).await.expect(202);
                let server = running.wait_for_status(&id, status).await;
                // A paused guest that is still on the source has not migrated.
                let there = if paused && guest == "both" { "a" } else { "b" };
                assert_eq!(server["OS-EXT-SRV-ATTR:host"], there, "{guest} {status}");
                running.wait_for_host_cleanup(&cloud).await;
                cloud.assert_consistent(&running, guest).await;
                watch.end().await;
                cloud.teardown(&running, guest).await;
            }
        }
    }
}

#[tokio::test]
async fn a_guest_that_arrived_is_found_after_the_source_agent_died() {
    for (cloud, mut running) in Cloud::all_running(two()).await {
        let one = start_migration(&cloud, &running).await;
        running.nodes.kill("a").await;
        arrive_unacknowledged(&cloud, &one.0).await;
        running.start_node(&cloud, "a").await;
        assert_ended(&cloud, &running, one, "b", "completed").await;
    }
}

#[tokio::test]
async fn the_server_waits_for_the_destination_to_report() {
    for (cloud, mut running) in Cloud::all_running(two()).await {
        let one = start_migration(&cloud, &running).await;
        arrive_while_agents_are_dead(&cloud, &mut running, &one.0).await;
        for _ in 0..3 {
            run_periodic_tasks(&cloud, &running).await;
        }
        assert_eq!(running.server(&one.0).await["status"], "MIGRATING");
        assert_eq!(
            cloud.files("a", "running"),
            Vec::<String>::new(),
            "the guest is not started again"
        );
        cloud.audit("the guest is not located").await;
        running.start_node(&cloud, "b").await;
        assert_ended(&cloud, &running, one, "b", "completed").await;
    }
}

#[tokio::test]
async fn a_silent_destination_is_a_fault_and_nothing_is_removed() {
    for (cloud, mut running) in Cloud::all_running(two()).await {
        let one = start_migration(&cloud, &running).await;
        arrive_while_agents_are_dead(&cloud, &mut running, &one.0).await;
        silent_for_long(&cloud, &mut running, "b").await;
        run_periodic_tasks(&cloud, &running).await;
        assert_eq!(
            running.server(&one.0).await["status"],
            "MIGRATING",
            "the timeout has not passed"
        );
        let long_ago = "UPDATE operations SET data = REPLACE(data, '\"asked\":', '\"asked\":-')
            WHERE outcome = 'open'";
        cloud.execute(long_ago).await;
        run_periodic_tasks(&cloud, &running).await;
        let server = running.server(&one.0).await;
        assert_eq!(server["status"], "ERROR");
        assert!(fault(&server).contains("b has not reported for 300 s"), "{server}");
        run_periodic_tasks(&cloud, &running).await;
        cloud.audit("explained").await;
        assert_eq!(cloud.files("b", "running"), [one.0.as_str()], "the guest still runs");
        assert_eq!(
            cloud.files("a", "running"),
            Vec::<String>::new(),
            "the guest is not started again"
        );
        running.start_node(&cloud, "b").await;
        wait_until("the guest is located", async || {
            running.server(&one.0).await["status"] == "ACTIVE"
        })
        .await;
        assert_ended(&cloud, &running, one, "b", "completed").await;
    }
}

/// The guest is on neither host; the destination does not report until it is forced down.
#[tokio::test]
async fn a_destination_declared_down_has_no_guest() {
    for (cloud, mut running) in Cloud::all_running(two()).await {
        let one = start_migration(&cloud, &running).await;
        running.nodes.kill("b").await;
        let server: ServerId = one.0.parse().expect("the id is a UUID");
        running.nodes.hypervisor("a").destroy(server).await.expect("the guest is destroyed");
        wait_for_step(&cloud, "find").await;
        run_periodic_tasks(&cloud, &running).await;
        assert_eq!(
            cloud.files("a", "running"),
            Vec::<String>::new(),
            "the guest is not started again"
        );
        running.force_down("b", true).await;
        run_periodic_tasks(&cloud, &running).await;
        run_periodic_tasks(&cloud, &running).await;
        let server = running.wait_for_status(&one.0, "ACTIVE").await;
        assert_eq!(server["OS-EXT-SRV-ATTR:host"], "a");
        running.force_down("b", false).await;
        running.start_node(&cloud, "b").await;
        assert_ended(&cloud, &running, one, "a", "failed").await;
    }
}

#[tokio::test]
async fn a_guest_on_neither_host_restarts_on_the_source() {
    for (cloud, running) in Cloud::all_running(two()).await {
        for how in ["destroyed", "paused"] {
            let one = start_migration(&cloud, &running).await;
            let server: ServerId = one.0.parse().expect("the id is a UUID");
            let host = running.nodes.hypervisor("a");
            if how == "destroyed" {
                host.destroy(server).await.expect("the guest is destroyed");
            } else {
                host.pause(server).await.expect("the guest is paused");
                let list =
                    running.get("admin", "2.80", &format!("/servers/{}/migrations", one.0)).await;
                let number = &list.body["migrations"][0]["id"];
                let what = format!("DELETE /servers/{}/migrations/{number}", one.0);
                running.call("admin", "2.80", &what, None).await.expect(202);
            }
            let status = if how == "destroyed" { "failed" } else { "cancelled" };
            assert_ended(&cloud, &running, one, "a", status).await;
        }
    }
}

#[tokio::test]
async fn the_destination_is_asked_when_the_source_is_lost() {
    for (cloud, mut running) in Cloud::all_running(two()).await {
        let one = start_migration(&cloud, &running).await;
        running.nodes.kill("a").await;
        silent_for_long(&cloud, &mut running, "a").await;
        run_periodic_tasks(&cloud, &running).await;
        wait_for_step(&cloud, "find").await;
        run_periodic_tasks(&cloud, &running).await;
        assert_eq!(
            running.server(&one.0).await["status"],
            "MIGRATING",
            "the guest may still be migrating"
        );
        arrive_unacknowledged(&cloud, &one.0).await;
        run_periodic_tasks(&cloud, &running).await;
        let server = running.wait_for_status(&one.0, "ACTIVE").await;
        assert_eq!(server["OS-EXT-SRV-ATTR:host"], "b");
        cloud.audit("the old host has not dropped it").await;
        running.start_node(&cloud, "a").await;
        assert_ended(&cloud, &running, one, "b", "completed").await;
    }
}

#[tokio::test]
async fn a_silent_source_continues_the_migration() {
    for (cloud, mut running) in Cloud::all_running(two()).await {
        let one = start_migration(&cloud, &running).await;
        running.nodes.kill("a").await;
        silent_for_long(&cloud, &mut running, "a").await;
        run_periodic_tasks(&cloud, &running).await;
        wait_for_step(&cloud, "find").await;
        running.start_node(&cloud, "a").await;
        wait_for_step(&cloud, "transfer").await;
        let number = wait_until_migrating(&running, &one.0).await;
        let what = format!("POST /servers/{}/migrations/{number}/action", one.0);
        running
            .call("admin", "2.80", &what, Some(json!({"force_complete": null})))
            .await
            .expect(202);
        assert_ended(&cloud, &running, one, "b", "completed").await;
    }
}

#[tokio::test]
async fn a_server_whose_guest_is_not_found_can_be_deleted() {
    for (cloud, mut running) in Cloud::all_running(two()).await {
        let (id, watch) = start_migration(&cloud, &running).await;
        arrive_while_agents_are_dead(&cloud, &mut running, &id).await;
        running.call("admin", "2.90", &format!("DELETE /servers/{id}"), None).await.expect(204);
        running.start_node(&cloud, "b").await;
        running.wait_until_gone(&id).await;
        running.wait_for_host_cleanup(&cloud).await;
        watch.end().await;
        cloud.assert_empty(&running, "deleted").await;
    }
}

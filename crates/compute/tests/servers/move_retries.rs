//! Migrations whose destination fails or goes down continue to a third host; live migrations are queued;
//! forced destinations skip the filters.

use kilonova_compute_app::Options;
use kilonova_compute_app::reconcile::nudge;
use kilonova_ids::HostName;
use serde_json::{Value, json};

use crate::kit::{ADMIN, Cloud, GPU, RunningCloud, hosts, wait_until};
use crate::servers::resize::admin;

const SLOW_MIGRATION: &str = "times_ms = { migrate = 60000 }";

fn three() -> kilonova_node::topology::Topology {
    hosts(&[
        ("a", &[GPU, SLOW_MIGRATION]),
        ("b", &[GPU, SLOW_MIGRATION]),
        ("c", &[GPU, SLOW_MIGRATION]),
    ])
}

async fn host_of(running: &RunningCloud, id: &str) -> Value {
    running.server(id).await["OS-EXT-SRV-ATTR:host"].clone()
}

/// The destination of the newest migration.
async fn dest(cloud: &Cloud) -> String {
    let sql = "SELECT COALESCE(dest_host, '') FROM moves ORDER BY number DESC LIMIT 1";
    cloud.column(sql).await.remove(0)
}

async fn statuses(cloud: &Cloud) -> Vec<String> {
    cloud.column("SELECT status FROM moves ORDER BY number").await
}

/// Marks the host as down and runs the task that handles hosts that are down.
async fn lose_host(cloud: &Cloud, running: &RunningCloud, host: &str) {
    running.force_down(host, true).await;
    cloud.execute("UPDATE operations SET updated_at = 0 WHERE outcome = 'open'").await;
    nudge::run(running.compute.clone()).await.expect("the periodic task succeeds");
}

/// Restarts hosts that were lost.
async fn bring_hosts_back(running: &mut RunningCloud, cloud: &Cloud, hosts: &[&str]) {
    for host in hosts {
        running.start_node(cloud, host).await;
        running.force_down(host, false).await;
    }
    running.wait_for_host_cleanup(cloud).await;
}

/// Waits until the destination has a document.
async fn wait_for_document(cloud: &Cloud) {
    let sql = "SELECT subject FROM operations WHERE step = 'make_dest' AND outcome = 'open'";
    wait_until("a document exists", async || cloud.column(sql).await.len() == 1).await;
}

/// Either candidate may be chosen, so both are stopped, and the one that was not chosen is restarted.
#[tokio::test]
async fn a_third_host_is_tried_when_the_second_is_lost() {
    for (cloud, mut running) in Cloud::all_running(three()).await {
        for (action, ends) in [
            (json!({"migrate": null}), "VERIFY_RESIZE"),
            (json!({"resize": {"flavorRef": "vgpu-pair"}}), "VERIFY_RESIZE"),
            (json!({"evacuate": {}}), "ACTIVE"),
        ] {
            let id = running.active_server_on(&cloud, "a", "vgpu").await;
            let evacuates = action.get("evacuate").is_some();
            for host in ["b", "c"] {
                running.nodes.kill(host).await;
            }
            if evacuates {
                running.nodes.kill("a").await;
                running.force_down("a", true).await;
            }
            let answer = admin(&running, "2.90", &id, action.clone()).await;
            assert!(answer.status.is_success(), "{}", answer.body);
            wait_for_document(&cloud).await;
            let second = dest(&cloud).await;
            let third = if second == "b" { "c" } else { "b" };
            lose_host(&cloud, &running, &second).await;
            assert_eq!(dest(&cloud).await, third);
            cloud.audit("the third host is tried").await;
            running.start_node(&cloud, third).await;
            running.wait_for_status(&id, ends).await;
            assert_eq!(host_of(&running, &id).await, third);
            if evacuates {
                bring_hosts_back(&mut running, &cloud, &["a", &second]).await;
            } else {
                admin(&running, "2.90", &id, json!({"confirmResize": null})).await.expect(204);
                running.wait_for_status(&id, "ACTIVE").await;
                bring_hosts_back(&mut running, &cloud, &[&second]).await;
            }
            cloud.assert_consistent(&running, "all hosts are back").await;
            let mut all = statuses(&cloud).await;
            let last = if evacuates { "completed" } else { "confirmed" };
            assert_eq!(all.split_off(all.len() - 2), ["error", last]);
            cloud.teardown(&running, ends).await;
        }
    }
}

/// No other host is left: there is one migration, and the server continues on the source.
#[tokio::test]
async fn without_a_third_host_the_server_returns() {
    let few = Options { max_attempts: 1, ..Options::default() };
    for options in [Options::default(), few] {
        let topology = if options.max_attempts == 1 {
            three()
        } else {
            hosts(&[("a", &[GPU]), ("b", &[GPU])])
        };
        for mut cloud in Cloud::all(topology).await {
            cloud.options = options.clone();
            let mut running = cloud.start().await;
            running.wait_for_hosts().await;
            let id = running.active_server_on(&cloud, "a", "vgpu").await;
            let others: Vec<HostName> =
                running.nodes.names().into_iter().filter(|name| name != "a").collect();
            for host in &others {
                running.nodes.kill(host).await;
            }
            admin(&running, "2.90", &id, json!({"migrate": null})).await.expect(202);
            wait_for_document(&cloud).await;
            let second = dest(&cloud).await;
            lose_host(&cloud, &running, &second).await;
            running.wait_for_status(&id, "ACTIVE").await;
            assert_eq!(host_of(&running, &id).await, "a");
            assert_eq!(statuses(&cloud).await, ["error"]);
            for host in &others {
                running.start_node(&cloud, host).await;
            }
            running.force_down(&second, false).await;
            running.wait_for_host_cleanup(&cloud).await;
            cloud.assert_consistent(&running, "the host is back").await;
            cloud.teardown(&running, "the host is back").await;
        }
    }
}

#[tokio::test]
async fn an_unshelve_tries_other_hosts() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        admin(&running, "2.90", &id, json!({"shelve": null})).await.expect(202);
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        running.restart_failing(&cloud, "a", &[("start", None)]).await;
        admin(&running, "2.90", &id, json!({"unshelve": null})).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(host_of(&running, &id).await, "b");
        cloud.assert_consistent(&running, "unshelved").await;

        admin(&running, "2.90", &id, json!({"shelve": null})).await.expect(202);
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        running.restart_failing(&cloud, "b", &[("start", None)]).await;
        admin(&running, "2.90", &id, json!({"unshelve": null})).await.expect(202);
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        cloud.assert_consistent(&running, "every host fails").await;
        cloud.teardown(&running, "every host fails").await;
    }
}

fn live(host: Option<&str>) -> Value {
    json!({"os-migrateLive": {"host": host, "block_migration": "auto"}})
}

async fn migrate_until_running(running: &RunningCloud, cloud: &Cloud, id: &str) {
    wait_until("the migration runs", async || {
        let sql = "SELECT o.subject FROM operations o WHERE o.step = 'transfer'";
        cloud.column(sql).await == [id] && running.server(id).await["status"] == "MIGRATING"
    })
    .await;
}

/// The source dies during a live migration: the destination first removes its incoming guest.
#[tokio::test]
async fn a_migrating_server_is_evacuated() {
    for lost in [false, true] {
        for (cloud, mut running) in Cloud::all_running(three()).await {
            let id = running.active_server_on(&cloud, "a", "vgpu").await;
            admin(&running, "2.90", &id, live(Some("b"))).await.expect(202);
            migrate_until_running(&running, &cloud, &id).await;
            running.nodes.kill("a").await;
            let evacuate = json!({"evacuate": {}});
            admin(&running, "2.90", &id, evacuate.clone()).await.refused(400, "still in use");
            running.force_down("a", true).await;
            if lost {
                running.nodes.kill("b").await;
            }
            admin(&running, "2.90", &id, evacuate).await.expect(200);
            cloud.audit("evacuated").await;
            if lost {
                assert_eq!(
                    running.server(&id).await["status"],
                    "REBUILD",
                    "the server waits for host b"
                );
                lose_host(&cloud, &running, "b").await;
            }
            running.wait_for_status(&id, "ACTIVE").await;
            let there = host_of(&running, &id).await;
            assert!(there != "a" && (!lost || there == "c"), "{there}");
            cloud.audit("arrived").await;
            let back: &[&str] = if lost { &["a", "b"] } else { &["a"] };
            bring_hosts_back(&mut running, &cloud, back).await;
            cloud.assert_consistent(&running, "all hosts are back").await;
            cloud.teardown(&running, "all hosts are back").await;
        }
    }
}

/// A host has one outgoing live migration at a time, unless configured otherwise.
#[tokio::test]
async fn live_migrations_are_queued() {
    for (cloud, running) in Cloud::all_running(three()).await {
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(running.active_server_on(&cloud, "a", "vgpu").await);
        }
        for id in &ids {
            admin(&running, "2.90", id, live(None)).await.expect(202);
        }
        migrate_until_running(&running, &cloud, &ids[0]).await;
        assert_eq!(statuses(&cloud).await, ["running", "queued", "queued"]);
        cloud.audit("waiting").await;
        // The second is aborted, the third is deleted, and the first makes room for a fourth.
        let number = "SELECT CAST(number AS TEXT) FROM moves ORDER BY number";
        let numbers = cloud.column(number).await;
        let path = |n: usize| format!("DELETE /servers/{}/migrations/{}", ids[n], numbers[n]);
        running.call(ADMIN, "2.64", &path(1), None).await.refused(400, "is queued");
        running.call(ADMIN, "2.65", &path(1), None).await.expect(202);
        running.wait_for_status(&ids[1], "ACTIVE").await;
        running.call(ADMIN, "2.90", &format!("DELETE /servers/{}", ids[2]), None).await.expect(204);
        running.wait_until_gone(&ids[2]).await;
        cloud.audit("aborted").await;
        admin(&running, "2.90", &ids[1], live(Some("c"))).await.expect(202);
        assert_eq!(statuses(&cloud).await[3], "queued");
        let hurry = format!("POST /servers/{}/migrations/{}/action", ids[0], numbers[0]);
        running
            .call(ADMIN, "2.90", &hurry, Some(json!({"force_complete": null})))
            .await
            .expect(202);
        running.wait_for_status(&ids[0], "ACTIVE").await;
        migrate_until_running(&running, &cloud, &ids[1]).await;
        cloud.audit("queued migrations").await;
        running.delete_all_servers().await;
        running.wait_for_host_cleanup(&cloud).await;
        cloud.assert_empty(&running, "all deleted").await;
    }
}

/// A disabled host in another zone can be a destination only by force, and only if its devices can
/// be claimed.
#[tokio::test]
async fn force_skips_filters_but_not_claims() {
    for (cloud, mut running) in
        Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU]), ("c", &[])])).await
    {
        let zone = json!({"aggregate": {"name": "east", "availability_zone": "east"}});
        let made = running.admin("2.90", "POST /os-aggregates", zone).await.expect(200);
        let path = format!("POST /os-aggregates/{}/action", made["aggregate"]["id"]);
        running.admin("2.90", &path, json!({"add_host": {"host": "a"}})).await.expect(200);
        let more = json!({"availability_zone": "east"});
        let id = running.boot_with(&cloud, "one", "vgpu", more).await;
        running.wait_for_status(&id, "ACTIVE").await;

        let forced = |host: &str| {
            json!({"os-migrateLive": {
            "host": host, "block_migration": "auto", "force": true}})
        };
        admin(&running, "2.67", &id, live(Some("b"))).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(host_of(&running, &id).await, "a", "the other host is in another zone");
        admin(&running, "2.68", &id, forced("b")).await.refused(400, "'force' was unexpected");
        admin(&running, "2.67", &id, forced("c")).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(host_of(&running, &id).await, "a", "no device there can be claimed");
        admin(&running, "2.67", &id, forced("b")).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(host_of(&running, &id).await, "b");
        running.wait_for_host_cleanup(&cloud).await;
        cloud.assert_consistent(&running, "forced").await;

        running.nodes.kill("b").await;
        running.force_down("b", true).await;
        for (host, ends) in [("c", "b"), ("a", "a")] {
            let evacuate = json!({"evacuate": {"host": host, "force": true}});
            admin(&running, "2.67", &id, evacuate).await.expect(200);
            running.wait_for_status(&id, "ACTIVE").await;
            assert_eq!(host_of(&running, &id).await, ends, "{host}");
            cloud.audit(host).await;
        }
        bring_hosts_back(&mut running, &cloud, &["b"]).await;
        cloud.assert_consistent(&running, "evacuated").await;
        cloud.teardown(&running, "evacuated").await;
    }
}

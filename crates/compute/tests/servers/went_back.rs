//! A database that went back in time: a copy of its file is restored while the hosts keep running.

use std::sync::Arc;

use kilonova_changes::Subscriber;
use kilonova_store::testing::CrashPlan;
use serde_json::json;

use crate::kit::{ANN, Cloud, Controller, GPU, INTEL, RunningCloud, hosts, wait_until};

/// Hosts reconcile with the restored documents even if newer generations were issued before their next
/// request. They miss no document, and do not destroy a guest that has none.
#[tokio::test]
async fn hosts_reconcile_with_a_copy_that_is_put_back() {
    for (mut cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let Some(copied) = ({
            running.active_server(&cloud, "stopped", "plain").await;
            running.active_server(&cloud, "deleted", "plain").await;
            cloud.copy().await
        }) else {
            kilonova_testkit::skip_part("PostgreSQL; scripts/failover.py loses its commits");
            continue;
        };
        let ids = async |name: &str| {
            let servers = running.servers().await;
            let found = servers.iter().find(|server| server["name"] == name);
            found.expect("the server exists")["id"].as_str().expect("it has an id").to_owned()
        };
        let (stopped, deleted) = (ids("stopped").await, ids("deleted").await);
        running.act(&stopped, json!({"os-stop": null})).await;
        running.wait_for_status(&stopped, "SHUTOFF").await;
        let lost = running.active_server(&cloud, "lost", "plain").await;
        running.delete(&deleted).await;
        running.wait_until_gone(&deleted).await;
        running.wait_for_host_cleanup(&cloud).await;
        let before = running.compute.fleet.by_name("a").expect("the host is known").epoch();
        cloud.store = copied;
        let restored = Controller::open(&cloud).await;
        for name in ["one", "two", "three", "four", "five"] {
            let request = running.boot_request(&cloud, name, "plain");
            let made = restored.client.call(ANN, "2.90", "POST /servers", Some(request)).await;
            made.expect(202);
        }
        running.compute = restored.compute.clone();
        running.renew_client();
        running.connect(Arc::new(restored.link()));
        wait_until("the host registers again", async || {
            running.compute.fleet.by_name("a").is_some_and(|host| host.epoch() > before)
        })
        .await;
        wait_until("every server is active and its guest runs", async || {
            let servers = running.wait_all_idle().await;
            let guests = cloud.files("a", "running");
            servers.len() == 7
                && servers.iter().all(|server| {
                    let id = server["id"].as_str().expect("it has an id").to_owned();
                    server["status"] == "ACTIVE" && guests.contains(&id)
                })
        })
        .await;
        assert!(cloud.files("a", "running").contains(&lost), "an unknown guest is left alone");
        assert!(running.nodes.is_running("a"));
        cloud.audit("after the copy was restored").await;
    }
}

/// A database may lose the report of a host but keep the document that it answered. The host then has the newest
/// generation and nothing to report.
#[tokio::test]
async fn reports_that_the_database_lost_are_requested_again() {
    for restarts in [false, true] {
        for (cloud, mut running) in
            Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU]), ("c", &[INTEL])])).await
        {
            cloud.add_bitstreams().await;
            let resume = async |running: &mut RunningCloud| match restarts {
                true => running.replace_services(&cloud, CrashPlan::default()).await,
                false => {
                    running.compute.reload().await.expect("the rows are read");
                    running.compute.reloaded();
                }
            };
            let mut servers = Vec::new();
            // The first report of the second server is that of the order for its device.
            for flavor in ["plain", "loaded"] {
                let boot = async |running: &RunningCloud| {
                    servers.push(running.boot(&cloud, flavor, flavor).await);
                };
                running.lose_reports(1, boot).await;
                let id = servers.last().expect("it was requested").clone();
                assert_eq!(running.server(&id).await["status"], "BUILD", "{}", cloud.name);
                resume(&mut running).await;
                running.wait_for_status(&id, "ACTIVE").await;
            }
            running.act(&servers[0], json!({"resize": {"flavorRef": "vgpu"}})).await;
            running.wait_for_status(&servers[0], "VERIFY_RESIZE").await;
            let confirm = async |running: &RunningCloud| {
                let answer = running.try_act(&servers[0], json!({"confirmResize": null})).await;
                answer.expect(204);
            };
            running.lose_reports(1, confirm).await;
            resume(&mut running).await;
            running.wait_for_status(&servers[0], "ACTIVE").await;
            running.wait_for_host_cleanup(&cloud).await;
            let stop = async |running: &RunningCloud| {
                running.act(&servers[0], json!({"os-stop": null})).await
            };
            running.lose_reports(1, stop).await;
            assert_eq!(running.server(&servers[0]).await["status"], "ACTIVE");
            resume(&mut running).await;
            running.wait_for_status(&servers[0], "SHUTOFF").await;
            let delete = async |running: &RunningCloud| running.delete(&servers[0]).await;
            running.lose_reports(1, delete).await;
            resume(&mut running).await;
            running.wait_until_gone(&servers[0]).await;
            cloud.teardown(&running, "after lost reports").await;
            running.kill().await;
        }
    }
}

//! Packing: servers are placed where later requests lose least, the reported room equals the number of servers that
//! boot, and controllers share the demand.

use std::sync::Arc;

use kilonova_accelerator::State;
use kilonova_accelerator::reconcile::process_pending;
use kilonova_compute_app::reconcile::demand;
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Cloud, GPU, ONCE, RunningCloud, hosts};
use crate::servers::host_selection::placement;

async fn capacity(running: &RunningCloud, flavor: &str) -> Value {
    let path = format!("/kilonova/capacity?flavor={flavor}");
    let mut answer = running.get(ADMIN, "2.1", &path).await.expect(200);
    let flavors = answer["capacity"]["flavors"].as_array().expect("a list");
    assert_eq!(flavors.len(), 1, "{answer}");
    answer["capacity"].take()
}

#[tokio::test]
async fn as_many_servers_boot_as_the_capacity_says() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let before = capacity(&running, "vgpu-pair").await;
        assert_eq!((&before["hosts"], &before["hosts_up"]), (&json!(2), &json!(2)));
        assert_eq!(before["flavors"][0]["servers"], 8, "{before}");
        assert_eq!(before["flavors"][0]["hosts"], 2, "{before}");
        let devices = &before["devices"][0];
        assert_eq!(devices["resource_class"], "VGPU", "{before}");
        assert_eq!((&devices["devices"], &devices["free"]), (&json!(4), &json!(4)), "{before}");
        let mut on = Vec::new();
        for more in (0..8).rev() {
            let id = running.active_server(&cloud, "one", "vgpu-pair").await;
            let shown = running.get(ADMIN, "2.90", &format!("/servers/{id}")).await.expect(200);
            on.push(shown["server"]["OS-EXT-SRV-ATTR:host"].as_str().expect("a host").to_owned());
            let now = capacity(&running, "vgpu-pair").await;
            assert_eq!(now["flavors"][0]["servers"], more, "{now}");
        }
        assert!(on[..4].iter().all(|host| *host == on[0]), "the first four fill one host: {on:?}");
        assert!(on[4..].iter().all(|host| *host != on[0]), "the others fill the other: {on:?}");
        let full = capacity(&running, "vgpu").await;
        assert_eq!(full["flavors"][0]["servers"], 0, "{full}");
        let reason = full["flavors"][0]["reason"].as_str().expect("a reason");
        assert!(reason.contains("VGPU"), "{reason}");
        assert_eq!(full["devices"][0]["free_units"], 0, "{full}");
        let refused = running.boot(&cloud, "one", "vgpu-pair").await;
        running.wait_for_status(&refused, "ERROR").await;

        // A project member sees what a launch needs to show, but no names.
        let room = running.get(ANN, "2.1", "/kilonova/room?flavor=vgpu").await.expect(200);
        let room = room["room"].clone();
        assert_eq!((&room["servers"], &room["hosts"]), (&json!(0), &json!(0)), "{room}");
        let reason = room["reason"].as_str().expect("a reason");
        assert!(reason.contains("VGPU") && !reason.contains("gpu1"), "{reason}");
        let unknown = running.get(ANN, "2.1", "/kilonova/room?flavor=nothing").await;
        unknown.refused(404, "Flavor nothing could not be found.");

        let all = running.get(ADMIN, "2.1", "/kilonova/capacity").await.expect(200);
        assert!(all["capacity"]["flavors"].as_array().expect("a list").len() > 5, "{all}");
        running.get(ANN, "2.1", "/kilonova/capacity").await.refused(403, "kilonova:capacity:show");
        let unknown = running.get(ADMIN, "2.1", "/kilonova/capacity?flavor=nothing").await;
        unknown.refused(404, "Flavor nothing could not be found.");
        cloud.teardown(&running, "capacity").await;
    }
}

#[tokio::test]
async fn the_demand_is_kept_in_the_database() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        running.active_server(&cloud, "one", "vgpu").await;
        // Refused requests count too.
        let refused = running.boot(&cloud, "one", "fpga").await;
        running.wait_for_status(&refused, "ERROR").await;
        let compute = &running.compute;
        demand::run(compute.clone()).await.expect("the demand is written");
        running.active_server(&cloud, "two", "vgpu").await;
        demand::run(compute.clone()).await.expect("the demand is written");
        let rows = compute.store.read(kilonova_compute_db::demand::all).await.expect("the rows");
        let weights: Vec<i64> = rows.iter().map(|(_, weight)| *weight).collect();
        assert_eq!(weights.iter().sum::<i64>(), 3000, "{rows:?}");
        assert!(
            rows.iter().any(|(key, weight)| key.contains("VGPU") && *weight == 2000),
            "{rows:?}"
        );
        assert!(
            rows.iter().any(|(key, weight)| key.contains("FPGA") && *weight == 1000),
            "{rows:?}"
        );
        cloud.teardown(&running, "demand").await;
    }
}

#[tokio::test]
async fn shares_gather_on_one_device() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        for _ in 0..4 {
            running.active_server(&cloud, "one", "vgpu").await;
        }
        let capacity = capacity(&running, "vgpu").await;
        let devices = &capacity["devices"][0];
        assert_eq!((&devices["devices"], &devices["free"]), (&json!(4), &json!(3)), "{capacity}");
        assert_eq!(devices["divided_units"], 0, "the fourth took the last unit: {capacity}");
        cloud.teardown(&running, "shares").await;
    }
}

/// Binds of servers that failed for want of a free handle.
fn failed_binds() -> u64 {
    let counts = kilonova_accelerator::ledger::binds();
    let of_servers = counts.iter().filter(|one| one.source == "server" && one.outcome != "bound");
    of_servers.map(|one| one.count).sum()
}

#[tokio::test]
async fn devices_that_are_not_clean_yet_are_not_offered() {
    let topology = hosts(&[("a", &[ONCE]), ("b", &[ONCE]), ("c", &[ONCE])]);
    for (cloud, running) in Cloud::all_running(topology).await {
        let failed = failed_binds();
        let state = State::new(cloud.store.clone(), running.compute.world.clone())
            .with_nodes(Arc::new(running.compute.clone()));
        let id = running.active_server_on(&cloud, "a", "once").await;
        running.call("admin", "2.90", &format!("DELETE /servers/{id}"), None).await.expect(204);
        running.wait_until_gone(&id).await;
        let dirty = "SELECT address FROM attach_handles WHERE state = 'dirty'";
        assert_eq!(cloud.column(dirty).await.len(), 1, "an operator has to clean the device");
        // The first servers use the clean devices immediately.
        let (one, two) =
            tokio::join!(running.boot(&cloud, "one", "once"), running.boot(&cloud, "two", "once"));
        for id in [one, two] {
            let server = running.wait_for_status(&id, "ACTIVE").await;
            assert_ne!(server["OS-EXT-SRV-ATTR:host"], "a", "{server}");
        }
        assert_eq!(failed_binds(), failed, "no bind failed");
        let early = running.boot(&cloud, "early", "once").await;
        running.wait_for_status(&early, "ERROR").await;
        assert_eq!(failed_binds(), failed, "no bind failed");
        // The dirty device is used as soon as it is clean.
        let provider = "SELECT p.provider_id FROM deployables p JOIN attach_handles h
            ON h.deployable_id = p.id WHERE h.state = 'dirty'";
        let provider = cloud.column(provider).await.remove(0);
        let path = format!("/resource_providers/{provider}/inventories");
        let mut shown = placement(&running, "GET", &path, Value::Null).await;
        shown["inventories"]["CUSTOM_ONCE"]["reserved"] = json!(0);
        placement(&running, "PUT", &path, shown).await;
        process_pending(&state).await.expect("pending work is processed");
        let server = running.active_server(&cloud, "three", "once").await;
        let shown = running.server(&server).await;
        assert_eq!(shown["OS-EXT-SRV-ATTR:host"], "a", "{shown}");
        // An operator has to clean the devices of deleted servers, so the test ends before that.
        running.delete_all_servers().await;
        cloud.assert_consistent(&running, "cleaned").await;
    }
}

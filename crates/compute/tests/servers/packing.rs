//! Packing: servers gather where later requests lose least, the count of what fits is the number that boots, and the
//! demand is shared by controllers.

use kilonova_compute_app::reconcile::demand;
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Cloud, GPU, RunningCloud, hosts};

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

        // A member learns as much as it needs to launch, and no names.
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

//! Upstream's `VGPUTests`: a host with two GPUs of sixteen vGPUs each.

use serde_json::json;

use super::gpus::{
    FIRST, NVIDIA_11, SECOND, assert_mdev_usage, flavor, gpu, hosts, resize_and_revert_then_confirm,
};
use super::inspect::{assert_holds, devices, inventory, tree, used};
use crate::kit::{ANN, Cloud, RunningCloud};

const VGPU: &[(&str, i64)] = &[("VGPU", 1)];

async fn clouds(names: &[&str]) -> Vec<(Cloud, RunningCloud)> {
    let entries: Vec<_> = names.iter().map(|name| (*name, "one", NVIDIA_11)).collect();
    Cloud::all_running(hosts(&entries)).await
}

#[tokio::test]
async fn create_servers_with_vgpu() {
    for (cloud, running) in clouds(&["host1"]).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let places = assert_holds(&cloud, &running, &id, VGPU).await;
        assert_mdev_usage(&cloud, &running, "host1", "VGPU", 1).await;
        let seen = devices(&cloud, "host1", &id).remove(0);
        let parent = tree(&running, "host1")
            .await
            .remove(&places[0])
            .expect("the provider belongs to the tree");
        assert_eq!(parent, gpu("host1", &seen.parent));
        assert_eq!(cloud.files("host1", "mdevs"), [seen.is]);
        cloud.teardown(&running, "one vGPU").await;
        assert_mdev_usage(&cloud, &running, "host1", "VGPU", 0).await;
    }
}

#[tokio::test]
async fn resize_servers_with_vgpu() {
    for (cloud, running) in clouds(&["host1", "host2"]).await {
        flavor(&running, "larger", 128, json!({"resources:VGPU": "1"})).await;
        let id = running.active_server_on(&cloud, "host1", "vgpu").await;
        resize_and_revert_then_confirm(&cloud, &running, &id, "larger", "VGPU").await;
    }
}

#[tokio::test]
async fn multiple_instance_create() {
    for (cloud, running) in clouds(&["host1"]).await {
        let mut boot_request = running.boot_request(&cloud, "many", "vgpu");
        boot_request["server"]["min_count"] = json!(2);
        boot_request["server"]["return_reservation_id"] = json!(true);
        let made = running.call(ANN, "2.90", "POST /servers", Some(boot_request)).await.expect(202);
        let reservation = made["reservation_id"].as_str().expect("the answer has an id");
        running.wait_all_idle().await;
        let path = format!("/servers/detail?all_tenants=1&reservation_id={reservation}");
        let found = running.get("admin", "2.90", &path).await.expect(200);
        let servers = found["servers"].as_array().expect("the answer has a list");
        assert_eq!(servers.len(), 2);
        for server in servers {
            assert_eq!(server["status"], "ACTIVE", "{server}");
            assert_holds(
                &cloud,
                &running,
                server["id"].as_str().expect("the answer has an id"),
                VGPU,
            )
            .await;
        }
        assert_mdev_usage(&cloud, &running, "host1", "VGPU", 2).await;
        cloud.teardown(&running, "two").await;
    }
}

/// Upstream: "But... we fail miserably because of bug #1874664".
#[tokio::test]
async fn multiple_instance_create_filling_up_capacity() {
    for (cloud, running) in clouds(&["host1"]).await {
        flavor(&running, "sixteen", 64, json!({"resources:VGPU": "16"})).await;
        running.boot_with(&cloud, "many", "sixteen", json!({"min_count": 2})).await;
        let servers = running.wait_all_idle().await;
        assert_eq!(servers.len(), 2);
        for server in &servers {
            assert_eq!(server["status"], "ACTIVE", "{server}");
            assert_holds(
                &cloud,
                &running,
                server["id"].as_str().expect("the answer has an id"),
                &[("VGPU", 16)],
            )
            .await;
        }
        for address in [FIRST, SECOND] {
            assert_eq!(used(&running, &gpu("host1", address), "VGPU").await, 16);
        }
        assert_mdev_usage(&cloud, &running, "host1", "VGPU", 32).await;
        cloud.assert_consistent(&running, "full").await;
        cloud.teardown(&running, "full").await;
    }
}

/// The example of upstream's guide: two GPUs with four vGPUs each, two servers of four.
#[tokio::test]
async fn the_guides_example() {
    let topology = crate::kit::hosts(&[("host1", &[crate::kit::GPU])]);
    for (cloud, running) in Cloud::all_running(topology).await {
        running.boot_with(&cloud, "many", "vgpu4", json!({"max_count": 2})).await;
        let servers = running.wait_all_idle().await;
        assert_eq!(servers.len(), 2);
        for server in &servers {
            assert_eq!(server["status"], "ACTIVE", "{server}");
            assert_holds(
                &cloud,
                &running,
                server["id"].as_str().expect("the answer has an id"),
                &[("VGPU", 4)],
            )
            .await;
        }
        assert_mdev_usage(&cloud, &running, "host1", "VGPU", 8).await;
        cloud.teardown(&running, "the example of the guide").await;
    }
}

#[tokio::test]
async fn create_server_with_two_vgpus_isolated() {
    for (cloud, running) in clouds(&["host1"]).await {
        let id = running.active_server(&cloud, "one", "vgpu-pair").await;
        assert_holds(&cloud, &running, &id, &[("VGPU", 2)]).await;
        assert_mdev_usage(&cloud, &running, "host1", "VGPU", 2).await;
        for address in [FIRST, SECOND] {
            assert_eq!(used(&running, &gpu("host1", address), "VGPU").await, 1);
        }
        let parents: Vec<_> =
            devices(&cloud, "host1", &id).into_iter().map(|seen| seen.parent).collect();
        assert!(parents.contains(&FIRST.to_owned()) && parents.contains(&SECOND.to_owned()));
        cloud.teardown(&running, "isolated").await;
    }
}

/// In place of the regression test of bug 2098892.
#[tokio::test]
async fn update_available_resource() {
    for (cloud, mut running) in clouds(&["host1"]).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let had = devices(&cloud, "host1", &id);
        for _ in 0..2 {
            running.restart_failing(&cloud, "host1", &[]).await;
            assert_eq!(devices(&cloud, "host1", &id), had);
            assert_mdev_usage(&cloud, &running, "host1", "VGPU", 1).await;
            for address in [FIRST, SECOND] {
                let assert_bound = inventory(&running, &gpu("host1", address), "VGPU").await;
                assert_eq!(
                    (&assert_bound["total"], &assert_bound["reserved"]),
                    (&json!(16), &json!(0))
                );
            }
        }
        cloud.assert_consistent(&running, "reported again").await;
        cloud.teardown(&running, "reported again").await;
    }
}

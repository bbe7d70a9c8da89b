//! Cards whose vGPU type depends on their guests.

use serde_json::json;

use crate::kit::{ADMIN, Cloud, RETYPED, RETYPED_VFIO, RunningCloud, fault, hosts};

/// Creates the flavors `small` and `large`, each for one vGPU of its own type, unless they exist.
pub async fn flavors(running: &RunningCloud) {
    for (id, number) in [("small", 35), ("large", 36)] {
        let known = running.get(ADMIN, "2.61", &format!("/flavors/{id}")).await;
        if known.status.is_success() {
            continue;
        }
        running.flavor(id, json!({})).await;
        let specs = json!({
            "resources:VGPU": "1",
            format!("trait:CUSTOM_NVIDIA_{number}"): "required",
        });
        let path = format!("POST /flavors/{id}/os-extra_specs");
        running.admin("2.61", &path, json!({"extra_specs": specs})).await.expect(200);
    }
}

/// The units of the class that are offered now.
async fn free(cloud: &Cloud) -> i64 {
    let sql =
        "SELECT CAST(SUM(total - reserved - used) AS TEXT) FROM inventories WHERE class = 'VGPU'";
    cloud.column(sql).await[0].parse().expect("a number")
}

#[tokio::test]
async fn the_first_guest_decides_and_the_last_one_frees_the_card() {
    for (lines, all, after) in [(RETYPED, 6, [3, 1]), (RETYPED_VFIO, 8, [3, 3])] {
        for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[lines])])).await {
            flavors(&running).await;
            for ((flavor, number), (other, left)) in [("small", 35), ("large", 36)]
                .into_iter()
                .zip([("large", after[0]), ("small", after[1])])
            {
                assert_eq!(free(&cloud).await, all, "{flavor}");
                running.active_server(&cloud, flavor, flavor).await;
                assert_eq!(free(&cloud).await, left, "{flavor}");
                let types = cloud
                    .column("SELECT mdev_type FROM attach_handles WHERE state = 'owned'")
                    .await;
                assert_eq!(types, [format!("nvidia-{number}")]);
                let refused = running.boot(&cloud, "refused", other).await;
                let server = running.wait_for_status(&refused, "ERROR").await;
                let why = format!("it is in use as nvidia-{number}.");
                assert!(fault(&server).contains(&why), "{server}");
                cloud.assert_consistent(&running, flavor).await;
                // A scan while the type is in use changes nothing.
                running.restart_nodes(&cloud, async |_| ()).await;
                running.wait_for_hosts().await;
                assert_eq!(free(&cloud).await, left, "{flavor}");
                cloud.teardown(&running, flavor).await;
            }
            assert_eq!(free(&cloud).await, all);
        }
    }
}

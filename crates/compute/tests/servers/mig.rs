//! Cards in MIG mode, on which the agent creates GPU instances: an instance starts at the slice that the ledger
//! records, several sizes share a card, and sizes that no longer fit are not offered.

use serde_json::{Value, json};

use crate::kit::{ANN, Cloud, MIG_CLASSES, RunningCloud, fault, hosts};

/// Creates the flavors `one` and `three`, for an instance of one and of three slices.
async fn flavors(running: &RunningCloud) {
    for (id, class) in [("one", "CUSTOM_MIG_1G_5GB"), ("three", "CUSTOM_MIG_3G_20GB")] {
        running.flavor(id, json!({})).await;
        let specs = json!({ format!("resources:{class}"): "1" });
        let path = format!("POST /flavors/{id}/os-extra_specs");
        running.admin("2.61", &path, json!({"extra_specs": specs})).await.expect(200);
    }
}

/// The instances in use: type, card, first slice.
async fn instances(cloud: &Cloud) -> Vec<String> {
    let sql = "SELECT h.mdev_type || ' ' || d.card || ' ' || h.mig_start FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id JOIN devices d ON d.id = p.device_id
        WHERE h.state = 'owned' ORDER BY d.card, h.mig_start";
    cloud.column(sql).await
}

/// The units of each class that are offered now.
async fn free(cloud: &Cloud) -> (i64, i64) {
    const ONE: &str = "SELECT CAST(SUM(total - reserved - used) AS TEXT) FROM inventories
        WHERE class = 'CUSTOM_MIG_1G_5GB'";
    const THREE: &str = "SELECT CAST(SUM(total - reserved - used) AS TEXT) FROM inventories
        WHERE class = 'CUSTOM_MIG_3G_20GB'";
    let number = async |sql| cloud.column(sql).await[0].parse().expect("a number");
    (number(ONE).await, number(THREE).await)
}

#[tokio::test]
async fn instances_of_several_sizes_share_the_fullest_card() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[MIG_CLASSES])])).await {
        flavors(&running).await;
        let room = async || free(&cloud).await;
        assert_eq!(room().await, (14, 4));
        let mut ones = Vec::new();
        let three = running.active_server(&cloud, "large", "three").await;
        for name in ["s1", "s2", "s3"] {
            ones.push(running.active_server(&cloud, name, "one").await);
        }
        let mut all = instances(&cloud).await;
        assert!(all.iter().all(|one| one[10..22] == all[0][10..22]), "one card: {all:?}");
        let kinds: Vec<String> = all.iter().map(|one| one.replace(&one[9..22], "")).collect();
        assert_eq!(kinds, ["nvidia-36 0", "nvidia-35 4", "nvidia-35 5", "nvidia-35 6"]);
        assert_eq!(room().await, (7, 2));
        cloud.assert_consistent(&running, "one card is full").await;
        // These two use the other card.
        let other = running.active_server(&cloud, "other", "three").await;
        let last = running.active_server(&cloud, "last", "three").await;
        assert_eq!(room().await, (0, 0));
        let refused = running.boot(&cloud, "refused", "one").await;
        let server = running.wait_for_status(&refused, "ERROR").await;
        let why = "has no free CUSTOM_MIG_1G_5GB: its GPU instances are 3g.20gb at slice 0, ";
        assert!(fault(&server).contains(why), "{server}");
        running.delete(&refused).await;
        // A scan and a restart of the agent change nothing.
        all = instances(&cloud).await;
        running.restart_nodes(&cloud, async |_| ()).await;
        running.wait_for_hosts().await;
        assert_eq!((instances(&cloud).await, room().await), (all, (0, 0)));
        cloud.assert_consistent(&running, "both cards are full").await;
        // The slices of a deleted guest can be used for any size that fits.
        running.delete(&three).await;
        running.wait_until_gone(&three).await;
        assert_eq!(room().await, (4, 1));
        let again = running.active_server(&cloud, "again", "one").await;
        assert_eq!(room().await, (3, 0));
        cloud.assert_consistent(&running, "another size").await;
        for id in [other, last, again] {
            running.delete(&id).await;
            running.wait_until_gone(&id).await;
        }
        cloud.teardown(&running, "all are gone").await;
        assert_eq!(room().await, (14, 4));
    }
}

/// A device profile can request the class of a GPU instance, as a flavor can.
#[tokio::test]
async fn a_device_profile_takes_an_instance() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[MIG_CLASSES])])).await {
        cloud.profile("slice", &json!([{"resources:CUSTOM_MIG_3G_20GB": "2"}])).await;
        running.flavor("sliced", json!({})).await;
        let specs = json!({"extra_specs": {"accel:device_profile": "slice"}});
        running.admin("2.61", "POST /flavors/sliced/os-extra_specs", specs).await.expect(200);
        let id = running.active_server(&cloud, "sliced", "sliced").await;
        let starts: Vec<String> =
            instances(&cloud).await.iter().map(|one| one[22..].trim().to_owned()).collect();
        assert_eq!(starts, ["0", "4"]);
        let shown: Value = running.get(ANN, "2.90", &format!("/servers/{id}")).await.body;
        assert_eq!(shown["server"]["status"], "ACTIVE", "{shown}");
        cloud.teardown(&running, "sliced").await;
    }
}

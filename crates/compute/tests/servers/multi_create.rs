//! Several servers in one request.

use serde_json::{Value, json};

use crate::kit::{ANN, Cloud, GPU, GPUS, RunningCloud, fault, hosts};

async fn boot_several(
    running: &RunningCloud,
    cloud: &Cloud,
    flavor: &str,
    min: i64,
    max: i64,
) -> Vec<Value> {
    let more = json!({"min_count": min, "max_count": max});
    running.boot_with(cloud, "many", flavor, more).await;
    let mut servers = running.wait_all_idle().await;
    servers.sort_by_key(|server| server["OS-EXT-SRV-ATTR:launch_index"].as_i64());
    servers
}

fn all(servers: &[Value], status: &str) -> bool {
    servers.iter().all(|server| server["status"] == status)
}

#[tokio::test]
async fn all_requested_servers_boot() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        running.remove_quota_limits().await;
        let servers = boot_several(&running, &cloud, "vgpu", 2 * GPUS, 2 * GPUS).await;
        assert_eq!(servers.len() as i64, 2 * GPUS);
        assert!(all(&servers, "ACTIVE"), "{servers:#?}");
        assert_eq!(servers[0]["name"], "many-1");
        assert_eq!(servers[15]["name"], "many-16");
        let reservation = &servers[0]["OS-EXT-SRV-ATTR:reservation_id"];
        assert!(servers.iter().all(|s| s["OS-EXT-SRV-ATTR:reservation_id"] == *reservation));
        assert_eq!(cloud.used("VGPU").await, 2 * GPUS);
        cloud.assert_consistent(&running, "all").await;
        cloud.teardown(&running, "all").await;
    }
}

/// Upstream fails here: it tries only a host's first candidate.
#[tokio::test]
async fn servers_of_one_request_fill_both_gpus_of_a_host() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let servers = boot_several(&running, &cloud, "vgpu4", 2, 2).await;
        assert!(servers.len() == 2 && all(&servers, "ACTIVE"), "{servers:#?}");
        cloud.assert_consistent(&running, "both GPUs").await;
        cloud.teardown(&running, "both GPUs").await;
    }
}

#[tokio::test]
async fn as_many_as_fit_between_min_and_max() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let servers = boot_several(&running, &cloud, "vgpu", 2, 20).await;
        assert_eq!(servers.len() as i64, GPUS);
        assert!(all(&servers, "ACTIVE"), "{servers:#?}");
        cloud.assert_consistent(&running, "as many as fit").await;
        cloud.teardown(&running, "as many as fit").await;
    }
}

#[tokio::test]
async fn below_min_count_no_server_boots() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let servers = boot_several(&running, &cloud, "vgpu", GPUS + 1, GPUS + 4).await;
        assert_eq!(servers.len() as i64, GPUS + 1);
        assert!(all(&servers, "ERROR"), "{servers:#?}");
        assert!(servers.iter().all(|s| fault(s).starts_with("No valid host was found.")));
        assert_eq!(cloud.used("VGPU").await, 0);
        cloud.assert_consistent(&running, "below min_count").await;
        cloud.teardown(&running, "below min_count").await;
    }
}

#[tokio::test]
async fn the_answer_may_be_the_reservation_id() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let mut boot_request = running.boot_request(&cloud, "many", "plain");
        boot_request["server"]["min_count"] = json!(3);
        boot_request["server"]["return_reservation_id"] = json!(true);
        let made = running.call(ANN, "2.90", "POST /servers", Some(boot_request)).await.expect(202);
        let id = made["reservation_id"].as_str().expect("the answer has an id");
        let path = format!("/servers/detail?all_tenants=1&reservation_id={id}");
        assert_eq!(running.wait_all_idle().await.len(), 3);
        let found = running.get("admin", "2.90", &path).await.expect(200);
        assert_eq!(found["servers"].as_array().map(Vec::len), Some(3));
        cloud.teardown(&running, "reservation").await;
    }
}

#[tokio::test]
async fn the_quota_admits_all_or_none() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let quota = json!({"quota_set": {"instances": 3}});
        running.admin("2.90", "PUT /os-quota-sets/red", quota).await.expect(200);
        let mut boot_request = running.boot_request(&cloud, "many", "plain");
        boot_request["server"]["min_count"] = json!(4);
        let answer = running.call(ANN, "2.90", "POST /servers", Some(boot_request.clone())).await;
        answer.refused(403, "Quota exceeded for instances: Requested 4, but already used 0 of 3");
        cloud.assert_empty(&running, "after the refusal").await;
        boot_request["server"]["min_count"] = json!(3);
        running.call(ANN, "2.90", "POST /servers", Some(boot_request)).await.expect(202);
        assert_eq!(running.wait_all_idle().await.len(), 3);
        cloud.teardown(&running, "quota").await;
    }
}

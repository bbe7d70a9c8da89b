//! Several servers by one request.

use serde_json::{Value, json};

use crate::kit::{ANN, Cloud, GPU, GPUS, Up, fault, hosts};

async fn ask(up: &Up, cloud: &Cloud, flavor: &str, min: i64, max: i64) -> Vec<Value> {
    let more = json!({"min_count": min, "max_count": max});
    up.boot_with(cloud, "many", flavor, more).await;
    let mut servers = up.settle().await;
    servers.sort_by_key(|server| server["OS-EXT-SRV-ATTR:launch_index"].as_i64());
    servers
}

fn all(servers: &[Value], status: &str) -> bool {
    servers.iter().all(|server| server["status"] == status)
}

#[tokio::test]
async fn all_that_were_asked_for() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        up.lift_quota().await;
        let servers = ask(&up, &cloud, "vgpu", 2 * GPUS, 2 * GPUS).await;
        assert_eq!(servers.len() as i64, 2 * GPUS);
        assert!(all(&servers, "ACTIVE"), "{servers:#?}");
        assert_eq!(servers[0]["name"], "many-1");
        assert_eq!(servers[15]["name"], "many-16");
        let reservation = &servers[0]["OS-EXT-SRV-ATTR:reservation_id"];
        assert!(servers.iter().all(|s| s["OS-EXT-SRV-ATTR:reservation_id"] == *reservation));
        assert_eq!(cloud.used("VGPU").await, 2 * GPUS);
        cloud.sound(&up, "all").await;
        cloud.sweep(&up, "all").await;
    }
}

/// Upstream cannot do this: it only ever tries a host's first candidate.
#[tokio::test]
async fn servers_of_one_request_fill_both_gpus_of_a_host() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU])])).await {
        let servers = ask(&up, &cloud, "vgpu4", 2, 2).await;
        assert!(servers.len() == 2 && all(&servers, "ACTIVE"), "{servers:#?}");
        cloud.sound(&up, "both GPUs").await;
        cloud.sweep(&up, "both GPUs").await;
    }
}

#[tokio::test]
async fn as_many_as_fit_between_min_and_max() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU])])).await {
        let servers = ask(&up, &cloud, "vgpu", 2, 20).await;
        assert_eq!(servers.len() as i64, GPUS);
        assert!(all(&servers, "ACTIVE"), "{servers:#?}");
        cloud.sound(&up, "as many as fit").await;
        cloud.sweep(&up, "as many as fit").await;
    }
}

#[tokio::test]
async fn fewer_than_min_is_none() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU])])).await {
        let servers = ask(&up, &cloud, "vgpu", GPUS + 1, GPUS + 4).await;
        assert_eq!(servers.len() as i64, GPUS + 1);
        assert!(all(&servers, "ERROR"), "{servers:#?}");
        assert!(servers.iter().all(|s| fault(s).starts_with("No valid host was found.")));
        assert_eq!(cloud.used("VGPU").await, 0);
        cloud.sound(&up, "too few").await;
        cloud.sweep(&up, "too few").await;
    }
}

#[tokio::test]
async fn the_answer_may_be_the_reservation() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[])])).await {
        let mut wish = up.wish(&cloud, "many", "plain");
        wish["server"]["min_count"] = json!(3);
        wish["server"]["return_reservation_id"] = json!(true);
        let made = up.call(ANN, "2.90", "POST /servers", Some(wish)).await.expect(202);
        let id = made["reservation_id"].as_str().expect("an id");
        let path = format!("/servers/detail?all_tenants=1&reservation_id={id}");
        assert_eq!(up.settle().await.len(), 3);
        let found = up.get("admin", "2.90", &path).await.expect(200);
        assert_eq!(found["servers"].as_array().map(Vec::len), Some(3));
        cloud.sweep(&up, "reservation").await;
    }
}

#[tokio::test]
async fn a_quota_lets_all_in_or_none() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[])])).await {
        let quota = json!({"quota_set": {"instances": 3}});
        up.admin("2.90", "PUT /os-quota-sets/red", quota).await.expect(200);
        let mut wish = up.wish(&cloud, "many", "plain");
        wish["server"]["min_count"] = json!(4);
        let answer = up.call(ANN, "2.90", "POST /servers", Some(wish.clone())).await;
        answer.refused(403, "Quota exceeded for instances: Requested 4, but already used 0 of 3");
        cloud.empty(&up, "after the refusal").await;
        wish["server"]["min_count"] = json!(3);
        up.call(ANN, "2.90", "POST /servers", Some(wish)).await.expect(202);
        assert_eq!(up.settle().await.len(), 3);
        cloud.sweep(&up, "quota").await;
    }
}

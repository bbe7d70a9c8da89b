//! Operations that move a server, or may move it.

use kilonova_testkit::shared;
use serde_json::{Value, json};

use super::{ALL, act, flavors, print, row};
use crate::kit::{Cloud, RunningCloud, hosts};
use crate::servers::resize::admin;

const OPERATIONS: &[&str] = &[
    "resize to a larger flavor, confirm",
    "resize to a larger flavor, revert",
    "resize to a flavor without, confirm",
    "resize to a flavor without, revert",
    "resize to a flavor with another, confirm",
    "resize on one host, confirm",
    "resize on one host, revert",
    "cold migrate, confirm",
    "cold migrate to a host, revert",
    "cold migrate while stopped, confirm",
    "live migrate",
    "live migrate to a host",
    "evacuate",
    "evacuate to a host, 2.95",
    "delete while resized",
];

/// Resizes, then confirms or reverts.
async fn resize(cloud: &Cloud, running: &RunningCloud, id: &str, flavor: &str, end: &str) {
    act(running, id, json!({"resize": {"flavorRef": flavor}})).await;
    running.wait_for_status(id, "VERIFY_RESIZE").await;
    cloud.assert_consistent(running, flavor).await;
    finish(running, id, end).await;
}

async fn finish(running: &RunningCloud, id: &str, end: &str) {
    let verb = if end == "confirm" { "confirmResize" } else { "revertResize" };
    act(running, id, json!({verb: null})).await;
}

async fn perform(cloud: &Cloud, running: &RunningCloud, flavor: &str, operation: &str) -> String {
    let id = &running.active_server_on(cloud, "a", flavor).await;
    let (what, end) = operation.split_once(", ").unwrap_or((operation, ""));
    let mut rests = "ACTIVE";
    match what {
        "resize to a larger flavor" | "resize on one host" => {
            resize(cloud, running, id, &format!("{flavor}-large"), end).await;
        }
        "resize to a flavor without" => {
            let plain = if flavor == "plain" { "plain-large" } else { "plain" };
            resize(cloud, running, id, plain, end).await;
        }
        "resize to a flavor with another" => {
            let other = if flavor == "fpga" { "vgpu" } else { "fpga" };
            resize(cloud, running, id, other, end).await;
        }
        "cold migrate" | "cold migrate while stopped" | "cold migrate to a host" => {
            if what.ends_with("stopped") {
                act(running, id, json!({"os-stop": null})).await;
                running.wait_for_status(id, "SHUTOFF").await;
                rests = "SHUTOFF";
            }
            let host = if what.ends_with("host") { json!({"host": "b"}) } else { Value::Null };
            act(running, id, json!({"migrate": host})).await;
            running.wait_for_status(id, "VERIFY_RESIZE").await;
            cloud.assert_consistent(running, what).await;
            finish(running, id, end).await;
        }
        "live migrate" | "live migrate to a host" => {
            let host = what.ends_with("host").then_some("b");
            let body = json!({"os-migrateLive": {"host": host, "block_migration": "auto"}});
            let answer = admin(running, "2.90", id, body).await;
            if answer.status == 400 {
                assert!(answer.message().contains("cannot live-migrate"), "{}", answer.body);
                return "refused".into();
            }
            answer.expect(202);
            running.wait_for_status(id, "ACTIVE").await;
            assert_eq!(running.server(id).await["OS-EXT-SRV-ATTR:host"], "b");
        }
        "evacuate" | "evacuate to a host" => {
            running.force_down("a", true).await;
            let (version, body) = match end {
                "2.95" => ("2.95", json!({"host": "b"})),
                _ => ("2.94", json!({})),
            };
            rests = if end == "2.95" { "SHUTOFF" } else { "ACTIVE" };
            admin(running, version, id, json!({"evacuate": body})).await.expect(200);
            running.wait_until_idle(id).await;
            running.force_down("a", false).await;
        }
        "delete while resized" => {
            act(running, id, json!({"resize": {"flavorRef": format!("{flavor}-large")}})).await;
            running.wait_for_status(id, "VERIFY_RESIZE").await;
            rests = "VERIFY_RESIZE";
        }
        other => panic!("no such operation: {other}"),
    }
    let server = running.wait_for_status(id, rests).await;
    assert_ne!(server["OS-EXT-STS:vm_state"], "error", "{server}");
    "works".into()
}

#[tokio::test]
async fn every_move_with_every_accelerator() {
    for (share, mut cloud) in shared(Cloud::all(hosts(&[("a", &[ALL]), ("b", &[ALL])])).await) {
        let mut table = Vec::new();
        let mut running = cloud.start().await;
        running.wait_for_hosts().await;
        flavors(&running).await;
        for (number, operation) in OPERATIONS.iter().enumerate() {
            let alone = operation.contains("on one host");
            if cloud.options.allow_resize_to_same_host != alone {
                running.kill().await;
                cloud.options.allow_resize_to_same_host = alone;
                running = cloud.start().await;
                running.wait_for_hosts().await;
            }
            // With the other host disabled, a resize stays on its host.
            enable(&running, "b", !alone).await;
            let perform = async |cloud: &Cloud, running: &mut RunningCloud, flavor: &str| {
                perform(cloud, running, flavor, operation).await
            };
            let done = row(share, &cloud, &mut running, (number, operation), perform).await;
            table.push((*operation, done));
        }
        print(cloud.name, &table);
        running.kill().await;
    }
}

async fn enable(running: &RunningCloud, host: &str, on: bool) {
    let verb = if on { "enable" } else { "disable" };
    let body = json!({"host": host, "binary": "nova-compute"});
    running.admin("2.1", &format!("PUT /os-services/{verb}"), body).await.expect(200);
}

//! Boots on hosts that fail: at each step that a simulated host has.

use serde_json::json;

use crate::kit::{Cloud, FPGA, GPU, Up, fault, hosts};

/// Steps of a boot, with a flavor whose boot takes it.
const STEPS: &[(&str, &str)] =
    &[("create_mdev", "vgpu"), ("image", "vgpu"), ("define", "fpga"), ("start", "vgpu")];

async fn boot_on(up: &Up, cloud: &Cloud, host: &str, flavor: &str) -> String {
    let mut wish = up.wish(cloud, "one", flavor);
    wish["server"]["host"] = json!(host);
    let made = up.admin("2.90", "POST /servers", wish).await.expect(202);
    made["server"]["id"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn the_claim_moves_to_another_host() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("a", &[GPU, FPGA]), ("b", &[GPU, FPGA])])).await {
        for (step, flavor) in STEPS {
            up.restart_failing(&cloud, "a", &[(step, None)]).await;
            // Boots start on either host; of several, some start on the one that fails.
            for n in 0..4 {
                let id = up.boot(&cloud, &format!("n{n}"), flavor).await;
                let server = up.becomes(&id, "ACTIVE").await;
                assert_eq!(server["OS-EXT-SRV-ATTR:host"], "b", "{step}");
            }
            cloud.sound(&up, step).await;
            cloud.sweep(&up, step).await;
        }
        let moved = "SELECT CAST(COUNT(*) AS TEXT) FROM operation_events
            WHERE host = 'a' AND result = 'Error'";
        assert_ne!(cloud.column(moved).await, ["0"], "no boot ever started on the host that fails");
    }
}

#[tokio::test]
async fn without_another_host_the_fault_names_the_cause() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("a", &[GPU, FPGA])])).await {
        for (step, flavor) in STEPS {
            up.restart_failing(&cloud, "a", &[(step, None)]).await;
            let id = up.boot(&cloud, "one", flavor).await;
            let server = up.becomes(&id, "ERROR").await;
            let fault = fault(&server);
            assert!(fault.starts_with("No valid host was found."), "{step}: {fault}");
            assert!(fault.contains(&format!("a: {step}: ")), "{step}: {fault}");
            assert!(server["OS-EXT-SRV-ATTR:host"].is_null(), "{step}: {server}");
            assert_eq!(server["OS-EXT-STS:power_state"], 0, "{step}: {server}");
            assert_eq!(cloud.used("VCPU").await, 0, "{step}");
            cloud.sound(&up, step).await;
            cloud.sweep(&up, step).await;
        }
    }
}

#[tokio::test]
async fn a_named_host_that_fails_is_not_left_for_another() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        up.restart_failing(&cloud, "a", &[("start", None)]).await;
        let id = boot_on(&up, &cloud, "a", "vgpu").await;
        let server = up.becomes(&id, "ERROR").await;
        assert!(fault(&server).contains("a: start: "), "{server}");
        cloud.sound(&up, "named").await;
        cloud.sweep(&up, "named").await;
    }
}

#[tokio::test]
async fn three_hosts_are_tried_and_no_more() {
    let topology = hosts(&[("a", &[GPU]), ("b", &[GPU]), ("c", &[GPU]), ("d", &[GPU])]);
    for (cloud, mut up) in Cloud::all_up(topology).await {
        for host in ["a", "b", "c", "d"] {
            up.restart_failing(&cloud, host, &[("start", None)]).await;
        }
        let id = up.boot(&cloud, "one", "vgpu").await;
        let server = up.becomes(&id, "ERROR").await;
        let words = "Exceeded maximum number of retries. Exhausted all hosts available for \
            retrying build failures for instance";
        assert!(fault(&server).starts_with(&format!("{words} {id}.")), "{server}");
        let tries = "SELECT DISTINCT host FROM operation_events WHERE result = 'Error'";
        assert_eq!(cloud.column(tries).await.len(), 3);
        cloud.sound(&up, "three").await;
        cloud.sweep(&up, "three").await;
    }
}

/// The host that failed also fails to clean up at first: what it may still hold is not given on.
#[tokio::test]
async fn a_host_that_cannot_clean_up_keeps_its_claim_until_it_can() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("a", &[GPU])])).await {
        let id = up.active(&cloud, "one", "vgpu").await;
        up.restart_failing(&cloud, "a", &[("destroy", Some(1))]).await;
        up.delete(&id).await;
        up.goes(&id).await;
        cloud.empty(&up, "at last").await;
        let failed = "SELECT details FROM operation_events WHERE result = 'Error'";
        let failed = cloud.column(failed).await;
        assert!(failed.len() == 1 && failed[0].contains("a: destroy: "), "{failed:?}");
    }
}

//! Visibility of a failure: the owner sees the message; administrators also see the host and the details.

use serde_json::{Value, json};

use super::resize::admin;
use crate::kit::{ADMIN, ANN, Cloud, GPU, RunningCloud, hosts};

async fn fault(running: &RunningCloud, token: &str, id: &str) -> Value {
    let shown = running.get(token, "2.96", &format!("/servers/{id}")).await.expect(200);
    let listed = running.get(token, "2.96", "/servers/detail").await.expect(200);
    if token == ANN {
        let all = listed["servers"].as_array().expect("the answer has a list");
        let of = all.iter().find(|server| server["id"] == id).expect("the server is listed");
        assert_eq!(of["fault"], shown["server"]["fault"]);
    }
    shown["server"]["fault"].clone()
}

/// The newest action with its events.
async fn action(running: &RunningCloud, token: &str, id: &str) -> Value {
    let path = format!("/servers/{id}/os-instance-actions");
    let list = running.get(token, "2.96", &path).await.expect(200);
    let request =
        list["instanceActions"][0]["request_id"].as_str().expect("the answer has an id").to_owned();
    let shown = running.get(token, "2.96", &format!("{path}/{request}")).await.expect(200);
    shown["instanceAction"].clone()
}

#[tokio::test]
async fn hosts_and_details_are_shown_to_administrators_only() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("secret-1", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.restart_failing(&cloud, "secret-1", &[("start", Some(1))]).await;
        running.act(&id, json!({"reboot": {"type": "HARD"}})).await;
        running.wait_for_status(&id, "ERROR").await;

        let notified = fault(&running, ANN, &id).await;
        assert_eq!(notified["message"], "The host could not restart the guest.");
        assert_eq!(notified.get("details"), None, "{notified}");
        let all = fault(&running, ADMIN, &id).await;
        assert_eq!(all["message"], notified["message"]);
        assert!(
            all["details"].as_str().is_some_and(|d| d.starts_with("secret-1: start: ")),
            "{all}"
        );

        let notified = action(&running, ANN, &id).await;
        let event = &notified["events"][0];
        assert_eq!((&notified["message"], &event["result"]), (&json!("Error"), &json!("Error")));
        assert_eq!((event.get("details"), event.get("host")), (None, None), "{event}");
        assert_eq!(event["hostId"].as_str().map(str::len), Some(56), "{event}");
        assert!(!notified.to_string().contains("secret"), "{notified}");
        let all = action(&running, ADMIN, &id).await;
        let event = &all["events"][0];
        assert_eq!(event["host"], "secret-1");
        assert!(
            event["details"].as_str().is_some_and(|d| d.starts_with("secret-1: start")),
            "{all}"
        );
    }
}

/// Upstream: `_reset_state` in `nova/api/openstack/compute/admin_actions.py` changes only the state.
#[tokio::test]
async fn a_reset_of_the_state_keeps_the_fault() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.restart_failing(&cloud, "a", &[("start", Some(1))]).await;
        running.act(&id, json!({"reboot": {"type": "HARD"}})).await;
        running.wait_for_status(&id, "ERROR").await;
        let failed = fault(&running, ADMIN, &id).await;
        assert_eq!(failed["message"], "The host could not restart the guest.");
        for (state, status) in [("error", "ERROR"), ("active", "ACTIVE"), ("error", "ERROR")] {
            let reset = json!({"os-resetState": {"state": state}});
            admin(&running, "2.96", &id, reset).await.expect(202);
            running.wait_for_status(&id, status).await;
            let shown = if state == "error" { failed.clone() } else { Value::Null };
            assert_eq!(fault(&running, ADMIN, &id).await, shown, "{state}");
            let path = format!("GET /kilonova/servers/{id}");
            let explained = running.call(ADMIN, "2.96", &path, None).await.expect(200);
            let explained = &explained["server"]["fault"]["message"];
            assert_eq!(*explained, shown["message"], "{state}");
        }
        running.act(&id, json!({"reboot": {"type": "HARD"}})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.teardown(&running, "reset").await;
    }
}

#[tokio::test]
async fn a_failed_boot_names_no_host_to_the_tenant() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("secret-1", &[GPU])])).await {
        running.restart_failing(&cloud, "secret-1", &[("start", None)]).await;
        let id = running.boot(&cloud, "one", "vgpu").await;
        running.wait_for_status(&id, "ERROR").await;
        let notified = fault(&running, ANN, &id).await;
        let message = notified["message"].as_str().expect("the value is a string");
        let prefix = "No valid host was found. There are not enough hosts available. ";
        assert!(message.starts_with(prefix), "{notified}");
        assert!(message.len() <= 255 && !notified.to_string().contains("secret"), "{notified}");
        let all = fault(&running, ADMIN, &id).await;
        assert!(all["details"].as_str().is_some_and(|d| d.contains("secret-1: start")), "{all}");
        let shown = running.get(ANN, "2.96", &format!("/servers/{id}/os-instance-actions")).await;
        assert!(!shown.expect(200).to_string().contains("secret"));
    }
}

#[tokio::test]
async fn an_old_fault_without_details_shows_nothing_to_the_tenant() {
    for (cloud, running) in Cloud::all_running(hosts(&[("secret-1", &[])])).await {
        let id = running.boot(&cloud, "one", "vgpu").await;
        running.wait_for_status(&id, "ERROR").await;
        let sql = "UPDATE servers SET fault = \
            '{\"code\": 500, \"message\": \"secret-1: x\", \"created\": 0, \"details\": null}'";
        cloud
            .store
            .write(move |tx| tx.execute(sql, kilonova_store::params![]))
            .await
            .expect("the row is changed");
        let notified = fault(&running, ANN, &id).await;
        assert_eq!(notified["message"], "The server failed. An administrator can see why.");
        assert_eq!(fault(&running, ADMIN, &id).await["message"], "secret-1: x");
    }
}

//! Actions of operators: reset-state, console log, locks, and actions that are not supported.

use kilonova_node_api::Outcome;
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Answer, Cloud, GPU, RunningCloud, hosts, wait_until};
use crate::servers::instance_actions::{actions, succeeded};

async fn admin(running: &RunningCloud, id: &str, action: Value) -> Answer {
    running.call(ADMIN, "2.90", &format!("POST /servers/{id}/action"), Some(action)).await
}

#[tokio::test]
async fn console_log() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let all = running.try_act(&id, json!({"os-getConsoleOutput": {}})).await.expect(200);
        let all = all["output"].as_str().expect("the value is a string").to_owned();
        assert!(all.contains("device: mdev") && all.ends_with("one login:\n"), "{all}");
        for (length, lines) in
            [(json!(1), 1), (json!("2"), 2), (json!(-1), all.split('\n').count())]
        {
            let action = json!({"os-getConsoleOutput": {"length": length}});
            let text = running.try_act(&id, action).await.expect(200);
            let text = text["output"].as_str().expect("the value is a string").to_owned();
            assert_eq!(text.split('\n').count(), lines, "as Nova counts them");
            assert!(all.ends_with(&text), "{text}");
        }
        for wrong in [json!(null), json!({"length": "x"}), json!({"lines": 1})] {
            let answer = running.try_act(&id, json!({"os-getConsoleOutput": wrong})).await;
            assert_eq!(answer.status, 400, "{}", answer.body);
        }
        assert!(cloud.column("SELECT id FROM questions").await.is_empty());
        running.nodes.kill("a").await;
        running.force_down("a", true).await;
        let answer = running.try_act(&id, json!({"os-getConsoleOutput": {}})).await;
        answer.refused(503, "does not answer");
        running.force_down("a", false).await;
        running.start_node(&cloud, "a").await;
        cloud.teardown(&running, "explained").await;
    }
}

#[tokio::test]
async fn reset_state() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let error = json!({"os-resetState": {"state": "error"}});
        running.try_act(&id, error.clone()).await.refused(403, "Policy");
        assert_eq!(admin(&running, &id, error).await.status, 202);
        assert_eq!(running.server(&id).await["status"], "ERROR");
        let active = json!({"os-resetState": {"state": "active"}});
        assert_eq!(admin(&running, &id, active.clone()).await.status, 202);
        running.wait_for_status(&id, "ACTIVE").await;
        for wrong in [json!(null), json!({}), json!({"state": "stopped"})] {
            let answer = admin(&running, &id, json!({"os-resetState": wrong})).await;
            assert_eq!(answer.status, 400, "{}", answer.body);
        }
        running.nodes.kill("a").await;
        running.act(&id, json!({"pause": null})).await;
        assert_eq!(admin(&running, &id, active).await.status, 202);
        running.wait_for_status(&id, "ACTIVE").await;
        let left = "SELECT id FROM operations WHERE outcome = 'open'";
        assert!(cloud.column(left).await.is_empty(), "no operation is open");
        cloud.audit("reset").await;
        running.delete(&id).await;
        let answer = admin(&running, &id, json!({"os-resetState": {"state": "active"}})).await;
        answer.refused(409, "removed from its host");
        running.start_node(&cloud, "a").await;
        running.wait_until_gone(&id).await;
        cloud.assert_empty(&running, "reset").await;
    }
}

#[tokio::test]
async fn a_lock_refuses_users() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.act(&id, json!({"lock": {"locked_reason": "mine"}})).await;
        let locked = format!("Instance {id} is locked");
        for action in [
            json!({"pause": null}),
            json!({"suspend": null}),
            json!({"rescue": {}}),
            json!({"shelve": null}),
            json!({"rebuild": {"imageRef": cloud.image}}),
            json!({"reboot": {"type": "HARD"}}),
            json!({"os-stop": null}),
            json!({"forceDelete": null}),
            json!({"trigger_crash_dump": null}),
        ] {
            running.try_act(&id, action).await.refused(409, &locked);
        }
        running
            .call(ANN, "2.90", &format!("DELETE /servers/{id}"), None)
            .await
            .refused(409, &locked);
        assert_eq!(running.try_act(&id, json!({"createImage": {"name": "i"}})).await.status, 202);
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(admin(&running, &id, json!({"pause": null})).await.status, 202);
        running.wait_for_status(&id, "PAUSED").await;
        running.act(&id, json!({"unlock": null})).await;
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        cloud.assert_empty(&running, "unlocked").await;
    }
}

/// Upstream: `lock` and `unlock` in `nova/compute/api.py`.
#[tokio::test]
async fn an_owners_lock_does_not_replace_another() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let reason = async || running.server(&id).await["locked_reason"].clone();
        for words in ["first", "second"] {
            running.act(&id, json!({"lock": {"locked_reason": words}})).await;
            assert_eq!(reason().await, "first");
        }
        assert_eq!(admin(&running, &id, json!({"lock": null})).await.status, 202);
        assert_eq!(reason().await, "first", "a lock without a reason keeps the last one");
        running.act(&id, json!({"lock": {"locked_reason": "third"}})).await;
        assert_eq!(reason().await, "first");
        running.try_act(&id, json!({"unlock": null})).await.refused(403, "Policy");
        assert_eq!(running.server(&id).await["locked"], true);
        assert_eq!(admin(&running, &id, json!({"unlock": null})).await.status, 202);
        assert_eq!(running.server(&id).await["locked"], false);
        assert_eq!(
            actions(&running, &id).await[1..],
            [
                succeeded("lock", "api_lock"),
                succeeded("lock", "api_lock"),
                succeeded("unlock", "api_unlock"),
            ]
        );
        cloud.teardown(&running, "unlocked").await;
    }
}

#[tokio::test]
async fn unsupported_actions_are_refused() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let path = format!("POST /servers/{id}/action");
        let vnc = json!({"os-getVNCConsole": {"type": "novnc"}});
        for (version, action, code, part) in [
            ("2.90", json!({"changePassword": {"adminPass": "x"}}), 409, "guest agent"),
            ("2.90", json!({"changePassword": {}}), 400, "adminPass"),
            ("2.90", json!({"resetNetwork": null}), 410, "no longer available"),
            ("2.90", json!({"injectNetworkInfo": null}), 403, "inject_network_info"),
            ("2.6", vnc, 404, "not supported"),
            (
                "2.5",
                json!({"os-getSPICEConsole": {"type": "spice-html5"}}),
                400,
                "Unavailable console",
            ),
            ("2.16", json!({"trigger_crash_dump": null}), 404, "not supported"),
            ("2.43", json!({"addFixedIp": {"networkId": "n"}}), 404, "Network could not be found"),
            ("2.43", json!({"addFloatingIp": {"address": "192.0.2.9"}}), 400, "network service"),
            ("2.44", json!({"addFixedIp": {"networkId": "n"}}), 404, "not supported"),
            ("2.90", json!({"addSecurityGroup": {"name": "web"}}), 404, "Security group web"),
        ] {
            running.call(ANN, version, &path, Some(action)).await.refused(code, part);
        }
        running.wait_for_status(&id, "ACTIVE").await;
        let failed = "SELECT kind FROM operations WHERE outcome = 'failed'";
        assert_eq!(cloud.column(failed).await, ["changePassword"]);
        cloud.teardown(&running, "refused").await;
    }
}

/// Guests that shut down, or are paused on their host by hand.
#[tokio::test]
async fn guests_that_stop_or_are_paused_on_their_host() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        for (action, status) in
            [(None, "ACTIVE"), (Some("pause"), "PAUSED"), (Some("suspend"), "SUSPENDED")]
        {
            let id = running.active_server(&cloud, "one", "vgpu").await;
            if let Some(action) = action {
                running.act(&id, json!({action: null})).await;
            }
            running.wait_for_status(&id, status).await;
            running.report(&cloud, "a", &id, Outcome::Stopped).await;
            let server = running.wait_for_status(&id, "SHUTOFF").await;
            assert_eq!(server["OS-EXT-STS:power_state"], 4, "{server}");
            wait_until("the host reports the state", async || {
                cloud.files("a", "running").is_empty() && cloud.files("a", "saved").is_empty()
            })
            .await;
            cloud.assert_consistent(&running, "shut down").await;
            running.act(&id, json!({"os-start": null})).await;
            running.wait_for_status(&id, "ACTIVE").await;
            running.report(&cloud, "a", &id, Outcome::Paused).await;
            let server = running.wait_for_status(&id, "ACTIVE").await;
            assert_eq!(server["OS-EXT-STS:power_state"], 3, "{server}");
            cloud.teardown(&running, status).await;
        }
    }
}

//! Instance actions: what was asked of a server and what came of it, in Nova's words.

use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Cloud, FPGA, GPU, Up, hosts};

/// Names of a server's actions, oldest first, each with the names and results of its events.
pub async fn actions(up: &Up, id: &str) -> Vec<(String, Value, Vec<(String, String)>)> {
    let path = format!("/servers/{id}/os-instance-actions");
    let list = up.get(ADMIN, "2.90", &path).await.expect(200);
    let mut found = Vec::new();
    for action in list["instanceActions"].as_array().expect("a list").iter().rev() {
        let request = action["request_id"].as_str().expect("an id");
        let one = up.get(ADMIN, "2.90", &format!("{path}/{request}")).await.expect(200);
        let events = one["instanceAction"]["events"].as_array().expect("events").clone();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let events = events.iter().map(|e| (text(&e["event"]), text(&e["result"]))).collect();
        found.push((text(&action["action"]), action["message"].clone(), events));
    }
    found
}

pub fn fine(action: &str, event: &str) -> (String, Value, Vec<(String, String)>) {
    (action.into(), Value::Null, vec![(event.into(), "Success".into())])
}

#[tokio::test]
async fn a_life_as_actions() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[FPGA])])).await {
        let id = up.active(&cloud, "one", "fpga").await;
        for (action, status) in [
            (json!({"os-stop": null}), "SHUTOFF"),
            (json!({"os-start": null}), "ACTIVE"),
            (json!({"reboot": {"type": "SOFT"}}), "ACTIVE"),
            (json!({"reboot": {"type": "HARD"}}), "ACTIVE"),
        ] {
            up.act(&id, action).await;
            up.becomes(&id, status).await;
        }
        up.delete(&id).await;
        up.goes(&id).await;
        assert_eq!(
            actions(&up, &id).await,
            vec![
                fine("create", "compute__do_build_and_run_instance"),
                fine("stop", "compute_stop_instance"),
                fine("start", "compute_start_instance"),
                fine("reboot", "compute_reboot_instance"),
                fine("reboot", "compute_reboot_instance"),
                fine("delete", "compute_terminate_instance"),
            ]
        );
        let path = format!("/servers/{id}/os-instance-actions");
        up.get(ANN, "2.90", &path).await.expect(200);
        up.get(crate::kit::BOB, "2.90", &path).await.expect(404);
    }
}

#[tokio::test]
async fn a_boot_without_a_place_says_who_failed() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[])])).await {
        let id = up.boot(&cloud, "one", "vgpu").await;
        up.becomes(&id, "ERROR").await;
        let event = ("conductor_schedule_and_build_instances".to_owned(), "Error".to_owned());
        assert_eq!(
            actions(&up, &id).await,
            vec![("create".to_owned(), json!("Error"), vec![event])]
        );
        cloud.sweep(&up, "no place").await;
    }
}

#[tokio::test]
async fn a_boot_that_moves_on_shows_both_tries() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        up.restart_failing(&cloud, "a", &[("start", None)]).await;
        up.restart_failing(&cloud, "b", &[("start", Some(1))]).await;
        let id = up.boot(&cloud, "one", "vgpu").await;
        up.rest(&id).await;
        let (action, message, events) = actions(&up, &id).await.remove(0);
        assert_eq!((action.as_str(), &message), ("create", &json!("Error")));
        let name = "compute__do_build_and_run_instance";
        assert_eq!(events, vec![(name.into(), "Error".into()); 2]);
        cloud.sound(&up, "both tries").await;
        cloud.sweep(&up, "both tries").await;
    }
}

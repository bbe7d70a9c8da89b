//! Instance actions and their events, with Nova's names and results.

use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Cloud, FPGA, GPU, RunningCloud, hosts};

/// Names of a server's actions, oldest first, each with the names and results of its events.
pub async fn actions(
    running: &RunningCloud,
    id: &str,
) -> Vec<(String, Value, Vec<(String, String)>)> {
    let path = format!("/servers/{id}/os-instance-actions");
    let list = running.get(ADMIN, "2.90", &path).await.expect(200);
    let mut found = Vec::new();
    for action in list["instanceActions"].as_array().expect("the answer has a list").iter().rev() {
        let request = action["request_id"].as_str().expect("the answer has an id");
        let one = running.get(ADMIN, "2.90", &format!("{path}/{request}")).await.expect(200);
        let events =
            one["instanceAction"]["events"].as_array().expect("the action has events").clone();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let events = events.iter().map(|e| (text(&e["event"]), text(&e["result"]))).collect();
        found.push((text(&action["action"]), action["message"].clone(), events));
    }
    found
}

pub fn succeeded(action: &str, event: &str) -> (String, Value, Vec<(String, String)>) {
    (action.into(), Value::Null, vec![(event.into(), "Success".into())])
}

#[tokio::test]
async fn actions_of_a_server_lifecycle() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[FPGA])])).await {
        let id = running.active_server(&cloud, "one", "fpga").await;
        for (action, status) in [
            (json!({"os-stop": null}), "SHUTOFF"),
            (json!({"os-start": null}), "ACTIVE"),
            (json!({"reboot": {"type": "SOFT"}}), "ACTIVE"),
            (json!({"reboot": {"type": "HARD"}}), "ACTIVE"),
        ] {
            running.act(&id, action).await;
            running.wait_for_status(&id, status).await;
        }
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        assert_eq!(
            actions(&running, &id).await,
            vec![
                succeeded("create", "compute__do_build_and_run_instance"),
                succeeded("stop", "compute_stop_instance"),
                succeeded("start", "compute_start_instance"),
                succeeded("reboot", "compute_reboot_instance"),
                succeeded("reboot", "compute_reboot_instance"),
                succeeded("delete", "compute_terminate_instance"),
            ]
        );
        let path = format!("/servers/{id}/os-instance-actions");
        running.get(ANN, "2.90", &path).await.expect(200);
        running.get(crate::kit::BOB, "2.90", &path).await.expect(404);
    }
}

/// Also where the guest is already shut off, or stays on its host, the source's step is recorded.
#[tokio::test]
async fn a_cold_move_records_every_step() {
    let mut names = [
        "cold_migrate",
        "compute_finish_resize",
        "compute_prep_resize",
        "compute_resize_instance",
        "conductor_migrate_server",
    ]
    .map(|name| (name.to_owned(), "Success".to_owned()));
    names.sort();
    for (topology, action) in [
        (hosts(&[("a", &[GPU]), ("b", &[GPU])]), json!({"migrate": null})),
        (hosts(&[("a", &[GPU])]), json!({"resize": {"flavorRef": "vgpu-pair"}})),
    ] {
        for mut cloud in Cloud::all(topology.clone()).await {
            cloud.options.allow_resize_to_same_host = true;
            let running = cloud.start().await;
            running.wait_for_hosts().await;
            for stopped in [true, false] {
                let id = running.active_server(&cloud, "one", "vgpu").await;
                if stopped {
                    running.act(&id, json!({"os-stop": null})).await;
                    running.wait_for_status(&id, "SHUTOFF").await;
                }
                let path = format!("POST /servers/{id}/action");
                running.call(ADMIN, "2.90", &path, Some(action.clone())).await.expect(202);
                running.wait_for_status(&id, "VERIFY_RESIZE").await;
                let last = actions(&running, &id).await.pop();
                let (name, message, mut events) = last.expect("the server has actions");
                events.sort();
                assert_eq!(message, Value::Null, "{name}");
                assert_eq!(events, names, "{name}, stopped: {stopped}");
                cloud.teardown(&running, &name).await;
            }
        }
    }
}

#[tokio::test]
async fn the_servers_project_reads_its_actions() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[FPGA])])).await {
        let id = running.active_server(&cloud, "one", "fpga").await;
        let path = format!("/servers/{id}/os-instance-actions");
        // The oldest action is of an administrator in another project.
        cloud.execute("UPDATE operations SET project_id = 'blue'").await;
        for version in ["2.1", "2.21", "2.90"] {
            let list = running.get(ANN, version, &path).await.expect(200);
            assert_eq!(list["instanceActions"].as_array().map(Vec::len), Some(1), "{version}");
            running.get(crate::kit::BOB, version, &path).await.expect(404);
        }
        cloud.execute("DELETE FROM operations").await;
        for version in ["2.1", "2.21", "2.90"] {
            let list = running.get(ANN, version, &path).await.expect(200);
            assert_eq!(list["instanceActions"], json!([]), "{version}");
            running.get(crate::kit::BOB, version, &path).await.expect(404);
        }
        let one = format!("{path}/req-{id}");
        running.get(ANN, "2.90", &one).await.refused(404, &format!("Action req-{id} not found"));
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        cloud.execute("DELETE FROM operations").await;
        let list = running.get(ANN, "2.90", &path).await.expect(200);
        assert_eq!(list["instanceActions"], json!([]), "the deleted server is known");
        running.get(ANN, "2.20", &path).await.expect(404);
    }
}

#[tokio::test]
async fn a_boot_without_a_valid_host_records_the_failed_event() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = running.boot(&cloud, "one", "vgpu").await;
        running.wait_for_status(&id, "ERROR").await;
        let event = ("conductor_schedule_and_build_instances".to_owned(), "Error".to_owned());
        assert_eq!(
            actions(&running, &id).await,
            vec![("create".to_owned(), json!("Error"), vec![event])]
        );
        let path = format!("/servers/{id}/os-instance-actions");
        let list = running.get(ADMIN, "2.90", &path).await.expect(200);
        let request = list["instanceActions"][0]["request_id"].as_str().expect("an id").to_owned();
        for (token, version, host) in
            [(ADMIN, "2.61", None), (ADMIN, "2.62", Some(&Value::Null)), (ANN, "2.62", None)]
        {
            let one = running.get(token, version, &format!("{path}/{request}")).await.expect(200);
            let event = &one["instanceAction"]["events"][0];
            assert_eq!(event.get("host"), host, "{token} at {version}: {event}");
        }
        cloud.teardown(&running, "no valid host").await;
    }
}

#[tokio::test]
async fn a_rescheduled_boot_shows_both_attempts() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        running.restart_failing(&cloud, "a", &[("start", None)]).await;
        running.restart_failing(&cloud, "b", &[("start", Some(1))]).await;
        let id = running.boot(&cloud, "one", "vgpu").await;
        running.wait_until_idle(&id).await;
        let (action, message, events) = actions(&running, &id).await.remove(0);
        assert_eq!((action.as_str(), &message), ("create", &json!("Error")));
        let name = "compute__do_build_and_run_instance";
        assert_eq!(events, vec![(name.into(), "Error".into()); 2]);
        cloud.assert_consistent(&running, "both tries").await;
        cloud.teardown(&running, "both tries").await;
    }
}

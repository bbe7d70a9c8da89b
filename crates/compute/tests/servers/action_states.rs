//! Every action in every state and task state: allowed, or refused with 409 and Nova's message. The
//! table is written independently of the code.

use kilonova_testkit::shared;
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Cloud, hosts};

const STATES: [&str; 11] = [
    "building",
    "active",
    "paused",
    "suspended",
    "stopped",
    "rescued",
    "resized",
    "shelved",
    "shelved_offloaded",
    "soft-delete",
    "error",
];
const TASKS: [Option<&str>; 4] = [None, Some("powering-off"), Some("rebooting"), Some("pausing")];

/// An action, its name in messages, the states in which it is allowed, and true if a lock refuses it.
type Row = (Value, &'static str, &'static [&'static str], bool);

fn rows(image: &str) -> Vec<Row> {
    const ANY: &[&str] = &STATES;
    const QUIET: &[&str] = &["active", "stopped", "paused", "suspended"];
    const BROKEN: &[&str] = &["active", "stopped", "error"];
    let hard = &["active", "stopped", "paused", "suspended", "error"];
    let dumps = &["active", "paused", "rescued", "resized", "error"];
    let backup = json!({"name": "i", "backup_type": "d", "rotation": 1});
    vec![
        (json!({"os-start": null}), "start", &["stopped"], true),
        (json!({"os-stop": null}), "stop", &["active", "error"], true),
        (json!({"reboot": {"type": "SOFT"}}), "reboot", &["active"], true),
        (json!({"reboot": {"type": "HARD"}}), "reboot", hard, true),
        (json!({"pause": null}), "pause", &["active"], true),
        (json!({"unpause": null}), "unpause", &["paused"], true),
        (json!({"suspend": null}), "suspend", &["active"], true),
        (json!({"resume": null}), "resume", &["suspended"], true),
        (json!({"rescue": {}}), "rescue", BROKEN, true),
        (json!({"unrescue": null}), "unrescue", &["rescued"], true),
        (json!({"rebuild": {"imageRef": image}}), "rebuild", BROKEN, true),
        (json!({"shelve": null}), "shelve", QUIET, true),
        (json!({"shelveOffload": null}), "shelveOffload", &["shelved"], true),
        (json!({"unshelve": null}), "unshelve", &["shelved", "shelved_offloaded"], true),
        (json!({"createImage": {"name": "i"}}), "createImage", QUIET, false),
        (json!({"createBackup": backup}), "createBackup", QUIET, false),
        (json!({"trigger_crash_dump": null}), "trigger_crash_dump", dumps, true),
        (json!({"restore": null}), "restore", &["soft-delete"], true),
        (json!({"lock": null}), "lock", ANY, false),
        (json!({"os-resetState": {"state": "error"}}), "resetState", ANY, false),
    ]
}

/// No action is carried out: the host is down, and the state is set in the database. The stores share the states of an
/// action.
#[tokio::test]
async fn every_action_in_every_state() {
    for (share, (cloud, mut running)) in shared(Cloud::all_running(hosts(&[("a", &[])])).await) {
        let id = running.active_server(&cloud, "one", "plain").await;
        running.nodes.kill("a").await;
        cloud.execute("CREATE TABLE spare AS SELECT * FROM documents").await;
        let (mut allowed, mut refused) = (0, 0);
        let rows = rows(&cloud.image.to_string()).into_iter().enumerate();
        for (row, (action, name, states, _)) in rows {
            for (column, state) in STATES.into_iter().enumerate() {
                for (layer, task) in TASKS.into_iter().enumerate() {
                    if !share.has(row + column + layer) {
                        continue;
                    }
                    set_state(&cloud, &id, state, task).await;
                    let path = format!("POST /servers/{id}/action");
                    let answer = running.call(ADMIN, "2.90", &path, Some(action.clone())).await;
                    let any_task = ["lock", "resetState"].contains(&name);
                    let over = any_task || action["reboot"]["type"] == "HARD";
                    let in_time = match task {
                        None => true,
                        Some("powering-off") => any_task,
                        Some(_) => over,
                    };
                    let when = format!("{action} in {state} while {task:?}: {}", answer.body);
                    let words = match (states.contains(&state), in_time) {
                        (true, true) => {
                            assert!(answer.status.is_success(), "{when}");
                            allowed += 1;
                            continue;
                        }
                        (true, false) => format!("task_state {}", task.unwrap_or_default()),
                        (false, _) => format!("vm_state {state}"),
                    };
                    let message = format!("Cannot '{name}' instance {id} while it is in {words}");
                    assert_eq!(answer.message(), message, "{when}");
                    assert_eq!(answer.status, 409, "{when}");
                    refused += 1;
                }
            }
        }
        println!("{}: {allowed} allowed, {refused} refused", cloud.name);
        let [allows, refuses] = [100, 500].map(|least| share.least(least));
        assert!(allowed > allows && refused > refuses, "{allowed} {refused}");
        set_state(&cloud, &id, "active", None).await;
        cloud.execute("DROP TABLE spare").await;
        running.start_node(&cloud, "a").await;
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
    }
}

/// Sets the server's state and removes the operation of the last action.
async fn set_state(cloud: &Cloud, id: &str, state: &str, task: Option<&str>) {
    for sql in [
        "DELETE FROM operations WHERE outcome = 'open'",
        "DELETE FROM documents",
        "INSERT INTO documents SELECT * FROM spare",
        "DELETE FROM resting",
        "UPDATE servers SET host = 'a', locked_by = NULL",
    ] {
        cloud.execute(sql).await;
    }
    let (id, state) = (id.to_owned(), state.to_owned());
    let task = task.map(str::to_owned);
    cloud
        .store
        .write(move |tx| {
            let sql = "UPDATE servers SET vm_state = ?2, task_state = ?3 WHERE id = ?1";
            tx.execute(sql, kilonova_store::params![&id, &state, task.as_deref()])
        })
        .await
        .unwrap_or_else(|error: kilonova_store::Error| panic!("{error}"));
}

#[tokio::test]
async fn the_lock_is_checked_before_the_state() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        running.act(&id, json!({"lock": null})).await;
        let mut refused = 0;
        for (action, name, _, lock) in rows(&cloud.image.to_string()) {
            if lock && name != "shelveOffload" {
                let path = format!("POST /servers/{id}/action");
                let answer = running.call(ANN, "2.90", &path, Some(action)).await;
                answer.refused(409, &format!("Instance {id} is locked"));
                refused += 1;
            }
        }
        assert_eq!(refused, 15);
        running.act(&id, json!({"unlock": null})).await;
        cloud.teardown(&running, "unlocked").await;
    }
}

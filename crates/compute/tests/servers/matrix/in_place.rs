//! Changes in place, and shelving: the guest keeps its devices, or after an unshelve has as many of
//! the same kind.

use jiff::SignedDuration;
use kilonova_testkit::shared;
use serde_json::json;

use super::{ALL, act, flavors, print, row};
use crate::kit::{Cloud, RunningCloud, hosts};
use crate::servers::checklist::inspect::devices;

const OPERATIONS: &[&str] = &[
    "stop and start",
    "reboot soft",
    "reboot hard",
    "pause and unpause",
    "suspend and resume",
    "lock and unlock",
    "rescue and unrescue",
    "snapshot",
    "backup with rotation",
    "crash dump",
    "rebuild",
    "shelve and unshelve",
    "shelve-offload and unshelve",
    "unshelve to a zone",
    "unshelve to a host",
    "reset-state",
    "rename, description, hostname",
];

/// Runs actions in order, each with its final status.
async fn steps(running: &RunningCloud, id: &str, steps: &[(serde_json::Value, &str)]) {
    for (action, status) in steps {
        act(running, id, action.clone()).await;
        running.wait_for_status(id, status).await;
    }
}

async fn offload(running: &RunningCloud, id: &str) {
    let steps_ = [
        (json!({"shelve": null}), "SHELVED"),
        (json!({"shelveOffload": null}), "SHELVED_OFFLOADED"),
    ];
    steps(running, id, &steps_).await;
}

async fn perform(cloud: &Cloud, running: &RunningCloud, flavor: &str, operation: &str) -> String {
    let id = &running.active_server_on(cloud, "a", flavor).await;
    let before = devices(cloud, "a", id);
    match operation {
        "stop and start" => {
            let both =
                [(json!({"os-stop": null}), "SHUTOFF"), (json!({"os-start": null}), "ACTIVE")];
            steps(running, id, &both).await;
        }
        "reboot soft" => act(running, id, json!({"reboot": {"type": "SOFT"}})).await,
        "reboot hard" => act(running, id, json!({"reboot": {"type": "HARD"}})).await,
        "pause and unpause" => {
            let both = [(json!({"pause": null}), "PAUSED"), (json!({"unpause": null}), "ACTIVE")];
            steps(running, id, &both).await;
        }
        "suspend and resume" => {
            let both =
                [(json!({"suspend": null}), "SUSPENDED"), (json!({"resume": null}), "ACTIVE")];
            steps(running, id, &both).await;
        }
        "lock and unlock" => {
            for (verb, locked) in [("lock", true), ("unlock", false)] {
                act(running, id, json!({verb: null})).await;
                assert_eq!(running.server(id).await["locked"], locked);
                assert_eq!(devices(cloud, "a", id), before);
            }
        }
        "rescue and unrescue" => {
            let both = [(json!({"rescue": {}}), "RESCUE"), (json!({"unrescue": null}), "ACTIVE")];
            for (action, status) in both {
                act(running, id, action).await;
                running.wait_for_status(id, status).await;
                assert_eq!(devices(cloud, "a", id), before, "{status}");
            }
        }
        "snapshot" => act(running, id, json!({"createImage": {"name": "picture"}})).await,
        "backup with rotation" => {
            for n in 0..3 {
                let name = format!("{id}-{n}");
                let backup = json!({"name": name, "backup_type": "daily", "rotation": 2});
                steps(running, id, &[(json!({"createBackup": backup}), "ACTIVE")]).await;
            }
            let mut kept = cloud.column("SELECT name FROM images ORDER BY name").await;
            kept.retain(|name| name.starts_with(id.as_str()));
            assert_eq!(kept, [format!("{id}-1"), format!("{id}-2")]);
        }
        "crash dump" => act(running, id, json!({"trigger_crash_dump": null})).await,
        "rebuild" => act(running, id, json!({"rebuild": {"imageRef": cloud.image}})).await,
        "shelve and unshelve" => {
            let both =
                [(json!({"shelve": null}), "SHELVED"), (json!({"unshelve": null}), "ACTIVE")];
            steps(running, id, &both).await;
        }
        "shelve-offload and unshelve" => {
            offload(running, id).await;
            act(running, id, json!({"unshelve": null})).await;
        }
        "unshelve to a zone" => {
            offload(running, id).await;
            act(running, id, json!({"unshelve": {"availability_zone": "nova"}})).await;
        }
        "unshelve to a host" => {
            offload(running, id).await;
            act(running, id, json!({"unshelve": {"host": "b"}})).await;
            assert_eq!(running.wait_for_status(id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "b");
        }
        "reset-state" => {
            for (state, status) in [("error", "ERROR"), ("active", "ACTIVE")] {
                act(running, id, json!({"os-resetState": {"state": state}})).await;
                running.wait_for_status(id, status).await;
            }
        }
        "rename, description, hostname" => {
            let changes = json!({"name": "new", "description": "words", "hostname": "other"});
            let path = format!("PUT /servers/{id}");
            let shown = running.admin("2.90", &path, json!({"server": changes})).await;
            let shown = shown.expect(200)["server"].take();
            assert_eq!((&shown["name"], &shown["description"]), (&json!("new"), &json!("words")));
            assert_eq!(running.server(id).await["OS-EXT-SRV-ATTR:hostname"], "other");
        }
        other => panic!("no such operation: {other}"),
    }
    let server = running.wait_for_status(id, "ACTIVE").await;
    assert_eq!(server["OS-EXT-STS:power_state"], 1, "{server}");
    let host = server["OS-EXT-SRV-ATTR:host"].as_str().expect("the server has a host");
    let after = devices(cloud, host, id);
    assert_eq!(after.len(), before.len(), "{operation}");
    if !operation.contains("unshelve") || operation == "shelve and unshelve" {
        assert_eq!(after, before, "{operation}");
    }
    "works".into()
}

#[tokio::test]
async fn every_in_place_operation_with_every_accelerator() {
    for (share, mut cloud) in shared(Cloud::all(hosts(&[("a", &[ALL]), ("b", &[ALL])])).await) {
        cloud.options.shelved_offload_time = SignedDuration::from_secs(-1);
        let mut running = cloud.start().await;
        running.wait_for_hosts().await;
        flavors(&running).await;
        let mut table = Vec::new();
        for (number, operation) in OPERATIONS.iter().enumerate() {
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

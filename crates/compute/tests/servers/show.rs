//! Diagnostics, progress and zone of a server, and the states in which metadata and tags are written.

use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, BOB, Cloud, GPU, RunningCloud, hosts};

async fn diagnostics(running: &RunningCloud, version: &str, id: &str) -> crate::kit::Answer {
    running.get(ADMIN, version, &format!("/servers/{id}/diagnostics")).await
}

#[tokio::test]
async fn diagnostics_come_from_the_host() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let old = diagnostics(&running, "2.47", &id).await.expect(200);
        assert_eq!(old["memory"], 64 * 1024, "{old}");
        for key in ["cpu0_time", "vda_read", "vda_write_req", "vda_errors"] {
            assert_eq!(old[key], 0, "{key} in {old}");
        }
        let new = diagnostics(&running, "2.48", &id).await.expect(200);
        assert_eq!((&new["state"], &new["hypervisor"]), (&json!("running"), &json!("simulated")));
        assert_eq!((&new["num_cpus"], &new["num_disks"]), (&json!(1), &json!(1)));
        assert_eq!(new["memory_details"], json!({"maximum": 64, "used": 64}));
        assert_eq!(new["cpu_details"], json!([{"id": 0, "time": 0, "utilisation": null}]));
        assert!(new["uptime"].is_i64() && new["hypervisor_os"] == "linux", "{new}");
        let path = format!("/servers/{id}/diagnostics");
        assert_eq!(running.get(ANN, "2.48", &path).await.status, 403);
        running.get(ADMIN, "2.48", "/servers/5a/diagnostics").await.refused(404, "5a");

        running.act(&id, json!({"pause": null})).await;
        running.wait_for_status(&id, "PAUSED").await;
        let words = format!("Cannot 'get_diagnostics' instance {id} while it is in power state ");
        diagnostics(&running, "2.48", &id).await.refused(409, &format!("{words}paused"));
        running.act(&id, json!({"unpause": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        running.act(&id, json!({"os-stop": null})).await;
        running.wait_for_status(&id, "SHUTOFF").await;
        diagnostics(&running, "2.47", &id).await.refused(409, &format!("{words}shutdown"));
        running.nodes.kill("a").await;
        running.force_down("a", true).await;
        diagnostics(&running, "2.48", &id).await.refused(503, "does not answer");
        let nowhere = running.boot(&cloud, "two", "vgpu").await;
        diagnostics(&running, "2.48", &nowhere).await.refused(409, "is not ready");
        running.force_down("a", false).await;
        running.start_node(&cloud, "a").await;
        cloud.teardown(&running, "counted").await;
    }
}

#[tokio::test]
async fn progress_is_shown_in_some_statuses() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        assert_eq!(running.server(&id).await["progress"], 0);
        running.act(&id, json!({"os-stop": null})).await;
        assert_eq!(running.wait_for_status(&id, "SHUTOFF").await.get("progress"), None);
        running.act(&id, json!({"os-start": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.teardown(&running, "shown").await;
    }
}

async fn writes(running: &RunningCloud, token: &str, id: &str) -> Vec<(u16, String)> {
    let mut answers = Vec::new();
    for (what, body) in [
        ("POST /servers/ID/metadata", json!({"metadata": {"k": "v"}})),
        ("PUT /servers/ID/metadata", json!({"metadata": {"k": "v"}})),
        ("PUT /servers/ID/metadata/k", json!({"meta": {"k": "w"}})),
        ("DELETE /servers/ID/metadata/k", Value::Null),
        ("PUT /servers/ID/tags", json!({"tags": ["a", "b"]})),
        ("PUT /servers/ID/tags/c", Value::Null),
        ("DELETE /servers/ID/tags/a", Value::Null),
        ("DELETE /servers/ID/tags", Value::Null),
    ] {
        let body = Some(body).filter(|body| !body.is_null());
        let answer = running.call(token, "2.90", &what.replace("ID", id), body).await;
        answers.push((answer.status.as_u16(), answer.message().to_owned()));
    }
    answers
}

fn codes(answers: &[(u16, String)]) -> Vec<u16> {
    answers.iter().map(|(code, _)| *code).collect()
}

const ALL_ALLOWED: [u16; 8] = [200, 200, 200, 204, 200, 201, 204, 204];

#[tokio::test]
async fn metadata_and_tags_are_written_in_some_states_only() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        assert_eq!(codes(&writes(&running, ANN, &id).await), ALL_ALLOWED);
        assert_eq!(codes(&writes(&running, BOB, &id).await), [404; 8]);
        running.act(&id, json!({"lock": null})).await;
        let locked = writes(&running, ANN, &id).await;
        assert_eq!(codes(&locked), [409, 409, 409, 404, 200, 201, 204, 204]);
        assert_eq!(locked[0].1, format!("Instance {id} is locked"));
        assert_eq!(codes(&writes(&running, ADMIN, &id).await), ALL_ALLOWED);
        running.act(&id, json!({"unlock": null})).await;
        running
            .call(
                ANN,
                "2.90",
                &format!("PUT /servers/{id}/metadata"),
                Some(json!({"metadata": {"k": "v"}})),
            )
            .await
            .expect(200);
        running
            .call(ANN, "2.90", &format!("PUT /servers/{id}/tags"), Some(json!({"tags": ["a"]})))
            .await
            .expect(200);

        running.try_act(&id, json!({"rescue": null})).await.expect(200);
        running.wait_for_status(&id, "RESCUE").await;
        for token in [ANN, ADMIN] {
            let refused = writes(&running, token, &id).await;
            assert_eq!(codes(&refused), [409; 8]);
            for ((_, words), what) in refused.iter().zip([
                "update metadata",
                "update metadata",
                "update metadata",
                "delete metadata",
                "update tags",
                "update tag",
                "delete tag",
                "delete tags",
            ]) {
                let expected =
                    format!("Cannot '{what}' instance {id} while it is in vm_state rescued");
                assert_eq!(*words, expected);
            }
        }
        running.act(&id, json!({"unrescue": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(codes(&writes(&running, ANN, &id).await), ALL_ALLOWED);
        cloud.teardown(&running, "written").await;
    }
}

/// A server shows the zone of its host, or the requested one if it never had a host; a requested zone
/// is pinned.
#[tokio::test]
async fn the_zone_is_that_of_the_host() {
    const ZONE: &str = "OS-EXT-AZ:availability_zone";
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[])])).await {
        let east = json!({"aggregate": {"name": "east", "availability_zone": "east"}});
        let made = running.admin("2.90", "POST /os-aggregates", east).await.expect(200);
        let path = format!("POST /os-aggregates/{}/action", made["aggregate"]["id"]);
        running.admin("2.90", &path, json!({"add_host": {"host": "a"}})).await.expect(200);

        let there = running.active_server_on(&cloud, "a", "vgpu").await;
        let elsewhere = running.active_server_on(&cloud, "b", "plain").await;
        let pinned = running
            .boot_with(&cloud, "pinned", "plain", json!({"availability_zone": "east"}))
            .await;
        running.wait_for_status(&pinned, "ACTIVE").await;
        let nowhere = running.boot(&cloud, "nowhere", "fpga").await;
        running.wait_for_status(&nowhere, "ERROR").await;
        let more = json!({"availability_zone": "east"});
        let refused = running.boot_with(&cloud, "refused", "fpga", more).await;
        running.wait_for_status(&refused, "ERROR").await;
        for (id, zone, pin) in [
            (&refused, "east", json!("east")),
            (&there, "east", Value::Null),
            (&elsewhere, "nova", Value::Null),
            (&pinned, "east", json!("east")),
            (&nowhere, "", Value::Null),
        ] {
            let shown = running.get(ADMIN, "2.96", &format!("/servers/{id}")).await.expect(200);
            assert_eq!(shown["server"][ZONE], zone);
            assert_eq!(shown["server"]["pinned_availability_zone"], pin);
        }
        let list =
            running.get(ADMIN, "2.90", "/servers/detail?all_tenants=1&availability_zone=east");
        let list = list.await.expect(200);
        let mut ids: Vec<_> = list["servers"]
            .as_array()
            .expect("the answer has a list")
            .iter()
            .map(|s| s["id"].clone())
            .collect();
        ids.sort_by_key(Value::to_string);
        let mut expected = vec![json!(there), json!(pinned), json!(refused)];
        expected.sort_by_key(Value::to_string);
        assert_eq!(ids, expected);
        let path = "/servers/detail?all_tenants=1&sort_key=availability_zone&sort_dir=asc";
        let list = running.get(ADMIN, "2.90", path).await.expect(200);
        let zones: Vec<_> = list["servers"]
            .as_array()
            .expect("the answer has a list")
            .iter()
            .map(|s| s[ZONE].clone())
            .collect();
        assert_eq!(zones, ["", "east", "east", "east", "nova"]);
        cloud.teardown(&running, "shown").await;
    }
}

//! Every change in place with every kind of accelerator: the states that the user sees, and the
//! guest's devices, which stay the same.

use kilonova_testkit::shared;
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Cloud, FPGA, GPU, RunningCloud, fault, hosts, wait_until};

/// The handles in use, from the device ledger.
async fn devices(cloud: &Cloud) -> Vec<String> {
    let sql =
        "SELECT h.uuid FROM attach_handles h JOIN arqs a ON a.uuid = h.arq_id ORDER BY h.uuid";
    cloud.column(sql).await
}

/// Waits until no operation is open; a crash dump shows no task state.
async fn wait_for_operations(cloud: &Cloud) {
    let open = "SELECT id FROM operations WHERE outcome = 'open'";
    wait_until("the operation has ended", async || cloud.column(open).await.is_empty()).await;
}

async fn act_and_check(
    cloud: &Cloud,
    running: &RunningCloud,
    id: &str,
    action: &Value,
    status: &str,
    power: i64,
) {
    let before = devices(cloud).await;
    let answer = running.try_act(id, action.clone()).await;
    let code = if action.get("rescue").is_some() { 200 } else { 202 };
    let body = answer.expect(code);
    assert_eq!(body["adminPass"].is_string(), code == 200, "{body}");
    wait_for_operations(cloud).await;
    let server = running.wait_for_status(id, status).await;
    assert_eq!(server["OS-EXT-STS:power_state"], power, "{action} {server}");
    assert_eq!(devices(cloud).await, before, "{action}: the devices are the same");
    cloud.assert_consistent(running, &action.to_string()).await;
}

/// The stores share the flavors.
#[tokio::test]
async fn every_operation_with_every_accelerator() {
    let clouds = Cloud::all_running(hosts(&[("a", &[GPU, FPGA])])).await;
    for (share, (cloud, running)) in shared(clouds) {
        let flavors = ["plain", "vgpu", "profile", "vgpu-pair", "fpga", "both"];
        for (_, flavor) in flavors.into_iter().enumerate().filter(|(at, _)| share.has(*at)) {
            let id = running.active_server(&cloud, "one", flavor).await;
            assert_eq!(devices(&cloud).await.is_empty(), flavor == "plain", "{flavor}");
            let rebuild = json!({"rebuild": {"imageRef": cloud.image}});
            let hard = json!({"reboot": {"type": "HARD"}});
            for (action, status, power) in [
                (json!({"pause": null}), "PAUSED", 3),
                (json!({"unpause": null}), "ACTIVE", 1),
                (json!({"suspend": null}), "SUSPENDED", 7),
                (json!({"resume": null}), "ACTIVE", 1),
                (json!({"rescue": {}}), "RESCUE", 1),
                (json!({"unrescue": null}), "ACTIVE", 1),
                (json!({"createImage": {"name": "picture"}}), "ACTIVE", 1),
                (json!({"trigger_crash_dump": null}), "ACTIVE", 1),
                (json!({"pause": null}), "PAUSED", 3),
                (hard.clone(), "ACTIVE", 1),
                (json!({"suspend": null}), "SUSPENDED", 7),
                (hard, "ACTIVE", 1),
                (json!({"os-stop": null}), "SHUTOFF", 4),
                (json!({"rescue": {}}), "RESCUE", 1),
                (json!({"unrescue": null}), "ACTIVE", 1),
            ] {
                act_and_check(&cloud, &running, &id, &action, status, power).await;
            }
            for (before, status) in [(None, "ACTIVE"), (Some("os-stop"), "SHUTOFF")] {
                if let Some(before) = before {
                    running.act(&id, json!({before: null})).await;
                    running.wait_for_status(&id, status).await;
                }
                let had = devices(&cloud).await;
                running.act(&id, rebuild.clone()).await;
                running.wait_for_status(&id, status).await;
                assert_eq!(devices(&cloud).await, had, "{flavor}: a rebuild keeps the devices");
                cloud.assert_consistent(&running, "rebuilt").await;
            }
            cloud.teardown(&running, flavor).await;
        }
    }
}

#[tokio::test]
async fn a_server_is_deleted_from_every_state() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        for (action, status) in [
            (json!({"pause": null}), "PAUSED"),
            (json!({"suspend": null}), "SUSPENDED"),
            (json!({"rescue": {}}), "RESCUE"),
            (json!({"os-stop": null}), "SHUTOFF"),
            (json!({"shelve": null}), "SHELVED_OFFLOADED"),
        ] {
            let id = running.active_server(&cloud, "one", "vgpu").await;
            assert!(running.try_act(&id, action).await.status.is_success());
            running.wait_for_status(&id, status).await;
            running.delete(&id).await;
            running.wait_until_gone(&id).await;
            cloud.assert_empty(&running, status).await;
        }
    }
}

/// A step fails once: the server is unchanged, keeps its device, and the action records the failure.
#[tokio::test]
async fn a_failed_operation_leaves_the_server_unchanged() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        for (action, step, done, undone) in [
            (json!({"pause": null}), "pause", "PAUSED", "ACTIVE"),
            (json!({"unpause": null}), "unpause", "ACTIVE", "PAUSED"),
            (json!({"suspend": null}), "suspend", "SUSPENDED", "ACTIVE"),
            (json!({"resume": null}), "resume", "ACTIVE", "SUSPENDED"),
            (json!({"createImage": {"name": "p"}}), "snapshot", "ACTIVE", "ACTIVE"),
            (json!({"trigger_crash_dump": null}), "crash_dump", "ACTIVE", "ACTIVE"),
            (json!({"shelve": null}), "snapshot", "SHELVED_OFFLOADED", "ACTIVE"),
        ] {
            running.restart_failing(&cloud, "a", &[(step, Some(1))]).await;
            running.act(&id, action.clone()).await;
            wait_for_operations(&cloud).await;
            running.wait_for_status(&id, undone).await;
            let sql = "SELECT message FROM operations ORDER BY created_at DESC, id LIMIT 1";
            let why = cloud.column(sql).await.remove(0);
            assert!(why.contains(&format!("a: {step}: ")), "{action}: {why}");
            cloud.assert_consistent(&running, step).await;
            assert_eq!(cloud.used("VGPU").await, 1, "{step}: it keeps its device");
            let left = "SELECT id FROM images WHERE status <> 'active'";
            assert_eq!(cloud.column(left).await, Vec::<String>::new(), "{action}");
            running.act(&id, action.clone()).await;
            wait_for_operations(&cloud).await;
            running.wait_for_status(&id, done).await;
        }
        cloud.teardown(&running, "failed and done").await;
    }
}

/// A crash dump has no task state: the server can be stopped meanwhile, which cancels the dump.
#[tokio::test]
async fn a_stop_cancels_a_crash_dump() {
    let slow = "times_ms = { start = 1000, crash_dump = 1000 }";
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU, slow])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.act(&id, json!({"trigger_crash_dump": null})).await;
        running.act(&id, json!({"os-stop": null})).await;
        wait_for_operations(&cloud).await;
        running.wait_for_status(&id, "SHUTOFF").await;
        let sql =
            "SELECT kind || ' ' || outcome FROM operations ORDER BY created_at DESC, id LIMIT 2";
        let outcomes = cloud.column(sql).await;
        assert_eq!(outcomes, ["stop done", "trigger_crash_dump cancelled"]);
        cloud.teardown(&running, "stopped").await;
    }
}

/// As in Nova, a crash dump blocks no other action while the agent of the server's host is away.
#[tokio::test]
async fn every_action_cancels_a_crash_dump() {
    let topology = hosts(&[("a", &[GPU]), ("b", &[GPU])]);
    for (cloud, mut running) in Cloud::all_running(topology).await {
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        let dump = json!({"trigger_crash_dump": null});
        for (action, status) in [
            (dump.clone(), "ACTIVE"),
            (json!({"createImage": {"name": "p"}}), "ACTIVE"),
            (json!({"pause": null}), "PAUSED"),
            (json!({"unpause": null}), "ACTIVE"),
            (json!({"reboot": {"type": "SOFT"}}), "ACTIVE"),
            (json!({"rebuild": {"imageRef": cloud.image}}), "ACTIVE"),
            (json!({"os-migrateLive": {"host": "b", "block_migration": "auto"}}), "ACTIVE"),
            (json!({"migrate": {"host": "a"}}), "VERIFY_RESIZE"),
            (json!({"revertResize": null}), "ACTIVE"),
            (json!({"shelve": null}), "SHELVED_OFFLOADED"),
        ] {
            let host = running.server(&id).await["OS-EXT-SRV-ATTR:host"].clone();
            let host = host.as_str().expect("the server has a host");
            running.nodes.kill(host).await;
            let path = format!("POST /servers/{id}/action");
            running.admin("2.56", &path, dump.clone()).await.expect(202);
            let answer = running.admin("2.56", &path, action.clone()).await;
            assert!(answer.status.is_success(), "{action}: {}", answer.body);
            running.start_node(&cloud, host).await;
            wait_for_operations(&cloud).await;
            running.wait_for_status(&id, status).await;
            running.wait_for_host_cleanup(&cloud).await;
        }
        let dumps = "SELECT outcome FROM operations WHERE kind = 'trigger_crash_dump'
            ORDER BY outcome";
        assert_eq!(cloud.column(dumps).await, [vec!["cancelled"; 10], vec!["done"]].concat());
        let failed = "SELECT kind FROM operations WHERE outcome = 'failed'";
        assert_eq!(cloud.column(failed).await, [""; 0]);
        cloud.teardown(&running, "shelved").await;
    }
}

#[tokio::test]
async fn a_failed_rescue_is_rolled_back_and_a_failed_rebuild_is_not() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.restart_failing(&cloud, "a", &[("image", Some(1))]).await;
        running.try_act(&id, json!({"rescue": {}})).await.expect(200);
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.assert_consistent(&running, "not rescued").await;
        running.restart_failing(&cloud, "a", &[("image", Some(1))]).await;
        running.act(&id, json!({"rebuild": {"imageRef": cloud.image}})).await;
        let server = running.wait_for_status(&id, "ERROR").await;
        assert!(fault(&server).contains("a: image: "), "{server}");
        assert_eq!(cloud.used("VGPU").await, 1);
        running.act(&id, json!({"rebuild": {"imageRef": cloud.image}})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.assert_consistent(&running, "rebuilt").await;
        cloud.teardown(&running, "rebuilt").await;
    }
}

/// Upstream: only a server in the state `stopped` is stopped again (`_do_rebuild_instance` in `nova/compute/manager.py`).
#[tokio::test]
async fn a_rebuild_starts_a_server_that_was_not_stopped() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        for state in ["error", "active"] {
            running.act(&id, json!({"os-stop": null})).await;
            running.wait_for_status(&id, "SHUTOFF").await;
            let reset = json!({"os-resetState": {"state": state}});
            let path = format!("POST /servers/{id}/action");
            running.call(ADMIN, "2.90", &path, Some(reset)).await.expect(202);
            running.act(&id, json!({"rebuild": {"imageRef": cloud.image}})).await;
            let server = running.wait_until_idle(&id).await;
            assert_eq!(server["status"], "ACTIVE", "{state}: {server}");
            assert_eq!(server["OS-EXT-STS:power_state"], 1, "{state}: {server}");
            cloud.assert_consistent(&running, state).await;
        }
        cloud.teardown(&running, "rebuilt").await;
    }
}

/// If a device cannot be recreated, a suspended server stays suspended and keeps its saved memory.
#[tokio::test]
async fn a_device_that_cannot_be_restored_fails_the_resume() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.act(&id, json!({"suspend": null})).await;
        running.wait_for_status(&id, "SUSPENDED").await;
        running.nodes.kill("a").await;
        std::fs::remove_dir_all(cloud.nodes().join("a/mdevs"))
            .expect("the mdevs of the host are removed");
        running.restart_failing(&cloud, "a", &[("create_mdev", Some(3))]).await;
        running.act(&id, json!({"resume": null})).await;
        running.wait_for_status(&id, "SUSPENDED").await;
        assert_eq!(cloud.files("a", "saved"), vec![id.clone()], "its memory is kept");
        running.restart_failing(&cloud, "a", &[]).await;
        running.act(&id, json!({"resume": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.assert_consistent(&running, "resumed").await;
        cloud.teardown(&running, "resumed").await;
    }
}

#[tokio::test]
async fn a_rebuild_refuses_what_would_have_no_effect() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let path = format!("POST /servers/{id}/action");
        for (version, field, value, part) in [
            (
                "2.56",
                "personality",
                json!([{"path": "/a", "contents": "eA==", "(": "x"}]),
                "Additional properties",
            ),
            (
                "2.57",
                "personality",
                json!([{"path": "/a", "contents": "eA=="}]),
                "Additional properties",
            ),
            ("2.63", "trusted_image_certificates", json!(["a"]), "not checked"),
        ] {
            let body = json!({"rebuild": {"imageRef": cloud.image, field: value}});
            running.call(ANN, version, &path, Some(body)).await.refused(400, part);
        }
        let body = json!({"rebuild": {"imageRef": cloud.image, "personality": []}});
        running.call(ANN, "2.56", &path, Some(body)).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.teardown(&running, "rebuilt").await;
    }
}

#[tokio::test]
async fn a_rebuild_recreates_the_disk_once_and_changes_the_requested_fields() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let path = format!("POST /servers/{id}/action");
        let action = json!({"rebuild": {
            "imageRef": cloud.image, "name": "two", "metadata": {"a": "b"}, "hostname": "second",
            "description": "new", "user_data": "aGk=", "adminPass": "geheim",
        }});
        let answer = running.call(ANN, "2.90", &path, Some(action)).await;
        let place = answer
            .headers
            .get("location")
            .expect("the answer has a location")
            .to_str()
            .expect("the value is a string");
        assert!(place.ends_with(&format!("/v2.1/servers/{id}")), "{place}");
        let shown = answer.expect(202)["server"].take();
        assert_eq!(
            [&shown["status"], &shown["adminPass"], &shown["name"], &shown["user_data"]],
            [&json!("REBUILD"), &json!("geheim"), &json!("two"), &json!("aGk=")]
        );
        let server = running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(server["metadata"], json!({"a": "b"}));
        assert_eq!(server["OS-EXT-SRV-ATTR:hostname"], "second");
        let xml = cloud.nodes().join(format!("a/domains/{id}.xml"));
        let xml = std::fs::read_to_string(xml).expect("the domain XML exists");
        let sql = "SELECT id FROM operations WHERE kind = 'rebuild'";
        let operation = cloud.column(sql).await.remove(0);
        assert!(xml.contains(&format!("rebuilt='{operation}'")), "{xml}");
        for (arguments, part) in [
            (json!({}), "imageRef"),
            (json!({"imageRef": "x"}), "not a uuid"),
            (json!({"imageRef": cloud.image, "colour": 1}), "colour"),
            (json!({"imageRef": cloud.image, "preserve_ephemeral": true}), "ephemeral"),
            (json!({"imageRef": cloud.image, "key_name": "none"}), "key_name"),
        ] {
            running.try_act(&id, json!({"rebuild": arguments})).await.refused(400, part);
        }
        let again = json!({"rebuild": {"imageRef": cloud.image}});
        let shown =
            running.call(ADMIN, "2.100", &path, Some(again)).await.expect(202)["server"].take();
        assert_eq!((&shown["progress"], &shown["user_data"]), (&json!(0), &json!("aGk=")));
        assert!(shown.get("OS-EXT-SRV-ATTR:host").is_some(), "{shown}");
        assert!(shown.get("OS-EXT-SRV-ATTR:user_data").is_none(), "{shown}");
        running.wait_for_status(&id, "ACTIVE").await;
        let early = json!({"rebuild": {"imageRef": cloud.image, "hostname": "h"}});
        running.call(ANN, "2.89", &path, Some(early)).await.refused(400, "hostname");
        cloud.teardown(&running, "rebuilt").await;
    }
}

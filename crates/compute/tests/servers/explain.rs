//! The explanation of a server and of a host: its state, its history and the next steps. Owners see
//! no hosts.

use kilonova_compute_app::explain::explain_host;
use kilonova_ids::HostName;
use kilonova_store::testing::Meter;
use kilonova_wire::time;
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, BOB, Cloud, FPGA, GPU, GPUS, RunningCloud, hosts};
use crate::servers::live_migration::wait_until_migrating;
use crate::servers::resize::admin;

async fn explained(running: &RunningCloud, id: &str) -> Value {
    let path = format!("/kilonova/servers/{id}");
    running.get(ADMIN, "2.1", &path).await.expect(200)["server"].take()
}

async fn host(running: &RunningCloud, name: &str) -> Value {
    running.get(ADMIN, "2.1", &format!("/kilonova/hosts/{name}")).await.expect(200)["host"].take()
}

/// The explanation for the owner; it names no host.
async fn explained_to_owner(running: &RunningCloud, id: &str) -> Value {
    let path = format!("/kilonova/servers/{id}");
    let explanation = running.get(ANN, "2.1", &path).await.expect(200)["server"].take();
    for of_admins in ["hosts", "moves", "claims", "left_behind", "device_changes"] {
        assert!(explanation.get(of_admins).is_none(), "{of_admins}: {explanation}");
    }
    for named in ["host a", "host b", "a: ", "Nearest", "a_pci", "was the only suitable host"] {
        assert!(!explanation.to_string().contains(named), "{named}: {explanation}");
    }
    assert_eq!(explanation["host"], Value::Null, "{explanation}");
    explanation
}

fn next_steps(explanation: &Value) -> String {
    explanation["next"]
        .as_array()
        .expect("the answer has a list")
        .iter()
        .map(Value::to_string)
        .collect()
}

#[tokio::test]
async fn an_active_server_is_explained_with_its_devices_and_host_choice() {
    let topology = hosts(&[("a", &[GPU, FPGA]), ("b", &[GPU, FPGA])]);
    for (cloud, running) in Cloud::all_running(topology).await {
        let id = running.active_server(&cloud, "one", "vgpu-pair").await;
        let explanation = explained(&running, &id).await;
        assert_eq!(explanation["status"], "ACTIVE", "{explanation}");
        assert_eq!(explanation["operation"], Value::Null);
        let devices = explanation["devices"].as_array().expect("the answer has a list");
        assert_eq!(devices.len(), 2, "{explanation}");
        let known = cloud.column("SELECT uuid FROM attach_handles WHERE state = 'owned'").await;
        for device in devices {
            assert_eq!(device["attached"], true, "{device}");
            assert_eq!(device["handle"]["type"], "MDEV");
            assert_eq!(device["handle"]["mdev_type"], "nvidia-35");
            let uuid =
                device["handle"]["mdev_uuid"].as_str().expect("the value is a UUID").to_owned();
            assert!(known.contains(&uuid), "{device}");
            assert_eq!(device["asked_by"]["flavor"], "vgpu-pair");
            assert_eq!(device["held_by"], "server");
            let provider = device["provider_name"].as_str().expect("the value has a name");
            let host = explanation["host"].as_str().expect("the server has a host");
            assert!(provider.starts_with(&format!("{host}_pci_0000_8")), "{device}");
        }
        let held =
            explanation["claims"][0]["allocations"].as_array().expect("the answer has a list");
        let host = explanation["host"].as_str().expect("the server has a host");
        assert_eq!(held[0]["name"], host, "the host's own come first: {explanation}");
        assert!(held.iter().any(|one| one["class"] == "VGPU"), "{explanation}");
        let create = &explanation["actions"][0];
        assert_eq!((&create["action"], &create["outcome"]), (&json!("create"), &json!("done")));
        let chosen = create["host_chosen"].as_str().expect("the value is a string");
        assert!(chosen.starts_with("By packing, best first: "), "{chosen}");
        assert!(next_steps(&explanation).contains("Nothing"), "{explanation}");

        let mine = explained_to_owner(&running, &id).await;
        assert_eq!(
            mine["summary"],
            format!("Server one ({id}) is active; no operation is in progress.")
        );
        assert_eq!(mine["next"], json!(["Nothing: it is in its desired state."]));
        assert_eq!(mine["devices"].as_array().map(Vec::len), Some(2), "{mine}");
        assert_eq!(mine["devices"][0]["resource_class"], "VGPU", "{mine}");
        assert_eq!(mine["actions"][0]["outcome"], "done", "{mine}");

        let by_profile = running.active_server(&cloud, "two", "fpga").await;
        let explanation = explained(&running, &by_profile).await;
        let asked = json!({"device_profile": "fpga", "group": 0});
        assert_eq!(explanation["devices"][0]["asked_by"], asked, "{explanation}");

        let path = format!("/kilonova/servers/{id}");
        running.get(BOB, "2.90", &path).await.refused(404, "could not be found");
        running.get(ANN, "2.90", "/kilonova/hosts/a").await.refused(403, "kilonova:hosts:show");
        for unknown in ["nothing", "4f6a1a8e-3f3f-4f9a-9c3e-0d6f7e6f0a11"] {
            let path = format!("/kilonova/servers/{unknown}");
            running.get(ADMIN, "2.90", &path).await.refused(404, "could not be found");
        }
        running
            .get(ADMIN, "2.90", "/kilonova/hosts/c")
            .await
            .refused(404, "host c could not be found");
        cloud.teardown(&running, "explained").await;
    }
}

#[tokio::test]
async fn an_operation_names_what_it_waits_for() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.nodes.kill("a").await;
        running.act(&id, json!({"pause": null})).await;
        let mine = explained_to_owner(&running, &id).await;
        assert_eq!(mine["next"], json!(["Wait for its pause to end."]), "{mine}");
        assert_eq!(mine["operation"]["action"], "pause", "{mine}");
        let explanation = explained(&running, &id).await;
        let operation = &explanation["operation"];
        assert_eq!((&operation["action"], &operation["step"]), (&json!("pause"), &json!("settle")));
        assert_eq!(operation["waits_for"], "host a to pause the guest");
        assert!(
            next_steps(&explanation).contains("Wait for host a to pause the guest."),
            "{explanation}"
        );
        running.force_down("a", true).await;
        let explanation = explained(&running, &id).await;
        let what = format!("openstack server evacuate {id}");
        assert!(next_steps(&explanation).contains(&what), "{explanation}");
        assert!(next_steps(&explanation).contains("forced down by an operator"), "{explanation}");
        assert_eq!(explanation["hosts"][0]["state"], "down", "{explanation}");
        running.force_down("a", false).await;
        running.start_node(&cloud, "a").await;
        running.wait_for_status(&id, "PAUSED").await;
        assert!(next_steps(&explained(&running, &id).await).contains("server unpause"));
        cloud.teardown(&running, "operation finished").await;
    }
}

#[tokio::test]
async fn a_slow_live_migration_can_be_aborted_or_forced() {
    const SLOW: &str = "times_ms = { migrate = 60000 }";
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU, SLOW]), ("b", &[GPU])])).await {
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        let live = json!({"os-migrateLive": {"host": null, "block_migration": "auto"}});
        admin(&running, "2.90", &id, live).await.expect(202);
        let number = wait_until_migrating(&running, &id).await;
        cloud.execute("UPDATE operations SET updated_at = 0 WHERE outcome = 'open'").await;
        let explanation = explained(&running, &id).await;
        for command in ["abort", "force complete"] {
            let what = format!("openstack server migration {command} {id} {number}");
            assert!(next_steps(&explanation).contains(&what), "{explanation}");
        }
        running
            .call(ADMIN, "2.80", &format!("DELETE /servers/{id}/migrations/{number}"), None)
            .await
            .expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.teardown(&running, "aborted").await;
    }
}

#[tokio::test]
async fn a_server_without_a_host_explains_why_and_whether_there_is_room_now() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[FPGA])])).await {
        running.remove_quota_limits().await;
        let mut all = Vec::new();
        for n in 0..GPUS {
            all.push(running.active_server(&cloud, &format!("s{n}"), "vgpu").await);
        }
        let id = running.boot(&cloud, "late", "vgpu").await;
        running.wait_for_status(&id, "ERROR").await;
        let explanation = explained(&running, &id).await;
        assert_eq!(explanation["host"], Value::Null);
        let why = explanation["actions"][0]["message"].as_str().expect("the value is a string");
        assert_eq!(
            why,
            "No valid host was found. There are not enough hosts available. 1 of 2 hosts does not \
             offer VGPU. The remaining host does not have 1 VGPU free. Nearest: a, which has no VGPU free."
        );
        let owner = running.get(ANN, "2.90", &format!("/servers/{id}")).await.expect(200);
        assert_eq!(
            owner["server"]["fault"]["message"],
            "No valid host was found. There are not enough hosts available. 1 of 2 hosts does not \
             offer VGPU. The remaining host does not have 1 VGPU free."
        );
        let mine = explained_to_owner(&running, &id).await;
        assert!(next_steps(&mine).contains("still no room"), "{mine}");
        assert_eq!(
            mine["room_now"],
            json!({"is_there": false, "text": "1 of 2 hosts does not offer VGPU. The remaining host \
                                               does not have 1 VGPU free."})
        );
        let room = &explanation["room_now"];
        assert_eq!(
            (&room["is_there"], &room["hosts"]),
            (&json!(false), &json!(2)),
            "{explanation}"
        );
        let removed = |at: usize| room["steps"][at]["removed"].clone();
        assert_eq!((removed(0), removed(1)), (json!(1), json!(1)), "{explanation}");
        assert!(next_steps(&explanation).contains("still no room"), "{explanation}");
        running.delete(&all[0]).await;
        running.wait_until_gone(&all[0]).await;
        let explanation = explained(&running, &id).await;
        assert_eq!(explanation["room_now"]["is_there"], true, "{explanation}");
        assert!(next_steps(&explanation).contains("There is room for it now"), "{explanation}");

        let gone = explained(&running, &all[0]).await;
        assert_eq!((&gone["status"], &gone["host"]), (&json!("DELETED"), &json!("a")), "{gone}");
        assert!(gone["deleted_at"].is_string() && gone["devices"] == json!([]), "{gone}");
        let changes: Vec<_> = gone["device_changes"]
            .as_array()
            .expect("the answer has a list")
            .iter()
            .map(|change| change["change"].as_str().expect("the value is a string"))
            .collect();
        assert_eq!(changes, ["freed", "taken"], "{gone}");
        assert_eq!(gone["actions"][0]["action"], "delete");
        assert!(
            next_steps(&gone).contains("Nothing: it is deleted and holds no resources."),
            "{gone}"
        );
        cloud.teardown(&running, "explained").await;
    }
}

#[tokio::test]
async fn devices_left_on_a_lost_host_are_explained() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu-pair").await;
        running.nodes.kill("a").await;
        running.force_down("a", true).await;
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        let explanation = explained(&running, &id).await;
        assert_eq!(explanation["left_behind"].as_array().map(Vec::len), Some(2), "{explanation}");
        assert!(next_steps(&explanation).contains("2 of its device(s) on host a"), "{explanation}");
        let there = host(&running, "a").await;
        assert_eq!(there["accelerators_not_free"], 2, "{there}");
        assert_eq!(there["guests"][0]["guest_here"], false, "{there}");
        running.force_down("a", false).await;
        running.start_node(&cloud, "a").await;
        running.wait_for_host_cleanup(&cloud).await;
        let explanation = explained(&running, &id).await;
        assert!(
            next_steps(&explanation).contains("Nothing: it is deleted and holds no resources."),
            "{explanation}"
        );
        cloud.teardown(&running, "left behind").await;
    }
}

#[tokio::test]
async fn a_host_lists_its_guests_and_the_claims_of_moves() {
    let topology = hosts(&[("a", &[GPU, FPGA]), ("b", &[GPU, FPGA])]);
    for (cloud, running) in Cloud::all_running(topology).await {
        let vgpu = running.active_server_on(&cloud, "a", "vgpu").await;
        let passthrough = running.active_server_on(&cloud, "a", "fpga").await;
        let there = host(&running, "a").await;
        assert_eq!((&there["state"], &there["status"]), (&json!("up"), &json!("enabled")));
        let guests = there["guests"].as_array().expect("the answer has a list").clone();
        let guest = |id: &str| {
            guests.iter().find(|guest| guest["id"] == id).expect("the host lists the guest")
        };
        assert_eq!(guests.len(), 2, "{there}");
        assert_eq!(guest(&vgpu)["cannot_move_running"], Value::Null, "{there}");
        let stays = &guest(&passthrough)["cannot_move_running"];
        assert_eq!(stays, &guest(&passthrough)["devices"][0], "{there}");
        assert!(stays.is_string(), "{there}");

        let migrate = json!({"migrate": {"host": "b"}});
        let path = format!("POST /servers/{vgpu}/action");
        running.call(ADMIN, "2.56", &path, Some(migrate)).await.expect(202);
        running.wait_for_status(&vgpu, "VERIFY_RESIZE").await;
        let there = host(&running, "a").await;
        let guests = there["guests"].as_array().expect("the answer has a list").clone();
        let guest = guests
            .iter()
            .find(|guest| guest["id"] == vgpu.as_str())
            .expect("the host lists the guest");
        assert_eq!(guest["host"], "b");
        let waits = &guest["move"];
        assert_eq!((&waits["type"], &waits["status"]), (&json!("migration"), &json!("finished")));
        assert_eq!((&waits["source"], &waits["holds_on"]), (&json!("a"), &json!("a")));
        let explanation = explained(&running, &vgpu).await;
        let held: Vec<_> = explanation["devices"]
            .as_array()
            .expect("the answer has a list")
            .iter()
            .map(|d| &d["held_by"])
            .collect();
        assert_eq!(held.len(), 2, "{explanation}");
        assert!(
            held.contains(&&json!("server")) && held.contains(&&json!("migration")),
            "{explanation}"
        );
        let chosen =
            explanation["actions"][0]["host_chosen"].as_str().expect("the value is a string");
        let only = "b was the only suitable host. Rejected: 1 not the";
        assert!(chosen.starts_with(only), "{chosen}");
        assert!(next_steps(&explanation).contains("resize confirm"), "{explanation}");
        let confirm = json!({"confirmResize": null});
        running.call(ADMIN, "2.90", &path, Some(confirm)).await.expect(204);
        running.wait_for_host_cleanup(&cloud).await;
        let there = host(&running, "a").await;
        assert_eq!(there["guests"].as_array().map(Vec::len), Some(1), "{there}");
        cloud.teardown(&running, "explained").await;
    }
}

#[tokio::test]
async fn a_host_is_explained_in_as_many_statements_with_any_number_of_guests() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let meter = Meter::listing();
        let mut counted = running.compute.clone();
        counted.store = counted.store.with_meter(meter.clone());
        let statements = async || {
            let fleet = counted.fleet.clone();
            let host = HostName::verbatim("a");
            let read =
                counted.store.read(move |tx| explain_host(tx, &fleet, &host, time::now())).await;
            let guests = read.expect("the tables are readable").expect("the host exists").guests;
            let all = meter.take_transactions();
            (guests.len(), all.iter().map(|one| one.statements.len()).sum::<usize>())
        };
        running.active_server_on(&cloud, "a", "vgpu").await;
        let one = statements().await;
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(running.active_server_on(&cloud, "a", "vgpu").await);
        }
        assert_eq!((one.0, statements().await), (1, (4, one.1)), "{}", cloud.name);
        // Operations and moves in progress need no more statements.
        running.nodes.kill("a").await;
        admin(&running, "2.90", &ids[0], json!({"pause": null})).await.expect(202);
        let live = json!({"os-migrateLive": {"host": null, "block_migration": "auto"}});
        admin(&running, "2.90", &ids[1], live).await.expect(202);
        assert_eq!(statements().await, (4, one.1), "{}", cloud.name);
        let shown = host(&running, "a").await;
        let guest = |id: &str| {
            let all = shown["guests"].as_array().expect("a list");
            all.iter().find(|guest| guest["id"] == id).expect("it is a guest").clone()
        };
        assert_eq!(guest(&ids[0])["operation"]["waits_for"], "host a to pause the guest");
        assert_eq!(guest(&ids[1])["move"]["type"], "live-migration", "{shown}");
        assert_eq!(guest(&ids[2])["operation"], Value::Null, "{shown}");
        assert!(guest(&ids[2])["guest_here"] == true && guest(&ids[2])["devices"][0].is_string());
    }
}

#[tokio::test]
async fn a_host_has_the_version_that_its_last_registration_reports() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        assert_eq!(host(&running, "a").await["agent_version"], env!("CARGO_PKG_VERSION"));
        // A controller of an earlier version registers the host without the agent's version, and leaves the old value.
        cloud.execute("UPDATE hosts SET agent_version = '0.9', epoch = epoch + 1").await;
        assert_eq!(host(&running, "a").await["agent_version"], Value::Null, "{}", cloud.name);
    }
}

//! What operators are told of a server and of a host: whatever became of the server, with the next
//! thing to do, and to nobody but administrators.

use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, BOB, Cloud, FPGA, GPU, GPUS, Up, hosts};

async fn explained(up: &Up, id: &str) -> Value {
    let path = format!("/kilonova/servers/{id}");
    up.get(ADMIN, "2.1", &path).await.expect(200)["server"].take()
}

async fn host(up: &Up, name: &str) -> Value {
    up.get(ADMIN, "2.1", &format!("/kilonova/hosts/{name}")).await.expect(200)["host"].take()
}

/// What its owner is told, in which no host is named.
async fn owner_sees(up: &Up, id: &str) -> Value {
    let path = format!("/kilonova/servers/{id}");
    let told = up.get(ANN, "2.1", &path).await.expect(200)["server"].take();
    for of_admins in ["hosts", "moves", "claims", "left_behind", "device_changes"] {
        assert!(told.get(of_admins).is_none(), "{of_admins}: {told}");
    }
    for named in ["host a", "host b", "a: ", "Nearest", "a_pci", "was the only host"] {
        assert!(!told.to_string().contains(named), "{named}: {told}");
    }
    assert_eq!(told["host"], Value::Null, "{told}");
    told
}

fn next(told: &Value) -> String {
    told["next"].as_array().expect("a list").iter().map(Value::to_string).collect()
}

#[tokio::test]
async fn a_good_server_is_told_with_its_devices_and_its_choice() {
    let topology = hosts(&[("a", &[GPU, FPGA]), ("b", &[GPU, FPGA])]);
    for (cloud, up) in Cloud::all_up(topology).await {
        let id = up.active(&cloud, "one", "vgpu-pair").await;
        let told = explained(&up, &id).await;
        assert_eq!(told["status"], "ACTIVE", "{told}");
        assert_eq!(told["operation"], Value::Null);
        let devices = told["devices"].as_array().expect("a list");
        assert_eq!(devices.len(), 2, "{told}");
        let known = cloud.column("SELECT uuid FROM attach_handles WHERE state = 'owned'").await;
        for device in devices {
            assert_eq!(device["attached"], true, "{device}");
            assert_eq!(device["handle"]["type"], "MDEV");
            assert_eq!(device["handle"]["mdev_type"], "nvidia-35");
            let uuid = device["handle"]["mdev_uuid"].as_str().expect("a uuid").to_owned();
            assert!(known.contains(&uuid), "{device}");
            assert_eq!(device["asked_by"]["flavor"], "vgpu-pair");
            assert_eq!(device["held_by"], "server");
            let provider = device["provider_name"].as_str().expect("a name");
            let host = told["host"].as_str().expect("a host");
            assert!(provider.starts_with(&format!("{host}_pci_0000_8")), "{device}");
        }
        let held = told["claims"][0]["allocations"].as_array().expect("a list");
        let host = told["host"].as_str().expect("a host");
        assert_eq!(held[0]["name"], host, "the host's own come first: {told}");
        assert!(held.iter().any(|one| one["class"] == "VGPU"), "{told}");
        let create = &told["actions"][0];
        assert_eq!((&create["action"], &create["outcome"]), (&json!("create"), &json!("done")));
        let chosen = create["host_chosen"].as_str().expect("a text");
        assert!(chosen.starts_with("Of 2 hosts with room, by weight: "), "{chosen}");
        assert!(next(&told).contains("Nothing"), "{told}");

        let mine = owner_sees(&up, &id).await;
        assert_eq!(mine["summary"], format!("Server one ({id}) is active; nothing is under way."));
        assert_eq!(mine["next"], json!(["Nothing: it is in its desired state."]));
        assert_eq!(mine["devices"].as_array().map(Vec::len), Some(2), "{mine}");
        assert_eq!(mine["devices"][0]["resource_class"], "VGPU", "{mine}");
        assert_eq!(mine["actions"][0]["outcome"], "done", "{mine}");

        let by_profile = up.active(&cloud, "two", "fpga").await;
        let told = explained(&up, &by_profile).await;
        let asked = json!({"device_profile": "fpga", "group": 0});
        assert_eq!(told["devices"][0]["asked_by"], asked, "{told}");

        let path = format!("/kilonova/servers/{id}");
        up.get(BOB, "2.90", &path).await.refused(404, "could not be found");
        up.get(ANN, "2.90", "/kilonova/hosts/a").await.refused(403, "kilonova:hosts:show");
        for unknown in ["nothing", "4f6a1a8e-3f3f-4f9a-9c3e-0d6f7e6f0a11"] {
            let path = format!("/kilonova/servers/{unknown}");
            up.get(ADMIN, "2.90", &path).await.refused(404, "could not be found");
        }
        up.get(ADMIN, "2.90", "/kilonova/hosts/c").await.refused(404, "host c could not be found");
        cloud.sweep(&up, "told").await;
    }
}

#[tokio::test]
async fn what_is_under_way_says_whom_it_waits_for() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("a", &[GPU])])).await {
        let id = up.active(&cloud, "one", "vgpu").await;
        up.nodes.kill("a").await;
        up.act(&id, json!({"pause": null})).await;
        let mine = owner_sees(&up, &id).await;
        assert_eq!(mine["next"], json!(["Wait for its pause to end."]), "{mine}");
        assert_eq!(mine["operation"]["action"], "pause", "{mine}");
        let told = explained(&up, &id).await;
        let operation = &told["operation"];
        assert_eq!((&operation["action"], &operation["step"]), (&json!("pause"), &json!("settle")));
        assert_eq!(operation["waits_for"], "host a to pause the guest");
        assert!(next(&told).contains("Wait: "), "{told}");
        up.force_down("a", true).await;
        let told = explained(&up, &id).await;
        let what = format!("openstack server evacuate {id}");
        assert!(next(&told).contains(&what), "{told}");
        assert!(next(&told).contains("declared down by an operator"), "{told}");
        assert_eq!(told["hosts"][0]["state"], "down", "{told}");
        up.force_down("a", false).await;
        up.start_node(&cloud, "a").await;
        up.becomes(&id, "PAUSED").await;
        assert!(next(&explained(&up, &id).await).contains("server unpause"));
        cloud.sweep(&up, "waited").await;
    }
}

#[tokio::test]
async fn a_server_without_a_host_says_why_and_whether_there_is_room_now() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU]), ("b", &[FPGA])])).await {
        up.lift_quota().await;
        let mut all = Vec::new();
        for n in 0..GPUS {
            all.push(up.active(&cloud, &format!("s{n}"), "vgpu").await);
        }
        let id = up.boot(&cloud, "late", "vgpu").await;
        up.becomes(&id, "ERROR").await;
        let told = explained(&up, &id).await;
        assert_eq!(told["host"], Value::Null);
        let why = told["actions"][0]["message"].as_str().expect("a text");
        assert_eq!(
            why,
            "No valid host was found. There are not enough hosts available. 1 of 2 hosts does not \
             offer VGPU. The remaining host does not have 1 VGPU free. Nearest: a, which does not have \
             1 VGPU free."
        );
        let owner = up.get(ANN, "2.90", &format!("/servers/{id}")).await.expect(200);
        assert_eq!(
            owner["server"]["fault"]["message"],
            "No valid host was found. There are not enough hosts available. 1 of 2 hosts does not \
             offer VGPU. The remaining host does not have 1 VGPU free."
        );
        let mine = owner_sees(&up, &id).await;
        assert!(next(&mine).contains("still no room"), "{mine}");
        assert_eq!(
            mine["room_now"],
            json!({"is_there": false, "text": "1 of 2 hosts does not offer VGPU. The remaining host \
                                               does not have 1 VGPU free."})
        );
        let room = &told["room_now"];
        assert_eq!((&room["is_there"], &room["hosts"]), (&json!(false), &json!(2)), "{told}");
        let removed = |at: usize| room["steps"][at]["removed"].clone();
        assert_eq!((removed(0), removed(1)), (json!(1), json!(1)), "{told}");
        assert!(next(&told).contains("still no room"), "{told}");
        up.delete(&all[0]).await;
        up.goes(&all[0]).await;
        let told = explained(&up, &id).await;
        assert_eq!(told["room_now"]["is_there"], true, "{told}");
        assert!(next(&told).contains("There is room for it now"), "{told}");

        let gone = explained(&up, &all[0]).await;
        assert_eq!((&gone["status"], &gone["host"]), (&json!("DELETED"), &json!("a")), "{gone}");
        assert!(gone["deleted_at"].is_string() && gone["devices"] == json!([]), "{gone}");
        let changes: Vec<_> = gone["device_changes"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|change| change["change"].as_str().expect("a text"))
            .collect();
        assert_eq!(changes, ["freed", "taken"], "{gone}");
        assert_eq!(gone["actions"][0]["action"], "delete");
        assert!(next(&gone).contains("Nothing: it is deleted and holds no resources."), "{gone}");
        cloud.sweep(&up, "told").await;
    }
}

#[tokio::test]
async fn what_a_deleted_server_left_on_a_lost_host_is_told() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("a", &[GPU])])).await {
        let id = up.active(&cloud, "one", "vgpu-pair").await;
        up.nodes.kill("a").await;
        up.force_down("a", true).await;
        up.delete(&id).await;
        up.goes(&id).await;
        let told = explained(&up, &id).await;
        assert_eq!(told["left_behind"].as_array().map(Vec::len), Some(2), "{told}");
        assert!(next(&told).contains("2 device(s) that it left on host a"), "{told}");
        let there = host(&up, "a").await;
        assert_eq!(there["accelerators_not_free"], 2, "{there}");
        assert_eq!(there["guests"][0]["guest_here"], false, "{there}");
        up.force_down("a", false).await;
        up.start_node(&cloud, "a").await;
        up.hosts_have_dropped(&cloud).await;
        let told = explained(&up, &id).await;
        assert!(next(&told).contains("Nothing: it is deleted and holds no resources."), "{told}");
        cloud.sweep(&up, "left").await;
    }
}

#[tokio::test]
async fn a_host_says_who_is_on_it_and_what_a_move_still_holds_there() {
    let topology = hosts(&[("a", &[GPU, FPGA]), ("b", &[GPU, FPGA])]);
    for (cloud, up) in Cloud::all_up(topology).await {
        let vgpu = up.active_on(&cloud, "a", "vgpu").await;
        let whole = up.active_on(&cloud, "a", "fpga").await;
        let there = host(&up, "a").await;
        assert_eq!((&there["state"], &there["status"]), (&json!("up"), &json!("enabled")));
        let guests = there["guests"].as_array().expect("a list").clone();
        let guest = |id: &str| guests.iter().find(|guest| guest["id"] == id).expect("there");
        assert_eq!(guests.len(), 2, "{there}");
        assert_eq!(guest(&vgpu)["cannot_move_running"], Value::Null, "{there}");
        let stays = &guest(&whole)["cannot_move_running"];
        assert_eq!(stays, &guest(&whole)["devices"][0], "{there}");
        assert!(stays.is_string(), "{there}");

        let migrate = json!({"migrate": {"host": "b"}});
        let path = format!("POST /servers/{vgpu}/action");
        up.call(ADMIN, "2.56", &path, Some(migrate)).await.expect(202);
        up.becomes(&vgpu, "VERIFY_RESIZE").await;
        let there = host(&up, "a").await;
        let guests = there["guests"].as_array().expect("a list").clone();
        let guest = guests.iter().find(|guest| guest["id"] == vgpu.as_str()).expect("there");
        assert_eq!(guest["host"], "b");
        let waits = &guest["move"];
        assert_eq!((&waits["type"], &waits["status"]), (&json!("migration"), &json!("finished")));
        assert_eq!((&waits["source"], &waits["holds_on"]), (&json!("a"), &json!("a")));
        let told = explained(&up, &vgpu).await;
        let held: Vec<_> =
            told["devices"].as_array().expect("a list").iter().map(|d| &d["held_by"]).collect();
        assert_eq!(held.len(), 2, "{told}");
        assert!(held.contains(&&json!("server")) && held.contains(&&json!("migration")), "{told}");
        let chosen = told["actions"][0]["host_chosen"].as_str().expect("a text");
        let only = "b was the only host with room that may be used. Passed over: 1 not the";
        assert!(chosen.starts_with(only), "{chosen}");
        assert!(next(&told).contains("resize confirm"), "{told}");
        let confirm = json!({"confirmResize": null});
        up.call(ADMIN, "2.90", &path, Some(confirm)).await.expect(204);
        up.hosts_have_dropped(&cloud).await;
        let there = host(&up, "a").await;
        assert_eq!(there["guests"].as_array().map(Vec::len), Some(1), "{there}");
        cloud.sweep(&up, "told").await;
    }
}

//! Evacuations from a host that is down. The host drops its guest when it returns.

use serde_json::{Value, json};

use crate::kit::{ADMIN, Cloud, FPGA, GPU, RunningCloud, hosts, wait_until};
use crate::servers::resize::admin;

/// Nova's refusal of a host that is forced up too early.
const GUESTS_REMAIN: &str = "Unable to force up host a as `done` evacuation migration records remain associated with \
    the host. Ensure the compute service has been restarted, allowing these records to move to `completed` before \
    retrying this request.";

async fn evacuate(running: &RunningCloud, version: &str, id: &str) {
    admin(running, version, id, json!({"evacuate": {}})).await.expect(200);
}

async fn host_of(running: &RunningCloud, id: &str) -> Value {
    running.server(id).await["OS-EXT-SRV-ATTR:host"].clone()
}

async fn wait_for_old_host_cleanup(cloud: &Cloud) {
    wait_until("the old host has dropped the guest", async || {
        cloud.column("SELECT host FROM documents").await.len() == 1
    })
    .await;
}

#[tokio::test]
async fn the_server_is_rebuilt_and_the_old_host_drops_it() {
    let topology = hosts(&[("a", &[GPU, FPGA]), ("b", &[GPU, FPGA])]);
    for (cloud, mut running) in Cloud::all_running(topology).await {
        for flavor in ["plain", "vgpu", "vgpu-pair", "profile", "fpga", "both"] {
            let id = running.active_server_on(&cloud, "a", flavor).await;
            running.nodes.kill("a").await;
            running.force_down("a", true).await;
            evacuate(&running, "2.94", &id).await;
            running.wait_for_status(&id, "ACTIVE").await;
            assert_eq!(host_of(&running, &id).await, "b");
            cloud.audit("evacuated").await;
            assert_eq!(
                cloud.files("a", "running"),
                [id.as_str()],
                "the host has no new document yet"
            );
            let status = "SELECT status FROM moves ORDER BY number DESC LIMIT 1";
            assert_eq!(cloud.column(status).await, ["done"]);
            running.try_force_down("a", false).await.refused(400, GUESTS_REMAIN);
            let service = running.get(ADMIN, "2.69", "/os-services?host=a").await.expect(200);
            let path = format!("PUT /os-services/{}", service["services"][0]["id"]);
            let up = json!({"forced_down": false});
            let path = path.replace('"', "");
            running.admin("2.69", &path, up).await.refused(400, GUESTS_REMAIN);
            running.start_node(&cloud, "a").await;
            running.force_down("a", false).await;
            wait_for_old_host_cleanup(&cloud).await;
            cloud.assert_consistent(&running, "the host is back").await;
            assert_eq!(cloud.column(status).await, ["completed"]);
            cloud.teardown(&running, flavor).await;
        }
    }
}

/// A host that never returns can be deleted, although it has not removed the guests of evacuated servers. If it returns
/// after all, its devices are available only once it has removed them.
#[tokio::test]
async fn a_host_whose_servers_were_evacuated_can_be_deleted() {
    const HEALTHY: &str = "SELECT health FROM devices WHERE host = 'a'";
    let topology = hosts(&[("a", &[GPU]), ("b", &[GPU])]);
    for (cloud, mut running) in Cloud::all_running(topology).await {
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        let deleted = running.active_server_on(&cloud, "a", "vgpu").await;
        running.nodes.kill("a").await;
        running.force_down("a", true).await;
        // The evacuation waits for its destination.
        running.nodes.kill("b").await;
        evacuate(&running, "2.94", &id).await;
        let path = format!("DELETE /servers/{deleted}");
        running.call(ADMIN, "2.90", &path, None).await.expect(204);
        let list = running.get(ADMIN, "2.53", "/os-services?host=a").await.expect(200);
        let service = list["services"][0]["id"].as_str().expect("it has an id").to_owned();
        let delete = format!("DELETE /os-services/{service}");
        let refused = running.call(ADMIN, "2.53", &delete, None).await;
        refused.refused(409, "Unable to delete compute service that is hosting instances.");
        running.start_node(&cloud, "b").await;
        running.wait_for_status(&id, "ACTIVE").await;
        running.call(ADMIN, "2.53", &delete, None).await.expect(204);
        assert_eq!(cloud.column(HEALTHY).await, [""; 0]);
        let left = "SELECT server_id FROM left_guests";
        assert_eq!(cloud.column(left).await.len(), 2);
        cloud.audit("the host is deleted").await;

        // The host returns and does not get the documents yet.
        let both = cloud.files("a", "running");
        assert_eq!(both.len(), 2, "{both:?}");
        cloud
            .execute(
                "INSERT INTO documents (host, server_id, generation, body, held)
                 SELECT host, server_id, 1, '{\"state\":\"absent\"}', 1 FROM left_guests",
            )
            .await;
        running.start_node(&cloud, "a").await;
        wait_until("the host has registered", async || !cloud.column(HEALTHY).await.is_empty())
            .await;
        assert!(cloud.column(HEALTHY).await.iter().all(|health| health != "healthy"));
        assert_eq!(cloud.files("a", "running"), both);
        running.nodes.kill("a").await;
        cloud.execute("DELETE FROM documents WHERE host = 'a'").await;

        // It gets them, removes the guests and is available.
        running.nodes.rescan = Some(std::time::Duration::from_millis(50));
        running.start_node(&cloud, "a").await;
        wait_until("the devices are available", async || {
            cloud.column(HEALTHY).await.iter().all(|health| health == "healthy")
        })
        .await;
        assert_eq!(cloud.files("a", "domains"), [""; 0]);
        assert_eq!(cloud.column(left).await, [""; 0]);
        assert_eq!(cloud.column("SELECT status FROM moves").await, ["completed"]);
        assert_eq!(host_of(&running, &id).await, "b");
        running.active_server_on(&cloud, "a", "vgpu").await;
        cloud.assert_consistent(&running, "the host is back").await;
        cloud.teardown(&running, "the host is back").await;
    }
}

/// A deletion that waits only for a host ends when its service is deleted; until the host counts as lost, the service
/// stays.
#[tokio::test]
async fn a_deletion_that_waits_for_a_deleted_host_ends() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        admin(&running, "2.90", &id, json!({"migrate": null})).await.expect(202);
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        running.nodes.kill("a").await;
        admin(&running, "2.90", &id, json!({"confirmResize": null})).await.expect(204);
        running.wait_for_status(&id, "ACTIVE").await;
        running.call(ADMIN, "2.90", &format!("DELETE /servers/{id}"), None).await.expect(204);
        let waiting = "SELECT host FROM documents";
        wait_until("host b has removed the guest", async || cloud.column(waiting).await == ["a"])
            .await;
        let list = running.get(ADMIN, "2.53", "/os-services?host=a").await.expect(200);
        let service = list["services"][0]["id"].as_str().expect("it has an id").to_owned();
        let delete = format!("DELETE /os-services/{service}");
        // The row says so, but the controller has not seen it yet.
        cloud.execute("UPDATE hosts SET forced_down = 1 WHERE host = 'a'").await;
        let refused = running.call(ADMIN, "2.53", &delete, None).await;
        refused.refused(409, &format!("the deletion of server {id} waits for it"));
        running.force_down("a", true).await;
        running.call(ADMIN, "2.53", &delete, None).await.expect(204);
        running.wait_until_gone(&id).await;
        cloud.audit("the host is deleted").await;
    }
}

/// A returned host that removes a guest frees no device that the same server left on another host.
#[tokio::test]
async fn a_removal_frees_only_devices_of_its_own_host() {
    const DIRTY: &str =
        "SELECT d.host FROM attach_handles h JOIN deployables p ON p.id = h.deployable_id
        JOIN devices d ON d.id = p.device_id WHERE h.state = 'dirty'";
    let topology = hosts(&[("a", &[GPU]), ("b", &[GPU])]);
    for (cloud, mut running) in Cloud::all_running(topology).await {
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        running.nodes.kill("a").await;
        running.force_down("a", true).await;
        evacuate(&running, "2.94", &id).await;
        running.wait_for_status(&id, "ACTIVE").await;
        let list = running.get(ADMIN, "2.53", "/os-services?host=a").await.expect(200);
        let service = list["services"][0]["id"].as_str().expect("it has an id").to_owned();
        let delete = format!("DELETE /os-services/{service}");
        running.call(ADMIN, "2.53", &delete, None).await.expect(204);
        running.nodes.kill("b").await;
        running.force_down("b", true).await;
        running.call(ADMIN, "2.90", &format!("DELETE /servers/{id}"), None).await.expect(204);
        assert_eq!(cloud.column(DIRTY).await, ["b"]);
        running.start_node(&cloud, "a").await;
        wait_until("the guest is removed", async || cloud.files("a", "domains").is_empty()).await;
        wait_until("the removal is reported", async || {
            cloud.column("SELECT server_id FROM left_guests").await.is_empty()
        })
        .await;
        assert_eq!(cloud.column(DIRTY).await, ["b"]);
        running.force_down("b", false).await;
        running.start_node(&cloud, "b").await;
        wait_until("the device is clean", async || cloud.column(DIRTY).await.is_empty()).await;
    }
}

#[tokio::test]
async fn the_guest_metadata_names_the_zone_of_the_new_host() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let body = json!({"aggregate": {"name": "g", "availability_zone": "zone-of-b"}});
        let made = running.admin("2.90", "POST /os-aggregates", body).await.expect(200);
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        let path = format!("POST /os-aggregates/{}/action", made["aggregate"]["id"]);
        let body = json!({"add_host": {"host": "b"}});
        running.admin("2.90", &path, body).await.expect(200);
        running.force_down("a", true).await;
        evacuate(&running, "2.94", &id).await;
        running.wait_for_status(&id, "ACTIVE").await;
        let document = cloud.column("SELECT body FROM documents WHERE host = 'b'").await;
        assert_eq!(document.len(), 1, "the new host has one guest");
        assert!(document[0].contains("zone-of-b"), "{}", document[0]);
        cloud.teardown(&running, "evacuated").await;
    }
}

#[tokio::test]
async fn the_power_state_follows_the_server_and_the_microversion() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        for (version, stopped, expected) in
            [("2.94", false, "ACTIVE"), ("2.94", true, "SHUTOFF"), ("2.95", false, "SHUTOFF")]
        {
            let id = running.active_server_on(&cloud, "a", "vgpu").await;
            if stopped {
                admin(&running, "2.90", &id, json!({"os-stop": null})).await.expect(202);
                running.wait_for_status(&id, "SHUTOFF").await;
            }
            running.force_down("a", true).await;
            evacuate(&running, version, &id).await;
            running.wait_for_status(&id, expected).await;
            assert_eq!(host_of(&running, &id).await, "b");
            wait_for_old_host_cleanup(&cloud).await;
            cloud.assert_consistent(&running, expected).await;
            cloud.teardown(&running, expected).await;
            running.force_down("a", false).await;
        }
    }
}

#[tokio::test]
async fn operations_on_the_lost_host_end() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        for action in [
            json!({"os-stop": null}),
            json!({"migrate": null}),
            json!({"createImage": {"name": "picture"}}),
        ] {
            let id = running.active_server_on(&cloud, "a", "vgpu").await;
            running.nodes.kill("a").await;
            admin(&running, "2.90", &id, action.clone()).await.expect(202);
            running.force_down("a", true).await;
            evacuate(&running, "2.90", &id).await;
            running.wait_for_status(&id, "ACTIVE").await;
            assert_eq!(host_of(&running, &id).await, "b");
            cloud.audit("evacuated").await;
            running.start_node(&cloud, "a").await;
            running.force_down("a", false).await;
            wait_for_old_host_cleanup(&cloud).await;
            cloud.assert_consistent(&running, "the host is back").await;
            cloud.teardown(&running, "the host is back").await;
        }
    }
}

/// The source of a finished migration has a copy of the guest, which an evacuation would delete together with the
/// operation that it interrupts.
#[tokio::test]
async fn a_finished_migration_is_not_cancelled_with_an_operation() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        admin(&running, "2.90", &id, json!({"migrate": null})).await.expect(202);
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        let reset = json!({"os-resetState": {"state": "active"}});
        admin(&running, "2.90", &id, reset).await.expect(202);
        running.nodes.kill("b").await;
        admin(&running, "2.90", &id, json!({"os-stop": null})).await.expect(202);
        running.force_down("b", true).await;
        let refused = admin(&running, "2.90", &id, json!({"evacuate": {}})).await;
        refused.refused(409, "confirm or revert that first");
        assert_eq!(cloud.column("SELECT status FROM moves").await, ["finished"]);
        cloud.audit("refused").await;
        running.force_down("b", false).await;
        running.start_node(&cloud, "b").await;
        running.wait_for_status(&id, "SHUTOFF").await;
        admin(&running, "2.90", &id, json!({"confirmResize": null})).await.expect(204);
        wait_for_old_host_cleanup(&cloud).await;
        assert_eq!(host_of(&running, &id).await, "b");
        cloud.assert_consistent(&running, "confirmed").await;
        cloud.teardown(&running, "confirmed").await;
    }
}

#[tokio::test]
async fn without_a_valid_host_nothing_changes() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[])])).await {
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        running.force_down("a", true).await;
        evacuate(&running, "2.90", &id).await;
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(host_of(&running, &id).await, "a");
        cloud.assert_consistent(&running, "no room").await;
        running.force_down("a", false).await;
        cloud.teardown(&running, "no room").await;
    }
}

#[tokio::test]
async fn a_failed_evacuation_keeps_the_server_on_its_host() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        running.restart_failing(&cloud, "b", &[("start", None)]).await;
        running.force_down("a", true).await;
        evacuate(&running, "2.90", &id).await;
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(host_of(&running, &id).await, "a");
        assert_eq!(cloud.column("SELECT status FROM moves").await, ["failed"]);
        running.force_down("a", false).await;
        wait_until("the guest runs again", async || cloud.files("a", "running") == [id.as_str()])
            .await;
        cloud.assert_consistent(&running, "still on its host").await;
        cloud.teardown(&running, "still on its host").await;
    }
}

#[tokio::test]
async fn a_guest_that_cannot_restart_after_a_failed_evacuation_is_a_fault() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        running.restart_failing(&cloud, "a", &[("start", Some(1))]).await;
        running.restart_failing(&cloud, "b", &[("start", None)]).await;
        running.force_down("a", true).await;
        evacuate(&running, "2.90", &id).await;
        wait_until("the server is in ERROR", async || {
            running.server(&id).await["status"] == "ERROR"
        })
        .await;
        let server = running.server(&id).await;
        assert!(crate::kit::fault(&server).contains("a: start: "), "{server}");
        assert_eq!(host_of(&running, &id).await, "a");
        running.force_down("a", false).await;
        cloud.assert_consistent(&running, "still on its host").await;
        admin(&running, "2.90", &id, json!({"reboot": {"type": "HARD"}})).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.assert_consistent(&running, "running again").await;
        cloud.teardown(&running, "running again").await;
    }
}

#[tokio::test]
async fn delete_before_the_old_host_returns() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let id = running.active_server_on(&cloud, "a", "vgpu-pair").await;
        running.nodes.kill("a").await;
        running.force_down("a", true).await;
        evacuate(&running, "2.90", &id).await;
        running.wait_for_status(&id, "ACTIVE").await;
        running.nodes.kill("b").await;
        running.force_down("b", true).await;
        running.call("admin", "2.90", &format!("DELETE /servers/{id}"), None).await.expect(204);
        running.wait_until_gone(&id).await;
        let dirty = "SELECT uuid FROM attach_handles WHERE state = 'dirty'";
        assert_eq!(cloud.column(dirty).await.len(), 4);
        cloud.audit("both hosts have dirty handles").await;
        for host in ["a", "b"] {
            running.start_node(&cloud, host).await;
            wait_until("the host has dropped the guest", async || {
                let left = "SELECT host FROM documents";
                !cloud.column(left).await.contains(&host.to_owned())
            })
            .await;
            cloud.audit(host).await;
            running.force_down(host, false).await;
        }
        cloud.assert_empty(&running, "both hosts are back").await;
    }
}

#[tokio::test]
async fn invalid_evacuations_are_refused() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        let bad = |version: &'static str, body: Value| {
            let (running, id) = (&running, &id);
            async move { admin(running, version, id, json!({"evacuate": body})).await }
        };
        bad("2.90", json!({})).await.refused(400, "Compute service of a is still in use.");
        running.force_down("a", true).await;
        bad("2.90", json!({"host": "a"})).await.refused(400, "can't be the same one");
        bad("2.90", json!({"host": "x"})).await.refused(404, "Compute host x not found.");
        bad("2.90", json!({"force": true})).await.refused(400, "'force' was unexpected");
        bad("2.29", json!({"force": true})).await.refused(400, "Can't force to a non-provided");
        bad("2.1", json!({"host": "b"})).await.refused(400, "onSharedStorage");
        let mine =
            running.call("ann:red", "2.90", &format!("POST /servers/{id}/action"), None).await;
        assert!(mine.status.is_client_error());
        let body = json!({"host": "b", "onSharedStorage": "False", "adminPass": "secret"});
        let answer = bad("2.1", body).await.expect(200);
        assert_eq!(answer, json!({"adminPass": "secret"}));
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(host_of(&running, &id).await, "b");
        wait_for_old_host_cleanup(&cloud).await;
        cloud.assert_consistent(&running, "evacuated to a host").await;
        cloud.teardown(&running, "evacuated to a host").await;
    }
}

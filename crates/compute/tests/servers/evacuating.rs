//! Evacuations: away from a host that is down, which is told to drop what it had.

use serde_json::{Value, json};

use crate::kit::{Cloud, FPGA, GPU, Up, hosts, patiently};
use crate::servers::moving::admin;

async fn evacuate(up: &Up, version: &str, id: &str) {
    admin(up, version, id, json!({"evacuate": {}})).await.expect(200);
}

async fn host_of(up: &Up, id: &str) -> Value {
    up.server(id).await["OS-EXT-SRV-ATTR:host"].clone()
}

async fn alone(cloud: &Cloud) {
    patiently("the old host to drop it", async || {
        cloud.column("SELECT host FROM documents").await.len() == 1
    })
    .await;
}

#[tokio::test]
async fn the_server_is_made_anew_and_the_old_host_drops_it() {
    let topology = hosts(&[("a", &[GPU, FPGA]), ("b", &[GPU, FPGA])]);
    for (cloud, mut up) in Cloud::all_up(topology).await {
        for flavor in ["plain", "vgpu", "vgpu-pair", "profile", "fpga", "both"] {
            let id = up.active_on(&cloud, "a", flavor).await;
            up.nodes.kill("a").await;
            up.force_down("a", true).await;
            evacuate(&up, "2.94", &id).await;
            up.becomes(&id, "ACTIVE").await;
            assert_eq!(host_of(&up, &id).await, "b");
            cloud.audit("evacuated").await;
            assert_eq!(cloud.files("a", "running"), [id.as_str()], "nobody has told the host");
            up.start_node(&cloud, "a").await;
            up.force_down("a", false).await;
            alone(&cloud).await;
            cloud.sound(&up, "back").await;
            let status = "SELECT status FROM moves ORDER BY number DESC LIMIT 1";
            assert_eq!(cloud.column(status).await, ["done"]);
            cloud.sweep(&up, flavor).await;
        }
    }
}

#[tokio::test]
async fn the_new_guest_knows_the_zone_of_its_new_host() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let body = json!({"aggregate": {"name": "g", "availability_zone": "zone-of-b"}});
        let made = up.admin("2.90", "POST /os-aggregates", body).await.expect(200);
        let id = up.active_on(&cloud, "a", "vgpu").await;
        let path = format!("POST /os-aggregates/{}/action", made["aggregate"]["id"]);
        let body = json!({"add_host": {"host": "b"}});
        up.admin("2.90", &path, body).await.expect(200);
        up.force_down("a", true).await;
        evacuate(&up, "2.94", &id).await;
        up.becomes(&id, "ACTIVE").await;
        let document = cloud.column("SELECT body FROM documents WHERE host = 'b'").await;
        assert_eq!(document.len(), 1, "the new host has one guest");
        assert!(document[0].contains("zone-of-b"), "{}", document[0]);
        cloud.sweep(&up, "evacuated").await;
    }
}

#[tokio::test]
async fn it_runs_again_or_not() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        for (version, stopped, ends) in
            [("2.94", false, "ACTIVE"), ("2.94", true, "SHUTOFF"), ("2.95", false, "SHUTOFF")]
        {
            let id = up.active_on(&cloud, "a", "vgpu").await;
            if stopped {
                admin(&up, "2.90", &id, json!({"os-stop": null})).await.expect(202);
                up.becomes(&id, "SHUTOFF").await;
            }
            up.force_down("a", true).await;
            evacuate(&up, version, &id).await;
            up.becomes(&id, ends).await;
            assert_eq!(host_of(&up, &id).await, "b");
            alone(&cloud).await;
            cloud.sound(&up, ends).await;
            cloud.sweep(&up, ends).await;
            up.force_down("a", false).await;
        }
    }
}

#[tokio::test]
async fn what_was_being_done_on_the_lost_host_ends() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        for action in [
            json!({"os-stop": null}),
            json!({"migrate": null}),
            json!({"createImage": {"name": "picture"}}),
        ] {
            let id = up.active_on(&cloud, "a", "vgpu").await;
            up.nodes.kill("a").await;
            admin(&up, "2.90", &id, action.clone()).await.expect(202);
            up.force_down("a", true).await;
            evacuate(&up, "2.90", &id).await;
            up.becomes(&id, "ACTIVE").await;
            assert_eq!(host_of(&up, &id).await, "b");
            cloud.audit("evacuated").await;
            up.start_node(&cloud, "a").await;
            up.force_down("a", false).await;
            alone(&cloud).await;
            cloud.sound(&up, "back").await;
            cloud.sweep(&up, "back").await;
        }
    }
}

#[tokio::test]
async fn where_nobody_has_room_nothing_changes() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU]), ("b", &[])])).await {
        let id = up.active_on(&cloud, "a", "vgpu").await;
        up.force_down("a", true).await;
        evacuate(&up, "2.90", &id).await;
        up.becomes(&id, "ACTIVE").await;
        assert_eq!(host_of(&up, &id).await, "a");
        cloud.sound(&up, "no room").await;
        up.force_down("a", false).await;
        cloud.sweep(&up, "no room").await;
    }
}

#[tokio::test]
async fn one_that_fails_there_stays() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let id = up.active_on(&cloud, "a", "vgpu").await;
        up.restart_failing(&cloud, "b", &[("start", None)]).await;
        up.force_down("a", true).await;
        evacuate(&up, "2.90", &id).await;
        up.becomes(&id, "ACTIVE").await;
        assert_eq!(host_of(&up, &id).await, "a");
        up.force_down("a", false).await;
        patiently("the guest to run again", async || cloud.files("a", "running") == [id.as_str()])
            .await;
        cloud.sound(&up, "stays").await;
        cloud.sweep(&up, "stays").await;
    }
}

#[tokio::test]
async fn one_that_cannot_run_again_where_it_was_says_so() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let id = up.active_on(&cloud, "a", "vgpu").await;
        up.restart_failing(&cloud, "a", &[("start", Some(1))]).await;
        up.restart_failing(&cloud, "b", &[("start", None)]).await;
        up.force_down("a", true).await;
        evacuate(&up, "2.90", &id).await;
        patiently("the failure", async || up.server(&id).await["status"] == "ERROR").await;
        let server = up.server(&id).await;
        assert!(crate::kit::fault(&server).contains("a: start: "), "{server}");
        assert_eq!(host_of(&up, &id).await, "a");
        up.force_down("a", false).await;
        cloud.sound(&up, "stays").await;
        admin(&up, "2.90", &id, json!({"reboot": {"type": "HARD"}})).await.expect(202);
        up.becomes(&id, "ACTIVE").await;
        cloud.sound(&up, "runs again").await;
        cloud.sweep(&up, "runs again").await;
    }
}

#[tokio::test]
async fn deleted_before_the_old_host_is_back() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let id = up.active_on(&cloud, "a", "vgpu-pair").await;
        up.nodes.kill("a").await;
        up.force_down("a", true).await;
        evacuate(&up, "2.90", &id).await;
        up.becomes(&id, "ACTIVE").await;
        up.nodes.kill("b").await;
        up.force_down("b", true).await;
        up.call("admin", "2.90", &format!("DELETE /servers/{id}"), None).await.expect(204);
        up.goes(&id).await;
        let dirty = "SELECT uuid FROM attach_handles WHERE state = 'dirty'";
        assert_eq!(cloud.column(dirty).await.len(), 4);
        cloud.audit("both are dirty").await;
        for host in ["a", "b"] {
            up.start_node(&cloud, host).await;
            patiently("a host to drop it", async || {
                let left = "SELECT host FROM documents";
                !cloud.column(left).await.contains(&host.to_owned())
            })
            .await;
            cloud.audit(host).await;
        }
        cloud.empty(&up, "both are back").await;
    }
}

#[tokio::test]
async fn refusals() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let id = up.active_on(&cloud, "a", "vgpu").await;
        let bad = |version: &'static str, body: Value| {
            let (up, id) = (&up, &id);
            async move { admin(up, version, id, json!({"evacuate": body})).await }
        };
        bad("2.90", json!({})).await.refused(400, "Compute service of a is still in use.");
        up.force_down("a", true).await;
        bad("2.90", json!({"host": "a"})).await.refused(400, "can't be the same one");
        bad("2.90", json!({"host": "x"})).await.refused(404, "Compute host x not found.");
        bad("2.90", json!({"force": true})).await.refused(400, "'force' was unexpected");
        bad("2.29", json!({"force": true})).await.refused(400, "Can't force to a non-provided");
        bad("2.1", json!({"host": "b"})).await.refused(400, "onSharedStorage");
        let mine = up.call("ann:red", "2.90", &format!("POST /servers/{id}/action"), None).await;
        assert!(mine.status.is_client_error());
        let body = json!({"host": "b", "onSharedStorage": "False", "adminPass": "secret"});
        let answer = bad("2.1", body).await.expect(200);
        assert_eq!(answer, json!({"adminPass": "secret"}));
        up.becomes(&id, "ACTIVE").await;
        assert_eq!(host_of(&up, &id).await, "b");
        alone(&cloud).await;
        cloud.sound(&up, "told where").await;
        cloud.sweep(&up, "told where").await;
    }
}

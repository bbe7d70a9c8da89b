//! The requests that return a URL, by microversion, and the refusals of all others.

use kilonova_compute_app::consoles::ConsoleOptions;
use serde_json::json;

use super::{asked, clouds, token, url};
use crate::kit::{ADMIN, ANN, BOB, wait_until};

#[tokio::test]
async fn a_url_has_a_token_of_which_the_database_has_the_hash() {
    let base = "https://proxy.example/vnc_lite.html?path=websockify".to_owned();
    let options = ConsoleOptions { vnc_base_url: Some(base), ..Default::default() };
    for (cloud, running) in clouds(options, &["a"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let vnc = url(&running, &id, "vnc", "novnc").await;
        let start = "https://proxy.example/vnc_lite.html?path=websockify%3Ftoken%3D";
        assert!(vnc.starts_with(start), "{vnc}");
        let serial = url(&running, &id, "serial", "serial").await;
        assert!(serial.starts_with("ws://cloud:1234/console/serial?token="), "{serial}");
        let hashes = cloud.column("SELECT hash FROM console_tokens").await;
        assert_eq!(hashes.len(), 2);
        for known in [token(&vnc), token(&serial)] {
            assert_eq!(known.len(), 36, "a uuid");
            assert!(!hashes.iter().any(|hash| hash.contains(known)));
        }
        let show = |token: &str| format!("/os-console-auth-tokens/{token}");
        let shown = running.get(ADMIN, "2.31", &show(token(&vnc))).await.expect(200);
        assert_eq!(
            shown["console"],
            json!({"instance_uuid": id, "host": "cloud", "port": 1234, "internal_access_path": null})
        );
        running.get(ADMIN, "2.30", &show(token(&vnc))).await.refused(400, "malformed");
        running.get(ANN, "2.31", &show(token(&vnc))).await.refused(403, "os-console-auth-tokens");
        running.get(ADMIN, "2.31", &show(&hashes[0])).await.refused(404, "Token not found");
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        wait_until("no token is left", async || {
            cloud.column("SELECT hash FROM console_tokens").await.is_empty()
        })
        .await;
        running.get(ADMIN, "2.31", &show(token(&vnc))).await.refused(404, "Token not found");
        cloud.assert_empty(&running, "deleted").await;
        let requests = cloud.column("SELECT id FROM console_requests").await;
        assert!(requests.is_empty(), "answered requests are deleted");
    }
}

#[tokio::test]
async fn each_microversion_has_its_own_requests() {
    for (cloud, running) in clouds(ConsoleOptions::default(), &["a"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let action = format!("POST /servers/{id}/action");
        let get = |key: &str, kind: &str| Some(json!({key: {"type": kind}}));
        for (version, key, kind, status, part) in [
            ("2.1", "os-getVNCConsole", "novnc", 200, ""),
            ("2.5", "os-getSerialConsole", "serial", 200, ""),
            ("2.5", "os-getVNCConsole", "xvpvnc", 400, "Invalid console type xvpvnc"),
            (
                "2.5",
                "os-getSPICEConsole",
                "spice-html5",
                400,
                "Unavailable console type spice-html5.",
            ),
            ("2.5", "os-getRDPConsole", "rdp-html5", 410, "no longer available"),
            ("2.6", "os-getVNCConsole", "novnc", 404, "not supported"),
            ("2.6", "os-getSerialConsole", "serial", 404, "not supported"),
        ] {
            let answer = running.call(ANN, version, &action, get(key, kind)).await;
            if status == 200 {
                let console = answer.expect(200)["console"].clone();
                assert_eq!(console["type"], kind);
                assert!(console["url"].as_str().is_some_and(|url| url.contains("token")));
            } else {
                answer.refused(status, part);
            }
        }
        let path = format!("POST /servers/{id}/remote-consoles");
        for (version, protocol, kind, status, part) in [
            ("2.5", "vnc", "novnc", 404, ""),
            ("2.6", "vnc", "novnc", 200, ""),
            ("2.6", "serial", "serial", 200, ""),
            ("2.99", "vnc", "novnc", 200, ""),
            ("2.6", "vnc", "xvpvnc", 400, "Invalid console type xvpvnc"),
            ("2.6", "vnc", "serial", 400, "Invalid console type serial"),
            ("2.6", "serial", "novnc", 400, "Invalid console type novnc"),
            ("2.6", "spice", "spice-html5", 400, "Unavailable console type spice-html5."),
            ("2.6", "rdp", "rdp-html5", 400, "Unavailable console type rdp."),
            ("2.7", "mks", "webmks", 400, "protocol"),
            ("2.8", "mks", "webmks", 400, "Unavailable console type webmks."),
            ("2.98", "spice", "spice-direct", 400, "type"),
            ("2.99", "spice", "spice-direct", 400, "Unavailable console type spice-direct."),
            ("2.99", "telnet", "novnc", 400, "protocol"),
        ] {
            let answer = running.call(ANN, version, &path, Some(asked(protocol, kind))).await;
            if status == 200 {
                let console = answer.expect(200)["remote_console"].clone();
                assert_eq!(
                    (&console["protocol"], &console["type"]),
                    (&json!(protocol), &json!(kind))
                );
            } else {
                answer.refused(status, part);
            }
        }
        for wrong in [
            json!({}),
            json!({"remote_console": {"protocol": "vnc"}}),
            json!({"remote_console": {"type": "novnc"}}),
            json!({"remote_console": {"protocol": "vnc", "type": "novnc", "x": 1}}),
            json!({"remote_console": {"protocol": "vnc", "type": "novnc"}, "x": 1}),
            json!({"remote_console": {"protocol": null, "type": 7}}),
        ] {
            running.call(ANN, "2.99", &path, Some(wrong)).await.refused(400, "");
        }
        cloud.teardown(&running, "asked").await;
    }
}

#[tokio::test]
async fn only_the_project_of_a_server_with_a_guest_gets_a_console() {
    let off = ConsoleOptions { vnc: false, ..Default::default() };
    for (cloud, running) in clouds(off, &["a"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let path = format!("POST /servers/{id}/remote-consoles");
        let vnc = || Some(asked("vnc", "novnc"));
        running
            .call(ANN, "2.99", &path, vnc())
            .await
            .refused(400, "Unavailable console type novnc.");
        cloud.teardown(&running, "switched off").await;
    }
    for (cloud, mut running) in clouds(ConsoleOptions::default(), &["a"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let path = format!("POST /servers/{id}/remote-consoles");
        let vnc = || Some(asked("vnc", "novnc"));
        running.call(BOB, "2.99", &path, vnc()).await.refused(404, "could not be found");
        let missing = "POST /servers/00000000-0000-4000-8000-000000000000/remote-consoles";
        running.call(ANN, "2.99", missing, vnc()).await.refused(404, "could not be found");
        // As in upstream, the request succeeds for a server that is shut off.
        running.act(&id, json!({"os-stop": null})).await;
        running.wait_for_status(&id, "SHUTOFF").await;
        running.call(ANN, "2.99", &path, vnc()).await.expect(200);
        running.act(&id, json!({"shelve": null})).await;
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        running
            .call(ANN, "2.99", &path, vnc())
            .await
            .refused(409, &format!("Instance {id} is not ready"));
        running.act(&id, json!({"unshelve": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        running.nodes.kill("a").await;
        running.force_down("a", true).await;
        running.call(ANN, "2.99", &path, vnc()).await.refused(503, "Host a does not answer");
        running.force_down("a", false).await;
        running.start_node(&cloud, "a").await;
        running.call(ANN, "2.99", &path, vnc()).await.expect(200);
        cloud.teardown(&running, "asked").await;
    }
}

#[tokio::test]
async fn a_guest_without_a_display_says_so() {
    for (cloud, running) in clouds(ConsoleOptions::default(), &["a"]).await {
        let image = cloud.image_with("blind", &[("hw_video_model", "none")], b"x".to_vec()).await;
        let more = json!({"imageRef": image});
        let id = running.boot_with(&cloud, "one", "plain", more).await;
        running.wait_for_status(&id, "ACTIVE").await;
        let path = format!("POST /servers/{id}/remote-consoles");
        let vnc = running.call(ANN, "2.99", &path, Some(asked("vnc", "novnc"))).await;
        vnc.clone().refused(400, "Unavailable console type novnc.");
        vnc.refused(400, "hw_video_model=none");
        url(&running, &id, "serial", "serial").await;
        cloud.teardown(&running, "no display").await;
    }
}

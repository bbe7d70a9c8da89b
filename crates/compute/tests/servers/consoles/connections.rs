//! Open consoles: their bytes, their number, and the reasons why they end.

use axum::Router;
use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use kilonova_compute_app::consoles::ConsoleOptions;
use serde_json::json;
use tower::ServiceExt;

use super::client::Browser;
use super::{Served, clouds, token, url};
use crate::kit::{Controllers, hosts, wait_until};

#[tokio::test]
async fn a_serial_port_echoes_in_every_encoding() {
    for (cloud, running) in clouds(ConsoleOptions::default(), &["a"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let served = Served::of(&running.compute).await;
        let url = url(&running, &id, "serial", "serial").await;
        let path = format!("/console/serial?token={}", token(&url));
        for (offered, chosen) in [
            (None, None),
            (Some("binary"), Some("binary")),
            (Some("base64, binary"), Some("binary")),
        ] {
            let headers: Vec<_> =
                offered.map(|offered| ("sec-websocket-protocol", offered)).into_iter().collect();
            let mut browser = Browser::connect(served.port, &path, &headers).await;
            assert_eq!(browser.protocol.as_deref(), chosen);
            assert_eq!(browser.read(11).await, b"one login: ");
            browser.send(b"root\r").await;
            assert_eq!(browser.read(5).await, b"root\r");
            browser.send_text("a").await;
            assert_eq!(browser.read(1).await, b"a");
            browser.leave().await;
        }
        let headers = [("sec-websocket-protocol", "base64")];
        let mut browser = Browser::connect(served.port, &path, &headers).await;
        assert_eq!(browser.read(16).await, b"b25lIGxvZ2luOiA=");
        browser.send_text("cm9vdA==").await;
        assert_eq!(browser.read(8).await, b"cm9vdA==");
        browser.leave().await;
        cloud.teardown(&running, "echoed").await;
    }
}

#[tokio::test]
async fn a_console_ends_with_the_guests_run_and_begins_with_it() {
    for (cloud, running) in clouds(ConsoleOptions::default(), &["a"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let served = Served::of(&running.compute).await;
        let url = url(&running, &id, "vnc", "novnc").await;
        let mut browser = served.open(&url).await;
        browser.rfb().await;
        running.act(&id, json!({"os-stop": null})).await;
        assert_eq!(browser.closed().await.0, 1011);
        running.wait_for_status(&id, "SHUTOFF").await;
        let off = served.open(&url).await.closed().await;
        assert_eq!(off, (1011, "The server is shut off.".to_owned()));
        running.act(&id, json!({"os-start": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        let mut browser = served.open(&url).await;
        assert_eq!(browser.rfb().await, "one");
        browser.leave().await;
        wait_until("no console is open", async || running.compute.consoles.count() == 0).await;
        cloud.teardown(&running, "stopped").await;
    }
}

#[tokio::test]
async fn a_hundred_consoles_are_open_at_once_and_no_more_than_allowed() {
    let options = ConsoleOptions { max_consoles_per_user: 100, ..Default::default() };
    for (cloud, running) in clouds(options, &["a"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let served = Served::of(&running.compute).await;
        let url = url(&running, &id, "serial", "serial").await;
        let opened = (0..100).map(|_| served.open(&url));
        let mut browsers = futures_util::future::join_all(opened).await;
        for browser in &mut browsers {
            assert_eq!(browser.read(11).await, b"one login: ");
        }
        assert_eq!(running.compute.consoles.count(), 100);
        let (code, reason) = served.open(&url).await.closed().await;
        assert_eq!((code, reason.contains("Too many")), (1013, true), "{reason}");
        for (number, browser) in browsers.iter_mut().enumerate() {
            browser.send(&[number as u8]).await;
        }
        for (number, browser) in browsers.iter_mut().enumerate() {
            assert_eq!(browser.read(1).await, [number as u8], "each console has its own bytes");
        }
        drop(browsers);
        wait_until("no console is open", async || running.compute.consoles.count() == 0).await;
        cloud.teardown(&running, "a hundred").await;
    }
}

#[tokio::test]
async fn the_end_of_an_agent_or_of_the_controller_is_told() {
    for (cloud, mut running) in clouds(ConsoleOptions::default(), &["a"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let served = Served::of(&running.compute).await;
        let url = url(&running, &id, "vnc", "novnc").await;
        let mut browser = served.open(&url).await;
        browser.rfb().await;
        running.nodes.kill("a").await;
        assert_eq!(browser.closed().await.0, 1011);
        running.start_node(&cloud, "a").await;
        let mut browser = served.open(&url).await;
        browser.rfb().await;
        running.compute.consoles.stop();
        let stopped = browser.closed().await;
        assert_eq!(stopped, (1012, "The controller is stopping. Connect again.".to_owned()));
        cloud.teardown(&running, "ended").await;
    }
}

/// The host polls both controllers in turn, and answers at the browser's controller.
#[tokio::test]
async fn browser_and_host_may_use_different_controllers() {
    let Some(both) = Controllers::with_hosts(hosts(&[("a", &[])])).await else { return };
    let id = both.running.active_server(&both.cloud, "one", "plain").await;
    for (client, compute) in [
        (&*both.running, &both.running.compute),
        (&both.other.client, &both.other.compute),
        (&*both.running, &both.running.compute),
        (&both.other.client, &both.other.compute),
    ] {
        wait_until("the controller knows the server", async || {
            client.get(crate::kit::ANN, "2.90", &format!("/servers/{id}")).await.status == 200
        })
        .await;
        let url = url(client, &id, "vnc", "novnc").await;
        for compute in [compute, &both.other.compute] {
            let served = Served::of(compute).await;
            let mut browser = served.open(&url).await;
            assert_eq!(browser.rfb().await, "one");
            browser.leave().await;
        }
    }
    both.cloud.teardown(&both.running, "two controllers").await;
}

#[tokio::test]
async fn the_page_is_served_with_a_policy_and_other_requests_are_refused() {
    for (_cloud, running) in clouds(ConsoleOptions::default(), &["a"]).await {
        let routes = kilonova_compute::api::consoles::routes(running.compute.clone());
        let router = Router::new().nest("/console", routes);
        let get = async |path: &str| {
            let request = Request::get(path).body(Body::empty()).expect("the request is valid");
            let answer = router.clone().oneshot(request).await.expect("an answer arrives");
            let (parts, body) = answer.into_parts();
            let body = body.collect().await.expect("the body arrives").to_bytes();
            (parts, String::from_utf8_lossy(&body).into_owned())
        };
        for name in ["vnc_auto.html", "vnc_lite.html"] {
            let (parts, page) = get(&format!("/console/novnc/{name}?path=%3Ftoken%3Dx")).await;
            assert_eq!(parts.status, 200);
            assert!(page.contains("page.js"), "{page}");
            let policy = parts.headers["content-security-policy"].to_str().expect("it is text");
            assert!(policy.ends_with("frame-ancestors *"), "{policy}");
            assert_eq!(parts.headers["referrer-policy"], "no-referrer");
        }
        let (parts, code) = get("/console/novnc/core/rfb.js").await;
        assert_eq!(parts.headers["content-type"], "text/javascript; charset=utf-8");
        assert!(code.contains("export default class RFB"));
        for missing in ["/console/novnc/core/none.js", "/console/novnc/..%2fpage.html"] {
            assert_eq!(get(missing).await.0.status, 404, "{missing}");
        }
        assert_eq!(get("/console/websockify?token=x").await.0.status, 400, "not a websocket");
    }
}

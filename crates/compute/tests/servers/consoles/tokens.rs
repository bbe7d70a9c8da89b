//! The tokens and pages that are accepted, and the end of a token.

use jiff::SignedDuration;
use kilonova_compute_app::consoles::ConsoleOptions;
use kilonova_compute_app::reconcile;
use serde_json::json;

use super::client::Browser;
use super::{Served, clouds, token, url};
use crate::kit::ADMIN;

#[tokio::test]
async fn a_token_is_taken_from_the_query_the_path_and_the_cookie() {
    for (cloud, running) in clouds(ConsoleOptions::default(), &["a"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let served = Served::of(&running.compute).await;
        let url = url(&running, &id, "vnc", "novnc").await;
        let token = token(&url);
        let cookie = format!("a=b; token={token}");
        let paths = [
            (format!("/console?token={token}"), None),
            (format!("/console/websockify?path=%3Ftoken%3D{token}"), None),
            (format!("/console/websockify?path=websockify%3Ftoken%3D{token}"), None),
            ("/console/websockify".to_owned(), Some(cookie.as_str())),
        ];
        for (path, cookie) in &paths {
            let cookie = cookie.map(|cookie| ("cookie", cookie));
            let headers: Vec<_> = cookie.into_iter().collect();
            let mut browser = Browser::connect(served.port, path, &headers).await;
            assert_eq!(browser.rfb().await, "one", "a token is valid for several connections");
            browser.leave().await;
        }
        cloud.teardown(&running, "connected").await;
    }
}

#[tokio::test]
async fn a_page_of_another_site_is_refused() {
    for (cloud, running) in clouds(ConsoleOptions::default(), &["a"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let served = Served::of(&running.compute).await;
        let url = url(&running, &id, "vnc", "novnc").await;
        let path = format!("/console/websockify?token={}", token(&url));
        for (origin, reason) in [
            ("http://evil.example", "Origin header does not match this host."),
            ("https://127.0.0.1", "Origin header protocol does not match this host."),
            ("null", "Origin header not valid."),
        ] {
            let browser = Browser::connect(served.port, &path, &[("origin", origin)]).await;
            assert_eq!(browser.closed().await, (1008, reason.to_owned()), "{origin}");
        }
        let mut browser =
            Browser::connect(served.port, &path, &[("origin", "http://127.0.0.1:9")]).await;
        assert_eq!(browser.rfb().await, "one");
        browser.leave().await;
        cloud.teardown(&running, "refused").await;
    }
}

const OVER: &str = "The token is not valid or has expired. Request a new console.";

#[tokio::test]
async fn a_token_ends_with_its_time_and_with_its_server() {
    let options = ConsoleOptions { token_ttl: SignedDuration::ZERO, ..Default::default() };
    for (cloud, running) in clouds(options, &["a"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let served = Served::of(&running.compute).await;
        let expired = url(&running, &id, "vnc", "novnc").await;
        assert_eq!(served.open(&expired).await.closed().await, (1008, OVER.to_owned()));
        let unknown = "token=00000000-0000-4000-8000-000000000000";
        for wrong in [unknown, "token=", "token=x", "token=%00'--"] {
            assert_eq!(served.open(wrong).await.closed().await, (1008, OVER.to_owned()), "{wrong}");
        }
        assert_eq!(cloud.column("SELECT hash FROM console_tokens").await.len(), 1);
        reconcile::consoles::run(running.compute.clone()).await.expect("the sweep runs");
        assert!(cloud.column("SELECT hash FROM console_tokens").await.is_empty());
        cloud.teardown(&running, "expired").await;
    }
    for (cloud, running) in clouds(ConsoleOptions::default(), &["a"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let served = Served::of(&running.compute).await;
        let url = url(&running, &id, "vnc", "novnc").await;
        let mut browser = served.open(&url).await;
        assert_eq!(browser.rfb().await, "one");
        running.delete(&id).await;
        assert_eq!(browser.closed().await.0, 1011);
        running.wait_until_gone(&id).await;
        assert_eq!(served.open(&url).await.closed().await, (1008, OVER.to_owned()));
        cloud.assert_empty(&running, "deleted").await;
    }
}

#[tokio::test]
async fn a_session_may_have_to_end_with_its_token() {
    let options = ConsoleOptions {
        token_ttl: SignedDuration::from_secs(2),
        enforce_session_timeout: true,
        ..Default::default()
    };
    for (cloud, running) in clouds(options, &["a"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let served = Served::of(&running.compute).await;
        let url = url(&running, &id, "vnc", "novnc").await;
        let (code, reason) = served.open(&url).await.closed().await;
        assert_eq!(code, 1008, "{reason}");
        cloud.teardown(&running, "expired").await;
    }
}

#[tokio::test]
async fn a_token_is_valid_on_one_host_only() {
    for (cloud, running) in clouds(ConsoleOptions::default(), &["a", "b"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let on = running.server(&id).await["OS-EXT-SRV-ATTR:host"].clone();
        let other = if on == "a" { "b" } else { "a" };
        let served = Served::of(&running.compute).await;
        let url = url(&running, &id, "vnc", "novnc").await;
        let mut browser = served.open(&url).await;
        browser.rfb().await;
        let live = json!({"os-migrateLive": {"host": other, "block_migration": "auto"}});
        let path = format!("POST /servers/{id}/action");
        running.call(ADMIN, "2.90", &path, Some(live)).await.expect(202);
        let moved = "The server has moved. Request a new console.";
        assert_eq!(browser.closed().await, (1012, moved.to_owned()));
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(served.open(&url).await.closed().await, (1008, OVER.to_owned()));
        assert!(cloud.column("SELECT hash FROM console_tokens").await.is_empty());
        let mut browser = served.open(&super::url(&running, &id, "vnc", "novnc").await).await;
        browser.rfb().await;
        browser.leave().await;
        cloud.teardown(&running, "moved").await;
    }
}

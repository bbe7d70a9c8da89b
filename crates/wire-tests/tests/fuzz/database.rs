//! The answers of each service while PostgreSQL fails: 503 or 507 in the service's dialect, never 500.

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request};
use http_body_util::BodyExt as _;
use kilonova_store::{Error, Store, params};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::fuzz::cloud::{Cloud, clouds};
use crate::fuzz::verdict::is_fault;

/// Service, the path of a list, the path of a creation, its body, and the table that it writes.
fn requests() -> [(&'static str, &'static str, &'static str, Value, &'static str); 6] {
    let role = json!({"role": {"name": "r"}});
    let flavor = json!({"flavor": {"name": "f", "ram": 64, "vcpus": 1, "disk": 1}});
    let profile = json!([{"name": "p", "groups": [{"resources:FPGA": "1"}]}]);
    [
        ("identity", "/v3/roles", "/v3/roles", role, "identity_roles"),
        ("image", "/v2/images", "/v2/images", json!({"name": "i"}), "images"),
        ("network", "/v2.0/networks", "/v2.0/networks", json!({"network": {}}), "networks"),
        (
            "placement",
            "/resource_providers",
            "/resource_providers",
            json!({"name": "p"}),
            "resource_providers",
        ),
        ("accelerator", "/v2/device_profiles", "/v2/device_profiles", profile, "device_profiles"),
        ("compute", "/v2.1/servers", "/v2.1/flavors", flavor, "flavors"),
    ]
}

async fn ask(router: &Router, method: Method, path: &str, body: &Value) -> (u16, HeaderMap, Value) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "cloud:8774")
        .header("x-auth-token", "admin")
        .header("content-type", "application/json")
        .header("accept", "application/json")
        .body(Body::from(if body.is_null() { String::new() } else { body.to_string() }));
    let response = router
        .clone()
        .oneshot(request.expect("the request is valid"))
        .await
        .expect("the router is infallible");
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.expect("the body arrives").to_bytes();
    let body = serde_json::from_slice(&bytes).unwrap_or_default();
    (parts.status.as_u16(), parts.headers, body)
}

async fn run(store: &Store, sql: String) -> Result<(), Error> {
    store.write(move |tx| tx.execute(&sql, params![]).map(|_| ())).await
}

/// The cloud on PostgreSQL, if a server is available.
async fn cloud() -> Option<Cloud> {
    clouds().await.into_iter().find(|cloud| cloud.store == "postgresql")
}

fn check(service: &str, place: &str, answer: &(u16, HeaderMap, Value), status: u16) {
    let (got, headers, body) = answer;
    assert_eq!(*got, status, "{place}: {body}");
    assert!(is_fault(service, status, body), "{place}: {body} is not in the service's dialect");
    let again = headers.get("retry-after").map(axum::http::HeaderValue::as_bytes);
    let expected = (status == 503).then_some(&b"1"[..]);
    assert_eq!(again, expected, "{place}: retry-after");
    let words = if status == 503 { "Try again shortly." } else { "storage is full" };
    assert!(body.to_string().contains(words), "{place}: {body}");
    assert!(
        !body.to_string().contains("by plan"),
        "{place}: the answer contains details for the operator only"
    );
}

#[tokio::test]
async fn errors_of_the_servers_are_told_apart() {
    let Some(cloud) = cloud().await else { return };
    let store = &cloud.compute.store;
    for (code, status) in [
        ("53100", 507),
        ("53200", 503),
        ("53300", 503),
        // A statement or a wait for a lock that took too long.
        ("57014", 503),
        ("55P03", 503),
        ("57P01", 503),
        ("57P02", 503),
        ("57P03", 503),
    ] {
        let function = format!(
            "CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN RAISE EXCEPTION ''by plan'' USING ERRCODE = ''{code}''; END'"
        );
        run(store, function).await.expect("the function is created");
        for (_, _, _, _, table) in requests() {
            let trigger = format!(
                "CREATE TRIGGER fail BEFORE INSERT ON {table}
                 FOR EACH STATEMENT EXECUTE FUNCTION fail()"
            );
            run(store, trigger).await.expect("the trigger is created");
        }
        // Concurrently, because each service repeats its transaction for seconds before it gives up.
        let answers = requests().map(|(service, _, path, body, _)| {
            let router = cloud.routers[service].clone();
            tokio::spawn(async move { (service, ask(&router, Method::POST, path, &body).await) })
        });
        for answer in answers {
            let (service, answer) = answer.await.expect("the service answers");
            check(service, &format!("{service}: {code}"), &answer, status);
        }
        for (_, _, _, _, table) in requests() {
            run(store, format!("DROP TRIGGER fail ON {table}"))
                .await
                .expect("the trigger is dropped");
        }
    }
    for (service, _, path, body, _) in requests() {
        let (status, _, body) = ask(&cloud.routers[service], Method::POST, path, &body).await;
        assert!((200..300).contains(&status), "{service} works again: {status} {body}");
    }
}

#[tokio::test]
async fn an_unavailable_database_is_retried_later() {
    let Some(cloud) = cloud().await else { return };
    let store = &cloud.compute.store;
    for node in &cloud.nodes {
        node.abort();
    }
    let name = store.read(|tx| {
        let row = tx.row("SELECT CAST(current_database() AS TEXT)", params![])?;
        row.ok_or_else(|| Error::Shape("no name".into()))?.string(0)
    });
    let name = name.await.expect("the database has a name");
    // Closed from outside, as an operator would.
    let server = std::env::var("KILONOVA_TEST_POSTGRES").expect("the server has an address");
    let server =
        Store::open(&server.parse().expect("the URL is valid")).await.expect("the server answers");
    let close = format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false");
    run(&server, close).await.expect("the database is closed");
    let end =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = CAST(?1 AS TEXT)";
    let ended = server.read(move |tx| tx.rows(end, params![&name]).map(|_| ()));
    ended.await.expect("its connections are ended");
    for (service, list, path, body, _) in requests() {
        for (method, path, body) in [(Method::GET, list, &Value::Null), (Method::POST, path, &body)]
        {
            let place = format!("{service}: {method} {path}");
            let answer = ask(&cloud.routers[service], method, path, body).await;
            check(service, &place, &answer, 503);
        }
    }
}

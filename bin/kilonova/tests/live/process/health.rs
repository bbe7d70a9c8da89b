//! Health for balancers: the answer of each path, when a controller is not ready, and how it drains.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use kilonova_store::{DatabaseUrl, Store, params};
use rustix::process::Signal;
use serde_json::json;

use crate::kit::client::{connect, raw};
use crate::kit::{Answer, Cloud, Environment, Serve, Session};

/// The time limit for reaching an expected state.
const SOON: Duration = Duration::from_secs(20);

/// Sends a request without a token; the answer is not checked for a message, because oslo's form has none.
fn ask(serve: &Serve, method: &str, path: &str, headers: &str) -> Answer {
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{headers}Connection: close\r\n\r\n");
    Answer::parse(&format!("{method} {path}"), &raw(serve.address, request.as_bytes()))
}

/// Waits until `/readyz` has this status. Returns the answer.
fn until(serve: &Serve, status: u16) -> Answer {
    let begun = Instant::now();
    loop {
        let answer = ask(serve, "GET", "/readyz", "").check();
        if answer.status == status {
            return answer;
        }
        assert!(begun.elapsed() < SOON, "the status is not {status}: {}", answer.text());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn every_path_answers_without_a_token() {
    for cloud in Cloud::all() {
        let serve = &cloud.serve;
        assert_eq!(ask(serve, "GET", "/healthz", "").check().text(), "ok\n");
        let ready = ask(serve, "GET", "/readyz", "").check().ok(200);
        let checks = json!({"drain": "ok", "database": "ok", "schema": "ok", "changes": "ok"});
        assert_eq!(ready, json!({"status": "ready", "checks": checks}));
        for (path, status) in [("/healthz", 200), ("/readyz", 200), ("/healthcheck", 204)] {
            let head = ask(serve, "HEAD", path, "").check();
            assert_eq!((head.status, head.text().as_str()), (status, ""), "{path}");
            assert_eq!(ask(serve, "POST", path, "").check().status, 405, "{path}");
        }
        assert_eq!(ask(serve, "GET", "/healthcheck", "").check().text(), "OK");
        let either = ask(serve, "GET", "/healthcheck", "Accept: */*\r\n");
        assert_eq!(either.check().text(), "OK");
        let list = ask(serve, "GET", "/healthcheck", "Accept: application/json\r\n");
        assert_eq!(list.check().ok(200), json!({"detailed": false, "reasons": ["OK"]}));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_without_its_database_is_alive_and_not_ready() {
    let Ok(server) = std::env::var("KILONOVA_TEST_POSTGRES") else {
        return kilonova_testkit::skip("an unavailable database needs PostgreSQL");
    };
    let places = std::thread::spawn(Environment::all).join().expect("the places are created");
    let place = places.into_iter().find(|place| place.database.is_some());
    let place = place.expect("PostgreSQL is available");
    let database = place.database.clone().expect("the last place is on PostgreSQL");
    let Ok(DatabaseUrl::Postgres(config)) = database.parse() else {
        panic!("{database} is not PostgreSQL")
    };
    let name = config.database().expect("the database has a name").to_owned();
    let server = server.parse().expect("the URL is valid");
    let server = Store::open(&server).await.expect("the server is reachable");
    let serve = place.start();
    until(&serve, 200);
    let close = format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false");
    let end =
        format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
    let cut = move |tx: &mut kilonova_store::Tx<'_>| {
        tx.execute(&close, params![])?;
        tx.rows(&end, params![])
    };
    server.write(cut).await.expect("the database refuses connections");
    let answer = until(&serve, 503);
    // The store retries for some seconds, which is longer than a balancer waits.
    let reason = answer.json()["checks"]["database"].as_str().unwrap_or_default().to_owned();
    assert!(
        ["the database is not available", "the database does not answer in time"]
            .contains(&reason.as_str()),
        "{reason}"
    );
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(ask(&serve, "GET", "/healthz", "").check().status, 200);
    assert_eq!(ask(&serve, "GET", "/healthcheck", "").status, 503);
    let open = format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true");
    let open = server.write(move |tx: &mut kilonova_store::Tx<'_>| tx.execute(&open, params![]));
    open.await.expect("the database accepts connections");
    until(&serve, 200);
}

#[test]
fn a_database_without_this_programs_migrations_is_not_ready() {
    let cloud = Cloud::new(Environment::new());
    until(&cloud.serve, 200);
    let file = cloud.place.state().join("kilonova.db");
    let database = rusqlite::Connection::open(file).expect("the database opens");
    let forget = "DELETE FROM schema_migrations WHERE position = 3";
    assert_eq!(database.execute(forget, []).expect("the statement runs"), 1);
    let answer = until(&cloud.serve, 503);
    assert!(answer.sentence().contains("lacks migrations"), "{}", answer.text());
}

#[test]
fn a_draining_controller_serves_until_the_balancers_know() {
    let place = Environment::configured("[api]\nshutdown_delay = 3\n");
    let mut serve = place.start();
    let mut kept = connect(serve.address);
    let request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    kept.write_all(request).expect("the request is sent");
    let mut received = [0; 1024];
    let length = kept.read(&mut received).expect("the answer arrives");
    let first = Answer::parse("the first", &received[..length]);
    assert_eq!((first.status, first.header("connection")), (200, None));
    serve.signal(Signal::TERM);
    let answer = until(&serve, 503);
    assert_eq!(answer.json()["checks"]["drain"], "the controller stops");
    assert_eq!(ask(&serve, "GET", "/healthz", "").check().status, 200);
    // The open connection is still served, and closed after its answer.
    kept.write_all(request).expect("the request is sent");
    let mut rest = Vec::new();
    kept.read_to_end(&mut rest).expect("the answer arrives and the connection is closed");
    let last = Answer::parse("the last", &rest);
    assert_eq!((last.status, last.header("connection")), (200, Some("close")));
    assert_eq!(serve.wait().code(), Some(0), "{}", serve.log());
}

#[test]
fn waiting_polls_of_hosts_are_answered_when_the_controller_stops() {
    for cloud in Cloud::with_hosts() {
        let (flavor, image) = (cloud.flavor("small"), cloud.image("image"));
        let server = cloud.server(&cloud.admin, "one", &flavor, &image);
        let shown = cloud.admin.get(&format!("/compute/v2.1/servers/{server}")).ok(200);
        let host = shown["server"]["OS-EXT-SRV-ATTR:host"].as_str().expect("it has a host");
        let Cloud { mut serve, place, .. } = cloud;
        let token = std::fs::read_to_string(place.state().join("node.token"));
        let bearer = format!("Bearer {}", token.expect("a token is present"));
        let node = Session::anonymous(serve.address).with("Authorization", &bearer);
        let documents = format!("/node/v1/hosts/{host}/desired?epoch=1");
        let newest = node.get(&format!("{documents}&since=0")).ok(200)["generation"].clone();
        let mut poll = connect(serve.address);
        write!(
            poll,
            "GET {documents}&since={newest} HTTP/1.1\r\nHost: x\r\n\
             Authorization: {bearer}\r\n\r\n"
        )
        .expect("the long poll is sent");
        std::thread::sleep(Duration::from_millis(200));
        serve.signal(Signal::TERM);
        let mut answer = Vec::new();
        poll.read_to_end(&mut answer).expect("the answer arrives");
        let answer = Answer::parse("the poll", &answer).check();
        let batch = answer.ok(200);
        assert_eq!((&batch["generation"], &batch["complete"]), (&newest, &json!(false)));
        assert_eq!(answer.header("connection"), Some("close"));
        assert_eq!(serve.wait().code(), Some(0), "{}", serve.log());
        assert!(!serve.log().contains("aborting"), "{}", serve.log());
    }
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    for second in [Signal::TERM, Signal::INT] {
        let place = Environment::configured("[api]\nshutdown_delay = 60\n");
        let mut serve = place.start();
        serve.signal(Signal::TERM);
        until(&serve, 503);
        serve.signal(second);
        assert_eq!(serve.wait().code(), Some(0), "{}", serve.log());
        assert!(serve.log().contains("a second signal"), "{}", serve.log());
    }
}

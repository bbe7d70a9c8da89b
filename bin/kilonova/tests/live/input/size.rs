//! Bodies that are too large: the server refuses them early and with bounded memory, and a client
//! that is still sending can read the answer.

use std::io::{Read, Write};

use serde_json::json;

use crate::kit::client::connect;
use crate::kit::{Answer, Cloud, Environment};

const HUGE: usize = 100 * 1024 * 1024;

/// Sends all of a huge body before it reads the answer, as simple clients do.
fn flood(cloud: &Cloud, head: &str, chunked: bool) -> Answer {
    let mut stream = connect(cloud.serve.address);
    let length = if chunked {
        "Transfer-Encoding: chunked".to_owned()
    } else {
        format!("Content-Length: {HUGE}")
    };
    let head = format!("{head}\r\nHost: x\r\nConnection: close\r\n{length}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("the head is sent");
    let block = vec![b'a'; 1024 * 1024];
    for _ in 0..HUGE / block.len() {
        if chunked {
            write!(stream, "{:x}\r\n", block.len()).expect("the server reads the chunk's head");
        }
        stream.write_all(&block).expect("the server reads the body to its end");
        if chunked {
            stream.write_all(b"\r\n").expect("the server reads the chunk's end");
        }
    }
    if chunked {
        stream.write_all(b"0\r\n\r\n").expect("the server reads the body's end");
    }
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the answer is readable");
    Answer::parse(head.lines().next().unwrap_or_default(), &answer).check()
}

#[test]
fn a_body_of_100_mb_is_refused_and_the_answer_can_be_read() {
    let cloud = Cloud::new(Environment::new());
    let token = cloud.admin.headers.iter().find(|(name, _)| name == "X-Auth-Token");
    let token = format!("X-Auth-Token: {}", token.expect("a token is present").1);
    let before = cloud.serve.peak_memory();
    for (path, limit) in [
        ("/compute/v2.1/servers", "1048576 bytes"),
        ("/placement/resource_providers", "1048576 bytes"),
        ("/accelerator/v2/device_profiles", "1048576 bytes"),
        ("/image/v2/images", "1048576 bytes"),
        ("/identity/v3/users", "1048576 bytes"),
        // The caller is not authenticated yet.
        ("/identity/v3/auth/tokens", "16384 bytes"),
    ] {
        let kind = "Accept: application/json\r\nContent-Type: application/json";
        let head = format!("POST {path} HTTP/1.1\r\n{kind}\r\n{token}");
        for chunked in [false, true] {
            let answer = flood(&cloud, &head, chunked);
            answer.refused_saying(413, &[limit]);
        }
    }
    let stranger = "POST /compute/v2.1/servers HTTP/1.1\r\nContent-Type: application/json";
    flood(&cloud, stranger, false).refused(401);
    flood(&cloud, "POST /nowhere HTTP/1.1", true).refused(404);
    flood(&cloud, "DELETE /compute/v2.1/servers HTTP/1.1", false).refused(401);
    let grown = cloud.serve.peak_memory() - before;
    assert!(grown < 40 * 1024, "it took {grown} KiB more memory at its peak");
    cloud.admin.get("/compute/v2.1/servers").ok(200);
}

#[test]
fn expect_100_continue_is_answered_before_the_body() {
    let cloud = Cloud::new(Environment::new());
    let mut stream = connect(cloud.serve.address);
    write!(
        stream,
        "POST /compute/v2.1/servers HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\
         Content-Length: {HUGE}\r\n\r\n"
    )
    .expect("the server reads the head");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the answer arrives and the connection closes");
    Answer::parse("Expect", &answer).check().refused(401);
}

#[test]
fn error_messages_shorten_long_values() {
    for cloud in Cloud::all() {
        let long = "x".repeat(900_000);
        let bodies = [
            (
                "/compute/v2.1/flavors",
                json!({"flavor": {"name": long, "ram": 1, "vcpus": 1, "disk": 1}}),
            ),
            ("/compute/v2.1/servers", json!({"server": long})),
            ("/identity/v3/users", json!({"user": {"name": long}})),
            ("/image/v2/images", json!({"name": long})),
            ("/accelerator/v2/device_profiles", json!([{"name": long}])),
            ("/placement/resource_providers", json!({"name": long})),
        ];
        for (path, body) in bodies {
            let answer = cloud.admin.post(path, &body);
            answer.refused(400);
            assert!(answer.body.len() < 8000, "{path}: {} bytes", answer.body.len());
        }
        let log = cloud.serve.log();
        assert!(log.len() < 100_000, "the log has {} bytes", log.len());
    }
}

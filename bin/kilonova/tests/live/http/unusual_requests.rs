//! Methods, paths, queries and headers that no ordinary client sends.

use std::io::{Read, Write};

use crate::kit::client::{connect, raw};
use crate::kit::{Answer, Cloud, Environment};

#[test]
fn unsupported_methods_are_405_with_the_allowed_ones() {
    let cloud = Cloud::new(Environment::new());
    for path in [
        "/compute/v2.1/servers",
        "/compute/v2.1/flavors",
        "/placement/resource_providers",
        "/accelerator/v2/devices",
        "/identity/v3/users",
    ] {
        for method in ["PATCH", "TRACE", "FROB", "OPTIONS"] {
            let answer = cloud.admin.send(method, path, "", b"");
            assert_eq!(answer.status, 405, "{method} {path}: {}", answer.text());
            let allow = answer.header("allow").unwrap_or_default();
            assert!(allow.contains("GET"), "{method} {path}: allow {allow:?}");
        }
    }
}

#[test]
fn head_has_the_status_of_get_and_no_body() {
    let cloud = Cloud::new(Environment::new());
    for path in ["/", "/compute/v2.1/servers", "/image/v2/images", "/identity/v3/users", "/nowhere"]
    {
        let get = cloud.admin.get(path);
        let head = cloud.admin.send("HEAD", path, "", b"");
        assert_eq!(head.status, get.status, "{path}");
        assert!(head.body.is_empty(), "{path}");
    }
    let head = cloud.admin.send("HEAD", "/placement/resource_providers", "", b"");
    assert_eq!(head.status, 405, "Placement does not route it");
}

#[test]
fn paths_that_mean_nothing_are_404_or_400() {
    let cloud = Cloud::new(Environment::new());
    for path in [
        "/nowhere",
        "/compute/v2.1/nowhere",
        "/compute/v3/servers",
        "/compute/v2.1/servers/../../../etc/passwd",
        "/compute/v2.1/servers/..%2f..%2fetc%2fpasswd",
        "/image/v2/images/..%2f..%2fkeys%2f0/file",
        "/COMPUTE/v2.1/servers",
        "/compute/v2.1/servers/%",
        "/compute/v2.1/servers/%zz",
        "/compute/v2.1/servers/%e2%80%ae",
        "/compute/v2.1/servers/%0d%0aX-Evil:%201",
        "/placement/traits/%f0%9f%90%bb",
        "/identity/v3/users/%2e%2e",
    ] {
        let answer = cloud.admin.get(path);
        assert!(matches!(answer.status, 400 | 404), "{path}: {}", answer.status);
        assert!(answer.header("x-evil").is_none());
    }
    for path in ["/compute/v2.1/servers/%ff", "/placement/traits/%c3%28", "/%ff", "/image/%80"] {
        cloud.admin.get(path).refused_saying(400, &["UTF-8"]);
    }
    let long = format!("/compute/v2.1/servers/{}", "x".repeat(50_000));
    cloud.admin.get(&long).refused(404);
}

/// The image service differs, as Glance does: see `input::images`.
#[test]
fn a_slash_at_the_end_is_no_other_path() {
    let cloud = Cloud::new(Environment::new());
    for path in [
        "/compute/v2.1/servers",
        "/placement/resource_providers",
        "/accelerator/v2/devices",
        "/identity/v3/users",
        "/network/v2.0/networks",
    ] {
        let (plain, slash) = (cloud.admin.get(path), cloud.admin.get(&format!("{path}/")));
        assert_eq!(slash.status, 200, "{path}/");
        assert_eq!(plain.status, 200, "{path}");
    }
    // Glance has no image without an id.
    assert_eq!(cloud.admin.get("/image/v2/images/").status, 404);
}

#[test]
fn queries_of_any_kind_are_answered() {
    for cloud in Cloud::all() {
        let many: String = (0..8000).map(|at| format!("k{at}=v&")).collect();
        for path in ["/compute/v2.1/servers", "/compute/v2.1/flavors", "/image/v2/images"] {
            for query in
                ["name=%ff%fe", "name=%e2%80%ae", "name=(((((", "name=%5B", "&&&=&=", &many]
            {
                let answer = cloud.admin.get(&format!("{path}?{query}"));
                assert!(
                    matches!(answer.status, 200 | 400),
                    "{path}?{query:.20}: {}",
                    answer.status
                );
            }
        }
        let refused = cloud.admin.get(&format!("/placement/resource_providers?{many}"));
        refused.refused(400);
        let twice =
            cloud.admin.get("/placement/allocation_candidates?resources=VCPU:1&resources=VCPU:2");
        assert!(matches!(twice.status, 200 | 400), "{}", twice.status);
        let nested = format!("/compute/v2.1/servers?name={}", "(".repeat(5000));
        let answer = cloud.admin.get(&nested);
        assert!(matches!(answer.status, 200 | 400), "{}", answer.status);
        let slow = format!("/compute/v2.1/servers?name={}", "(a*)*".repeat(200));
        let answer = cloud.admin.get(&slow);
        assert!(matches!(answer.status, 200 | 400), "{}", answer.status);
    }
}

/// The status of the answer to these bytes, or none if the server just closed the connection.
fn status(cloud: &Cloud, bytes: &[u8]) -> Option<u16> {
    let answer = raw(cloud.serve.address, bytes);
    (!answer.is_empty()).then(|| Answer::parse("raw", &answer).status)
}

#[test]
fn invalid_http_closes_only_its_connection() {
    let cloud = Cloud::new(Environment::new());
    let line = "POST /identity/v3/auth/tokens HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
    let huge = format!("GET / HTTP/1.1\r\nHost: x\r\nX-Big: {}\r\n\r\n", "x".repeat(300_000));
    let many: String = (0..500).map(|at| format!("X-{at}: 1\r\n")).collect();
    let many = format!("GET / HTTP/1.1\r\nHost: x\r\n{many}\r\n");
    let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "x".repeat(90_000));
    let cases: [(&str, String, &[u16]); 12] = [
        ("garbage", "\u{1}\u{2}\u{3}\r\n\r\n".into(), &[400]),
        ("TLS", "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\r\n\r\n".into(), &[400]),
        ("no version", "GET /\r\n\r\n".into(), &[400]),
        ("HTTP/3", "GET / HTTP/3.0\r\n\r\n".into(), &[400]),
        ("a header without colon", "GET / HTTP/1.1\r\nHost x\r\n\r\n".into(), &[400]),
        ("a huge header", huge, &[431]),
        ("many headers", many, &[431]),
        ("a long path", long, &[414, 431]),
        ("a length that is not a number", format!("{line}Content-Length: ten\r\n\r\n"), &[400]),
        ("a negative length", format!("{line}Content-Length: -1\r\n\r\n"), &[400]),
        ("two lengths", format!("{line}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"), &[400]),
        (
            "an invalid chunk size",
            format!("{line}Transfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n"),
            &[400],
        ),
    ];
    for (what, bytes, expected) in cases {
        let status = status(&cloud, bytes.as_bytes());
        assert!(status.is_none_or(|status| expected.contains(&status)), "{what}: {status:?}");
        cloud.anonymous().get("/").ok(200);
    }
}

#[test]
fn an_aborted_upload_leaves_nothing() {
    for cloud in Cloud::all() {
        let token = cloud.admin.headers.iter().find(|(name, _)| name == "X-Auth-Token");
        let token = &token.expect("a token is present").1;
        for length in ["Content-Length: 500", "Transfer-Encoding: chunked"] {
            let mut stream = connect(cloud.serve.address);
            write!(
                stream,
                "POST /compute/v2.1/flavors HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {token}\r\n\
                 Content-Type: application/json\r\n{length}\r\n\r\n"
            )
            .expect("the head is sent");
            stream.write_all(b"{\"flavor\"").expect("the first part is sent");
            stream.shutdown(std::net::Shutdown::Write).expect("the connection shuts down");
            let mut answer = Vec::new();
            drop(stream.read_to_end(&mut answer));
            if !answer.is_empty() {
                Answer::parse("broken off", &answer).check().refused(400);
            }
        }
        let flavors = cloud.admin.get("/compute/v2.1/flavors").ok(200);
        assert_eq!(flavors["flavors"].as_array().map(Vec::len), Some(0));
        cloud.anonymous().get("/").ok(200);
    }
}

#[test]
fn one_connection_serves_valid_and_invalid_requests() {
    let cloud = Cloud::new(Environment::new());
    let mut stream = connect(cloud.serve.address);
    let mut pipelined = String::new();
    for path in ["/", "/nowhere", "/compute/v2.1/servers", "/placement", "/identity/v3"] {
        pipelined.push_str(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
    }
    let refused = "POST /compute/v2.1/servers HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}";
    pipelined.push_str(refused);
    pipelined.push_str("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(pipelined.as_bytes()).expect("the requests are sent");
    let mut answers = String::new();
    stream.read_to_string(&mut answers).expect("the answers arrive");
    let statuses: Vec<&str> =
        answers.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(statuses, ["200", "404", "401", "200", "200", "401", "200"]);
}

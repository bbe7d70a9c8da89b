//! The metadata service on its own listener: the options that open it, and the raw answers of its clients.

use std::net::{SocketAddr, TcpListener};

use crate::kit::Environment;
use crate::kit::client::raw;
use crate::kit::environment::stderr;

const ON: &str = "[neutron]\nservice_metadata_proxy = true\n";

/// The status line and the body of an answer, without a header that Neutron's proxies would drop.
fn ask(address: SocketAddr, head: &str) -> (String, String) {
    let request = format!("GET {head}Host: 169.254.169.254\r\nConnection: close\r\n\r\n");
    let answer = String::from_utf8(raw(address, request.as_bytes())).expect("the answer is text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("the answer has a head");
    assert!(head.to_lowercase().contains("content-type: text/plain"), "{head}");
    (head.lines().next().unwrap_or_default().to_owned(), body.to_owned())
}

#[test]
fn an_empty_secret_refuses_to_start() {
    let place = Environment::configured(ON);
    let output = place.run("serve", &[]);
    let text = stderr(&output);
    assert!(!output.status.success() && text.contains("metadata_proxy_shared_secret"), "{text}");
    assert!(text.contains("it is empty"), "{text}");
}

#[test]
fn proxies_reach_it_on_its_own_port_only() {
    let other = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let taken = other.local_addr().expect("the socket has an address");
    let text = |port: u16| {
        format!(
            "{ON}metadata_proxy_shared_secret = s\n[DEFAULT]\nmetadata_listen = 127.0.0.1\n\
             metadata_listen_port = {port}\n"
        )
    };
    let place = Environment::configured(&text(taken.port()));
    let output = place.run("serve", &["--listen", "127.0.0.1:0"]);
    assert!(stderr(&output).contains("for the metadata service"), "the port is taken");
    let place = place.reconfigured(&text(0));
    let mut serve = place.start();
    let said = serve
        .output
        .lines()
        .find_map(|line| line.split_once("metadata service for Neutron's proxies listens on "));
    let address: SocketAddr =
        said.and_then(|(_, address)| address.parse().ok()).expect("it is told");
    let (status, versions) = ask(address, "/ HTTP/1.1\r\n");
    assert_eq!((&*status, versions.lines().last()), ("HTTP/1.1 200 OK", Some("latest")));
    let (status, why) = ask(address, "/latest/user-data HTTP/1.1\r\n");
    assert_eq!(status, "HTTP/1.1 400 Bad Request");
    assert_eq!(why, "X-Instance-ID header is missing from request.");
    let forged = "/latest/user-data HTTP/1.1\r\nX-Instance-ID: a\r\nX-Tenant-ID: b\r\n\
                  X-Instance-ID-Signature: c\r\n";
    assert_eq!(ask(address, forged).0, "HTTP/1.1 403 Forbidden");
    let users = raw(
        serve.address,
        b"GET /latest/meta-data/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    );
    assert!(users.starts_with(b"HTTP/1.1 404"), "users cannot reach the metadata service");
    serve.terminate();
}

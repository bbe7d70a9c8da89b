//! Clients that send little or nothing, and many of them at once.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::kit::client::connect;
use crate::kit::{Cloud, Environment};

#[test]
fn silent_clients_block_nobody() {
    let cloud = Cloud::new(Environment::new());
    let mut silent: Vec<TcpStream> = Vec::new();
    for at in 0..300 {
        let mut stream = connect(cloud.serve.address);
        match at % 3 {
            0 => {}
            1 => write!(stream, "GET / HTTP/1.1\r\nHost")
                .expect("the first part of the head is sent"),
            _ => write!(
                stream,
                "POST /identity/v3/auth/tokens HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{"
            )
            .expect("the first part of the body is sent"),
        }
        silent.push(stream);
    }
    let begun = Instant::now();
    for _ in 0..20 {
        cloud.admin.get("/compute/v2.1/servers").ok(200);
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn a_connection_over_the_limit_gets_503() {
    // The shell's limit on open files simulates a small system: half of that limit is for connections.
    let place = Environment::new();
    let mut command = std::process::Command::new("bash");
    let serve = place.command("serve");
    command.args(["-c", "ulimit -n 120; exec \"$0\" \"$@\""]).arg(serve.get_program());
    command.args(serve.get_args()).args(["--listen", "127.0.0.1:0"]).env_remove("RUST_LOG");
    let serve = crate::kit::Serve::start(command, place.file("log"));
    let nobody = crate::kit::Session::anonymous(serve.address);
    let idle: Vec<TcpStream> = (0..60).map(|_| connect(serve.address)).collect();
    // The kernel accepts the connection before the server does.
    std::thread::sleep(Duration::from_millis(200));
    let mut refused = connect(serve.address);
    let mut answer = String::new();
    refused.read_to_string(&mut answer).expect("the answer arrives without a request");
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: 5"), "{answer}");
    drop(idle);
    std::thread::sleep(Duration::from_millis(200));
    nobody.get("/").ok(200);
    assert!(serve.log().contains("all connections are in use"), "{}", serve.log());
}

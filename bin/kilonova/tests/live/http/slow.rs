//! Clients that say little or nothing, and many of them at once.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::kit::client::connect;
use crate::kit::{Cloud, Place};

#[test]
fn clients_that_say_nothing_keep_nobody_waiting() {
    let cloud = Cloud::new(Place::new());
    let mut silent: Vec<TcpStream> = Vec::new();
    for at in 0..300 {
        let mut stream = connect(cloud.serve.address);
        match at % 3 {
            0 => {}
            1 => write!(stream, "GET / HTTP/1.1\r\nHost").expect("a part of a head"),
            _ => write!(
                stream,
                "POST /identity/v3/auth/tokens HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{"
            )
            .expect("a part of a body"),
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
fn more_connections_than_there_are_slots_wait_for_one() {
    // The shell's limit on open files stands for a small system: half of them are connections.
    let place = Place::new();
    let mut command = std::process::Command::new("bash");
    let serve = place.command("serve");
    command.args(["-c", "ulimit -n 120; exec \"$0\" \"$@\""]).arg(serve.get_program());
    command.args(serve.get_args()).args(["--listen", "127.0.0.1:0"]).env_remove("RUST_LOG");
    let serve = crate::kit::Serve::start(command, place.file("log"));
    let nobody = crate::kit::Session::nobody(serve.address);
    let mut idle: Vec<TcpStream> = (0..90).map(|_| connect(serve.address)).collect();
    let mut waiting = connect(serve.address);
    write!(waiting, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("a request");
    waiting.set_read_timeout(Some(Duration::from_millis(500))).expect("a time-out");
    let mut answer = [0; 12];
    assert!(waiting.read_exact(&mut answer).is_err(), "all slots are taken");
    idle.clear();
    waiting.set_read_timeout(Some(Duration::from_secs(10))).expect("a time-out");
    waiting.read_exact(&mut answer).expect("a slot, when one is free");
    assert_eq!(&answer, b"HTTP/1.1 200");
    nobody.get("/").ok(200);
    assert!(serve.log().contains("all connections are in use"), "{}", serve.log());
}

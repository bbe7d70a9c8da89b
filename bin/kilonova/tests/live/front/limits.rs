//! Limits on the number of connections and on slow clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::kit::client::{Answer, connect};
use crate::kit::{Cloud, Environment, Session};

/// Reads until the connection closes. Returns how long that took and what was received.
fn until_closed(mut stream: TcpStream) -> (Duration, Vec<u8>) {
    let begun = Instant::now();
    let mut received = Vec::new();
    // A reset closes the connection too.
    drop(stream.read_to_end(&mut received));
    (begun.elapsed(), received)
}

#[test]
fn a_slow_head_and_a_slow_login_are_broken_off() {
    let cloud = Cloud::new(Environment::new());
    let mut head = connect(cloud.serve.address);
    write!(head, "GET / HTTP/1.1\r\n").expect("the first part of the head is sent");
    let mut trickle = head.try_clone().expect("the connection is cloned");
    let mut body = connect(cloud.serve.address);
    write!(
        body,
        "POST /identity/v3/auth/tokens HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\n{{"
    )
    .expect("the first part of the body is sent");
    let idle = connect(cloud.serve.address);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // An occasional byte does not extend the deadline.
            while trickle.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        let slow = scope.spawn(move || until_closed(body));
        let (took, _) = until_closed(head);
        assert!((8..14).contains(&took.as_secs()), "the head: {took:?}");
        let (took, received) = slow.join().expect("the thread ends");
        assert!((8..20).contains(&took.as_secs()), "the body: {took:?}");
        Answer::parse("a slow login", &received).refused_saying(408, &["within 10 s"]);
    });
    let mut idle = idle;
    write!(idle, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .expect("the request is sent");
    let (_, received) = until_closed(idle);
    assert_eq!(
        Answer::parse("after a pause", &received).status,
        200,
        "an idle connection stays open"
    );
}

#[test]
fn one_address_has_only_so_many_connections() {
    let place = Environment::configured("[api]\nmax_connections_per_address = 5\n");
    let serve = place.start();
    let idle: Vec<TcpStream> = (0..5).map(|_| connect(serve.address)).collect();
    // The kernel accepts the connection before the server does.
    std::thread::sleep(Duration::from_millis(200));
    let (_, received) = until_closed(connect(serve.address));
    let answer = Answer::parse("one too many", &received);
    answer.refused_saying(503, &["connection limit"]);
    assert_eq!(answer.header("retry-after"), Some("5"));
    drop(idle);
    std::thread::sleep(Duration::from_millis(200));
    Session::anonymous(serve.address).get("/").ok(200);
    assert!(serve.log().contains("an address has reached its connection limit"), "{}", serve.log());
}

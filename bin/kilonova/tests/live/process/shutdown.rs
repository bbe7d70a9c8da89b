//! Shutdown: after SIGTERM, open requests finish, but no client can keep the process from ending.

use std::io::{Read, Write};
use std::time::Duration;

use crate::kit::client::connect;
use crate::kit::{Answer, Cloud, Environment, Session};

/// The limit of five seconds, with a margin for a busy machine.
const FIVE_SECONDS: Duration = Duration::from_millis(5500);

#[test]
fn with_nothing_to_finish_it_ends_at_once() {
    for mut cloud in Cloud::with_hosts() {
        let mut idle = connect(cloud.serve.address);
        write!(idle, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("the request is sent");
        let mut some = [0; 100];
        idle.read_exact(&mut some).expect("the answer arrives and the connection stays open");
        let (status, took) = cloud.serve.terminate();
        assert_eq!(status.code(), Some(0), "{}", cloud.serve.log());
        assert!(took < Duration::from_secs(2), "it took {took:?} with an idle client");
    }
}

#[test]
fn a_request_that_is_under_way_is_finished() {
    let cloud = Cloud::new(Environment::new());
    let Cloud { mut serve, admin, .. } = cloud;
    let body = r#"{"flavor": {"name": "late", "ram": 1, "vcpus": 1, "disk": 1}}"#;
    let token =
        admin.headers.iter().find(|(name, _)| name == "X-Auth-Token").expect("a token is present");
    let mut late = connect(serve.address);
    let (first, rest) = body.split_at(20);
    write!(
        late,
        "POST /compute/v2.1/flavors HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{first}",
        token.1,
        body.len()
    )
    .expect("the first part is sent");
    std::thread::sleep(Duration::from_millis(200));
    let rest = rest.to_owned();
    let finish = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(700));
        late.write_all(rest.as_bytes()).expect("the rest is sent");
        let mut answer = Vec::new();
        late.read_to_end(&mut answer).expect("the answer arrives");
        answer
    });
    let (status, took) = serve.terminate();
    assert_eq!(status.code(), Some(0));
    assert!(took < FIVE_SECONDS, "{took:?}");
    let answer = finish.join().expect("the client thread ends");
    Answer::parse("the late one", &answer).check().ok(200);
}

#[test]
fn unfinished_requests_are_aborted_after_five_seconds() {
    let cloud = Cloud::new(Environment::new().with_hosts());
    let Cloud { mut serve, place, .. } = cloud;
    let token =
        std::fs::read_to_string(place.state().join("node.token")).expect("a token is present");
    let node = Session::anonymous(serve.address).with("Authorization", &format!("Bearer {token}"));
    let mut poll = connect(serve.address);
    let bearer = &node.headers.last().expect("the client has a header").1;
    write!(
        poll,
        "GET /node/v1/hosts/fpga1/desired?epoch=1&since=999 HTTP/1.1\r\nHost: x\r\n\
         Authorization: {bearer}\r\n\r\n"
    )
    .expect("the long poll is sent");
    let mut half = connect(serve.address);
    write!(
        half,
        "POST /identity/v3/auth/tokens HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{{"
    )
    .expect("half a request is sent");
    let mut head = connect(serve.address);
    write!(head, "GET / HT").expect("half a head is sent");
    std::thread::sleep(Duration::from_millis(200));
    let (status, took) = serve.terminate();
    assert_eq!(status.code(), Some(0), "{}", serve.log());
    assert!(took < FIVE_SECONDS, "it took {took:?}");
    assert!(took > Duration::from_secs(3), "they were given time: {took:?}");
    place.start();
}

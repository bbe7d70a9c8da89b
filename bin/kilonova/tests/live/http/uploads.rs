//! Slow uploads and downloads of image data: they block no other client, their number is limited,
//! and they end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::kit::client::connect;
use crate::kit::cloud::{id, login};
use crate::kit::{Answer, Cloud, Environment, Session};

const ROOM: &str = "[image]\nmax_concurrent_uploads_per_project = 64\n";
const STRICT: &str = "[image]\nmax_concurrent_uploads_per_project = 2\nmin_transfer_rate = 1000\n\
                      transfer_rate_window = 2\n";

fn clouds(config: &str) -> Vec<Cloud> {
    let configured = |mut place: Environment| {
        place.config = Some(config.to_owned());
        Cloud::new(place)
    };
    Environment::all().into_iter().map(configured).collect()
}

fn queued(who: &Session) -> String {
    let image = json!({"name": "slow", "disk_format": "raw", "container_format": "bare"});
    id(&who.post("/image/v2/images", &image).ok(201))
}

/// An upload that has sent the first byte of its data.
fn begin(who: &Session, image: &str) -> TcpStream {
    let mut stream = connect(who.address);
    let mut head = format!("PUT /image/v2/images/{image}/file HTTP/1.1\r\nHost: x\r\n");
    for (name, value) in &who.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("Content-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
    write!(stream, "{head}1\r\nx\r\n").expect("the head and a byte are sent");
    stream
}

fn until(who: &Session, image: &str, status: &str) {
    let begun = Instant::now();
    loop {
        let is = who.get(&format!("/image/v2/images/{image}")).ok(200)["status"].clone();
        if is == status {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{image} is {is} and not {status}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn forty_slow_uploads_block_nobody() {
    for cloud in clouds(ROOM) {
        let (eve, ..) = cloud.user("eve", "member");
        let (ann, _, project) = cloud.user("ann", "member");
        let images: Vec<String> = (0..40).map(|_| queued(&eve)).collect();
        let mut slow: Vec<TcpStream> = images.iter().map(|image| begin(&eve, image)).collect();
        for image in &images {
            until(&eve, image, "saving");
        }
        let begun = Instant::now();
        ann.get("/compute/v2.1/servers").ok(200);
        ann.get("/image/v2/images").ok(200);
        ann.get("/network/v2.0/networks").ok(200);
        cloud.admin.get("/placement/resource_providers").ok(200);
        cloud.admin.get("/placement/allocation_candidates?resources=VCPU:1").ok(200);
        login(&cloud.anonymous(), "ann", "ann-word", Some(&project));
        ann.send(
            "PUT",
            &format!("/image/v2/images/{}/file", queued(&ann)),
            "application/octet-stream",
            &[7; 100_000],
        )
        .ok(204);
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        for stream in &mut slow {
            stream.write_all(b"2\r\nyz\r\n0\r\n\r\n").expect("the rest is sent");
        }
        for image in &images {
            until(&eve, image, "active");
        }
    }
}

#[test]
fn uploads_beyond_the_limit_are_refused_and_those_that_trickle_are_ended() {
    for cloud in clouds(STRICT) {
        let (eve, ..) = cloud.user("eve", "member");
        let images: Vec<String> = (0..3).map(|_| queued(&eve)).collect();
        let mut slow: Vec<TcpStream> = images[..2].iter().map(|i| begin(&eve, i)).collect();
        for image in &images[..2] {
            until(&eve, image, "saving");
        }
        let path = format!("/image/v2/images/{}/file", images[2]);
        let refused = eve.send("PUT", &path, "application/octet-stream", b"data");
        assert_eq!(refused.header("retry-after"), Some("10"));
        refused.refused_saying(503, &["2 uploads"]);
        for (stream, image) in slow.iter_mut().zip(&images) {
            let mut answer = Vec::new();
            let begun = Instant::now();
            while answer.len() < 12 && begun.elapsed() < Duration::from_secs(20) {
                drop(stream.write_all(b"1\r\ny\r\n"));
                stream
                    .set_read_timeout(Some(Duration::from_millis(100)))
                    .expect("the timeout is set");
                let mut piece = [0; 4096];
                let read = stream.read(&mut piece).unwrap_or_default();
                answer.extend_from_slice(&piece[..read]);
            }
            let answer = String::from_utf8_lossy(&answer).into_owned();
            assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
            until(&eve, image, "queued");
        }
        let _: Answer = eve.send("PUT", &path, "application/octet-stream", b"data");
        until(&eve, &images[2], "active");
    }
}

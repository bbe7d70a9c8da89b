//! The caller, the version, and the content type of a request.

use crate::fuzz::compose::Sent;
use crate::fuzz::random::Rng;
use crate::fuzz::values;

pub fn headers(rng: &mut Rng, sent: &mut Sent, version: String) {
    let mut put = |name: &str, value: &[u8]| sent.headers.push((name.into(), value.to_vec()));
    put("host", b"cloud:1234");
    match if rng.calm { 20 } else { rng.below(20) } {
        0 => put("x-auth-token", b"ann:red"),
        // A token names its project here, and the document restricts the names of projects.
        1 => put("x-auth-token", rng.word(&["", "ann:", "ann:red-"]).as_bytes()),
        4 => put("x-auth-token", b"\xff\xfe"),
        2 => {
            put("x-auth-token", b"bob:blue");
            put("x-roles", rng.word(&["reader", "admin", "member,reader", "", ","]).as_bytes());
        }
        3 => {
            put("x-auth-token", b"admin");
            put("openstack-system-scope", b"all");
        }
        5 if rng.one_in(4) => {}
        _ => put("x-auth-token", b"admin"),
    }
    if rng.odd(16) {
        sent.minor = None;
        let odd = [
            "compute",
            "compute latest",
            "compute 2",
            "compute 2.",
            "compute 2.105",
            "compute 2.-1",
            "compute 3.1",
            "placement latest",
            "placement 1.99",
            "accelerator 9.9",
            ",",
            "compute 2.1, placement 1.1",
            "compute 99999999999999999999.1",
            "compute 2.0000000001",
            "compute  2.1",
            "2.1",
        ];
        match rng.below(4) {
            0 => put("openstack-api-version", values::text(rng).as_bytes()),
            1 => put("x-openstack-nova-api-version", rng.word(&odd).as_bytes()),
            2 => put("openstack-api-version", rng.word(&odd).as_bytes()),
            _ => {}
        }
    } else {
        put("openstack-api-version", version.as_bytes());
    }
    match if rng.calm { 30 } else { rng.below(30) } {
        0 => {}
        1 => put("content-type", values::text(rng).as_bytes()),
        2 => put(
            "content-type",
            rng.word(&[
                "text/plain",
                "application/xml",
                "application/json; charset=utf-16",
                "multipart/form-data",
                "application/x-www-form-urlencoded",
                "application/octet-stream",
                "json",
            ])
            .as_bytes(),
        ),
        _ if sent.uri.ends_with("/file") => put("content-type", b"application/octet-stream"),
        _ if sent.service == "image" && sent.method == "PATCH" => {
            put("content-type", b"application/openstack-images-v2.1-json-patch");
        }
        _ => put("content-type", b"application/json"),
    }
    if rng.odd(30) {
        put(
            "accept",
            rng.word(&["text/html", "*/*", "application/xml", "text/plain;q=0.1", "", ";;"])
                .as_bytes(),
        );
    } else if sent.service == "image" {
        put("accept", b"application/json");
    }
    if rng.odd(60) {
        let names = [
            "content-length",
            "range",
            "expect",
            "x-forwarded-proto",
            "x-forwarded-host",
            "x-subject-token",
            "x-openstack-request-id",
            "if-match",
            "transfer-encoding",
            "content-encoding",
        ];
        put(rng.word(&names), values::text(rng).as_bytes());
    }
}

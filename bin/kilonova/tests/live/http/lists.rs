//! Many clients list the largest images that the limits allow.

use serde_json::{Value, json};

use crate::kit::cloud::id;
use crate::kit::{Cloud, Session};

/// Images of one project, each with nearly the maximum of metadata.
const IMAGES: usize = 100;
/// Concurrent lists.
const LISTS: usize = 20;
/// The maximum memory that all concurrent lists together may use, in KiB.
const MOST: u64 = 128 * 1024;

/// Two properties near the limits of a value (65,535 bytes) and of an image (128 KiB).
fn largest() -> Value {
    json!({"name": "large", "p0": "v".repeat(65_000), "p1": "v".repeat(64_000)})
}

/// Follows a list to its end. Returns the number of images.
fn walk(who: &Session, query: &str) -> usize {
    let (mut path, mut seen) = (format!("/v2/images?{query}"), 0);
    loop {
        let page = who.get(&format!("/image{path}")).ok(200);
        seen += page["images"].as_array().expect("the page has images").len();
        match page["next"].as_str() {
            Some(next) => path = next.to_owned(),
            None => return seen,
        }
    }
}

/// Requests the first page of a list [`LISTS`] times concurrently. Returns the largest answer in bytes.
fn at_once(who: &Session, query: &str) -> usize {
    let path = format!("/image/v2/images?{query}");
    std::thread::scope(|scope| {
        let lists: Vec<_> = (0..LISTS).map(|_| scope.spawn(|| who.get(&path))).collect();
        let answers = lists.into_iter().map(|list| {
            let answer = list.join().expect("the client does not panic");
            answer.ok(200);
            answer.body.len()
        });
        answers.max().expect("there are lists")
    })
}

#[test]
fn concurrent_lists_of_the_largest_images_take_bounded_memory() {
    for cloud in Cloud::all() {
        let (eve, ..) = cloud.user("eve", "member");
        let images: Vec<String> =
            (0..IMAGES).map(|_| id(&eve.post("/image/v2/images", &largest()).ok(201))).collect();
        let database = if cloud.place.database.is_some() { "PostgreSQL" } else { "SQLite" };
        cloud.serve.reset_peak_memory();
        let before = cloud.serve.peak_memory();
        for (what, query) in [
            ("limit", "limit=1000".to_owned()),
            ("sort", "limit=1000&sort=name:asc".to_owned()),
            ("ids", format!("limit=1000&id=in:{}", images.join(","))),
        ] {
            let largest = at_once(&eve, &query);
            let peak = cloud.serve.peak_memory();
            let took = peak.saturating_sub(before);
            println!(
                "{database}: {LISTS} lists by {what}: {largest} bytes each at most; peak so far \
                 {peak} KiB, {before} KiB before"
            );
            assert!(largest < 1_200_000, "{what}: {largest} bytes in one answer");
            assert!(took < MOST, "{database}, {what}: {took} KiB");
        }
        assert_eq!(walk(&eve, "limit=1000"), IMAGES);
    }
}

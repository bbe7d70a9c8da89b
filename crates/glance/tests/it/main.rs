//! The client against a strict fake: its requests, its reading of answers, and its handling of failures.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use kilonova_glance::{Error, Glance, GlanceOptions};
use kilonova_ids::ImageId;
use kilonova_keystone::{Caller, Endpoint, Http, Login, Retries, Service, Session};
use kilonova_testkit::glance::{Failure, FakeGlance};
use serde_json::{Value, json};

const RED: HeaderValue = HeaderValue::from_static("ann:red");
const EXPIRED: HeaderValue = HeaderValue::from_static("eve:red");
const BLUE: HeaderValue = HeaderValue::from_static("bob:blue");
const ID: Option<&str> = Some("req-5e3b1d0c-8a55-4f0e-9d6b-1b1cf7a7f4d1");

fn session(url: &str) -> Arc<Session> {
    let http = Http::plain(Duration::from_secs(20), 1 << 20).expect("the client is created");
    let login = Login {
        auth_url: url.to_owned(),
        username: "kilonova".into(),
        password: "secret".into(),
        user_domain_name: "Default".into(),
        project_name: "service".into(),
        project_domain_name: "Default".into(),
    };
    Arc::new(Session::new(http, login))
}

fn options() -> GlanceOptions {
    GlanceOptions { pause: Duration::from_millis(1), ..GlanceOptions::default() }
}

fn glance_with(fake: &FakeGlance, options: GlanceOptions) -> Glance {
    let endpoint = Endpoint {
        service_types: vec!["image".into()],
        interfaces: vec!["public".into()],
        ..Endpoint::default()
    };
    Glance::new(vec![Service::new(session(fake.url()), endpoint, Retries::default())], options)
}

async fn start() -> (FakeGlance, Glance) {
    let fake = FakeGlance::start().await;
    let glance = glance_with(&fake, options());
    (fake, glance)
}

fn body(id: ImageId) -> Value {
    json!({"id": id, "name": "snapshot", "disk_format": "raw", "container_format": "bare"})
}

async fn all(glance: &Glance, caller: Caller<'_>, id: ImageId, offset: u64) -> Vec<u8> {
    let mut download = glance.download((caller, ID), id, offset).await.expect("it begins");
    assert_eq!(download.offset(), offset);
    download.take(1 << 20).await.expect("the bytes arrive")
}

fn chunks(bytes: &[u8]) -> impl futures_core::Stream<Item = std::io::Result<Bytes>> + use<> {
    let chunks: Vec<_> = bytes.chunks(7).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
    futures_util::stream::iter(chunks)
}

#[tokio::test]
async fn the_users_token_decides_what_is_seen() {
    let (fake, glance) = start().await;
    let id = ImageId::new_v4();
    fake.add(&id.to_string(), "red", json!({"hw_disk_bus": "scsi"}), b"bytes");
    let image = glance.show((Caller::User(&RED), ID), id).await.expect("the image is red's");
    assert_eq!((image.size, image.properties["hw_disk_bus"].as_str()), (Some(5), "scsi"));
    let arrived = fake.take_arrived();
    let sent = (arrived[0].token.as_str(), &arrived[0].service, arrived[0].request_id.as_deref());
    assert_eq!(sent, ("ann:red", &None, ID));
    let hidden = glance.show((Caller::User(&BLUE), ID), id).await;
    assert!(matches!(hidden, Err(Error::NotFound(of)) if of == id), "{hidden:?}");
    let nobody = HeaderValue::from_static("nobody");
    let refused = glance.show((Caller::User(&nobody), ID), id).await;
    assert!(matches!(refused, Err(Error::NotAuthorized(_))), "{refused:?}");
    fake.expire("eve:red");
    let expired = glance.show((Caller::User(&EXPIRED), ID), id).await;
    assert!(matches!(expired, Err(Error::NotAuthorized(_))), "{expired:?}");
    glance
        .show((Caller::Vouched(&EXPIRED), ID), id)
        .await
        .expect("the service token vouches for the user");
    glance.show((Caller::Own, None), id).await.expect("the service login sees all images");
}

#[tokio::test]
async fn a_request_without_an_answer_is_repeated() {
    let (fake, glance) = start().await;
    let id = ImageId::new_v4();
    fake.add(&id.to_string(), "red", json!({}), b"bytes");
    for failure in [Failure::Status(503), Failure::Lost, Failure::Status(502)] {
        fake.fail("GET show", failure);
    }
    glance.show((Caller::User(&RED), ID), id).await.expect("the fourth attempt succeeds");
    assert_eq!(fake.take_arrived().len(), 4);
    for _ in 0..4 {
        fake.fail("GET show", Failure::Status(503));
    }
    let failed = glance.show((Caller::User(&RED), ID), id).await.expect_err("no attempt is left");
    let text = failed.to_string();
    let begin = format!("Connection to glance host {} failed: 503", fake.url());
    assert!(text.starts_with(&begin), "{text}");
    assert_eq!(fake.take_arrived().len(), 4, "num_retries attempts after the first");
    fake.fail("GET show", Failure::Status(404));
    glance.show((Caller::User(&RED), ID), id).await.expect_err("there is none");
    assert_eq!(fake.take_arrived().len(), 1, "a refusal is final");
}

#[tokio::test]
async fn a_request_without_an_answer_ends_in_time() {
    let fake = FakeGlance::start().await;
    let timeout = Duration::from_millis(200);
    let glance = glance_with(&fake, GlanceOptions { timeout, ..options() });
    fake.fail("GET show", Failure::Hangs);
    let failed = glance.show((Caller::User(&RED), ID), ImageId::new_v4()).await;
    assert!(matches!(failed, Err(Error::Unavailable { is_sent: true, .. })), "{failed:?}");
}

#[tokio::test]
async fn attempts_go_to_every_endpoint() {
    let fake = FakeGlance::start().await;
    let id = ImageId::new_v4();
    fake.add(&id.to_string(), "red", json!({}), b"");
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("the socket is bound");
    let address = closed.local_addr().expect("the socket has an address");
    drop(closed);
    let at = |url: String| Endpoint { endpoint_override: Some(url), ..Endpoint::default() };
    let services = [format!("http://{address}"), format!("{}/", fake.url())];
    let services = services
        .map(|url| Service::new(session(fake.url()), at(url), Retries::default()))
        .into_iter()
        .collect();
    let glance = Glance::new(services, options());
    for _ in 0..4 {
        glance.show((Caller::User(&RED), ID), id).await.expect("the other endpoint answers");
    }
}

#[tokio::test]
async fn an_image_is_created_once() {
    let (fake, glance) = start().await;
    let id = ImageId::new_v4();
    fake.fail("POST images", Failure::LostAnswer);
    let made = glance.create((Caller::User(&RED), ID), id, &body(id)).await;
    let made = made.expect("the second attempt finds the image of the first one");
    assert_eq!((made.id, made.status.as_str(), made.owner.as_deref()), (id, "queued", Some("red")));
    assert_eq!(fake.images().len(), 1);
    let again = glance.create((Caller::User(&RED), ID), id, &body(id)).await;
    assert!(matches!(again, Err(Error::Conflict { .. })), "{again:?}");
    let wrong = json!({"id": ImageId::new_v4(), "min_disk": -1});
    let refused = glance.create((Caller::User(&RED), ID), id, &wrong).await.expect_err("invalid");
    assert!(
        matches!(&refused, Error::Refused { status: 400, why, .. } if !why.contains('<')),
        "{refused:?}"
    );
    for (status, is_large) in [(403, false), (413, true)] {
        fake.fail("POST images", Failure::Status(status));
        let refused = glance.create((Caller::User(&RED), ID), id, &body(id)).await;
        let refused = refused.expect_err("it is refused");
        assert_eq!(matches!(refused, Error::TooLarge(_)), is_large, "{refused:?}");
        assert_eq!(matches!(refused, Error::NotAuthorized(_)), !is_large, "{refused:?}");
    }
}

#[tokio::test]
async fn bytes_are_sent_and_hashed() {
    let (fake, glance) = start().await;
    let id = ImageId::new_v4();
    let by = (Caller::User(&RED), ID);
    let bare = json!({"id": id, "name": "snapshot"});
    glance.create(by, id, &bare).await.expect("it is created");
    let early = glance.upload(by, id, chunks(b"bytes")).await;
    assert!(matches!(early, Err(Error::Refused { status: 400, .. })), "{early:?}");
    let formats = json!([
        {"op": "replace", "path": "/disk_format", "value": "raw"},
        {"op": "add", "path": "/container_format", "value": "bare"},
        {"op": "add", "path": "/image_state", "value": "available"},
    ]);
    let patched = glance.patch(by, id, &formats).await.expect("it is changed");
    assert_eq!(patched.properties["image_state"], "available");
    let bytes: Vec<u8> = (0..100_000_u32).map(|number| number as u8).collect();
    let sent = glance.upload(by, id, chunks(&bytes)).await.expect("the bytes are stored");
    let image = glance.show(by, id).await.expect("the image exists");
    assert!(image.is_active());
    let expected = image.expected().expect("Glance knows a hash");
    assert_eq!((sent.size, &sent.sha512), (100_000, &expected.value));
    assert_eq!(Some(&sent.md5), image.checksum.as_ref());
    let again = glance.upload(by, id, chunks(b"other")).await;
    assert!(matches!(again, Err(Error::Conflict { .. })), "{again:?}");
    assert_eq!(fake.images()[&id.to_string()].bytes, bytes);
    assert_eq!(all(&glance, Caller::User(&RED), id, 99_000).await, &bytes[99_000..]);
}

#[tokio::test]
async fn an_upload_ends_with_its_source() {
    let fake = FakeGlance::start().await;
    let idle = Duration::from_millis(300);
    let glance = glance_with(&fake, GlanceOptions { idle, ..options() });
    let id = ImageId::new_v4();
    let by = (Caller::Own, None);
    glance.create(by, id, &body(id)).await.expect("it is created");
    let broken: Vec<std::io::Result<Bytes>> =
        vec![Ok(Bytes::from_static(b"begin")), Err(std::io::Error::other("the host died"))];
    let ended = glance.upload(by, id, futures_util::stream::iter(broken)).await;
    assert!(
        matches!(&ended, Err(Error::Interrupted { why, .. }) if why.contains("the host died")),
        "{ended:?}"
    );
    let ended = glance.upload(by, id, futures_util::stream::pending()).await;
    let ended = ended.expect_err("nothing moves");
    assert!(matches!(ended, Error::Interrupted { .. } | Error::Conflict { .. }), "{ended:?}");
    fake.fail("PUT file", Failure::Status(503));
    let unavailable = glance.upload(by, id, chunks(b"bytes")).await;
    assert!(matches!(unavailable, Err(Error::Unavailable { .. })), "{unavailable:?}");
}

#[tokio::test]
async fn a_download_continues_at_an_offset() {
    let (fake, glance) = start().await;
    let id = ImageId::new_v4();
    let bytes: Vec<u8> = (0..1000_u32).map(|number| number as u8).collect();
    fake.add(&id.to_string(), "red", json!({}), &bytes);
    let user = Caller::User(&RED);
    assert_eq!(all(&glance, user, id, 0).await, bytes);
    assert_eq!(all(&glance, user, id, 600).await, &bytes[600..]);
    let ranges: Vec<_> = fake.take_arrived().into_iter().map(|one| one.range).collect();
    assert_eq!(ranges, [None, Some("bytes=600-".to_owned())]);
    fake.fail("GET file", Failure::Short(300));
    let mut download = glance.download((user, ID), id, 0).await.expect("it begins");
    let mut begin = Vec::new();
    let ended = loop {
        match download.take(1000).await {
            Ok(some) => {
                assert!(!some.is_empty(), "an early end is an error");
                begin.extend(some);
            }
            Err(ended) => break ended,
        }
    };
    assert!(matches!(ended, Error::Unavailable { .. }), "{ended:?}");
    assert!(begin.len() == 300 && bytes.starts_with(&begin), "{begin:?}");
    assert_eq!(download.offset(), begin.len() as u64);
    assert_eq!(all(&glance, user, id, download.offset()).await, &bytes[begin.len()..]);
    fake.without_ranges();
    assert_eq!(
        all(&glance, user, id, 999).await,
        &bytes[999..],
        "the bytes before the offset are skipped"
    );
    let beyond = glance.download((user, ID), id, 1001).await.map(|_| ());
    assert!(matches!(beyond, Err(Error::Damaged { .. })), "{beyond:?}");
}

#[tokio::test]
async fn an_image_without_data_is_refused() {
    let (_fake, glance) = start().await;
    let id = ImageId::new_v4();
    let by = (Caller::Own, None);
    glance.create(by, id, &body(id)).await.expect("it is created");
    let refused = glance.download(by, id, 0).await.map(|_| ()).expect_err("it has no data");
    assert!(refused.to_string().contains("Image has no associated data"), "{refused}");
}

#[tokio::test]
async fn deletion_is_idempotent() {
    let (fake, glance) = start().await;
    let id = ImageId::new_v4();
    fake.add(&id.to_string(), "red", json!({}), b"bytes");
    let by = (Caller::Own, None);
    fake.set(&id.to_string(), "protected", json!(true));
    let kept = glance.delete(by, id).await;
    assert!(matches!(kept, Err(Error::NotAuthorized(_))), "{kept:?}");
    fake.set(&id.to_string(), "protected", json!(false));
    fake.fail("DELETE show", Failure::LostAnswer);
    assert!(!glance.delete(by, id).await.expect("the second attempt finds nothing"));
    assert!(!glance.delete(by, id).await.expect("there is nothing"));
    assert!(fake.images().is_empty());
}

#[tokio::test]
async fn lists_are_read_page_by_page() {
    let (fake, glance) = start().await;
    for number in 0..7 {
        let kind = if number % 2 == 0 { "backup" } else { "snap & shot" };
        let more = json!({"image_type": kind});
        fake.add(&ImageId::new_v4().to_string(), "red", more, b"");
    }
    let by = (Caller::User(&RED), ID);
    let list = |kind: &'static str, most| {
        let glance = &glance;
        async move {
            let query = [("image_type", kind), ("limit", "2")];
            let (found, more) = glance.list(by, &query, most).await.expect("the list arrives");
            (found.len(), more)
        }
    };
    assert_eq!(list("backup", 100).await, (4, false));
    assert_eq!(list("backup", 3).await, (3, true));
    assert_eq!(list("snap & shot", 100).await, (3, false), "values are escaped");
}

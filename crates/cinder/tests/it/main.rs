//! The client against a strict Cinder: the lifecycle of an attachment, tokens, addresses, retries,
//! and the errors for the caller.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use kilonova_cinder::{Call, Cinder, Error, NewSnapshot, NewVolume, Volume, VolumeSource};
use kilonova_ids::{AttachmentId, ImageId, ServerId, SnapshotId, VolumeId};
use kilonova_keystone::{Caller, Endpoint, Http, Login, Retries, Service, Session};
use kilonova_testkit::cinder::{Failure, FakeCinder};
use kilonova_wire::IntoRefusal;
use kilonova_wire::refusal::Kind;
use serde_json::json;

const ANN: HeaderValue = HeaderValue::from_static("ann:red");

fn session(fake: &FakeCinder) -> Arc<Session> {
    let http = Http::plain(Duration::from_secs(5), 1 << 20).expect("the client is created");
    let login = Login {
        auth_url: fake.url(),
        username: "kilonova".into(),
        password: "secret".into(),
        user_domain_name: "Default".into(),
        project_name: "service".into(),
        project_domain_name: "Default".into(),
    };
    Arc::new(Session::new(http, login))
}

fn client(fake: &FakeCinder, template: Option<String>) -> Cinder {
    let endpoint = Endpoint {
        service_types: vec!["volumev3".into(), "block-storage".into()],
        interfaces: vec!["publicURL".into()],
        ..Endpoint::default()
    };
    let service = Service::new(session(fake), endpoint, Retries::default());
    let service = service.vouched_by(session(fake));
    Cinder::new(service, template).pausing(Duration::from_millis(1))
}

fn ann(token: &HeaderValue) -> Call<'_> {
    Call { caller: Caller::Vouched(token), project: Some("red"), request_id: Some("req-1") }
}

async fn cinder() -> (FakeCinder, Cinder) {
    let fake = FakeCinder::start().await;
    let client = client(&fake, None);
    (fake, client)
}

fn volume(fake: &FakeCinder, more: serde_json::Value) -> VolumeId {
    fake.state().add_volume("red", 2, more).parse().expect("an id")
}

fn status(fake: &FakeCinder, volume: VolumeId) -> String {
    fake.state().status(&volume.to_string())
}

fn connector() -> serde_json::Value {
    json!({"host": "a", "initiator": "iqn.1994-05.com.kilonova:a", "mountpoint": "/dev/vdb"})
}

#[tokio::test]
async fn an_attachment_lives_as_in_cinder() {
    let (fake, cinder) = cinder().await;
    let (token, server) = (ANN, ServerId::new_v4());
    let call = ann(&token);
    let id =
        volume(&fake, json!({"name": "data", "volume_image_metadata": {"hw_disk_bus": "scsi"}}));
    fake.state().use_iscsi(&id.to_string());
    let shown = cinder.volume(call, id).await.expect("the volume exists");
    assert_eq!((shown.status.as_str(), shown.size, shown.name.as_str()), ("available", 2, "data"));
    assert_eq!(shown.image_metadata["hw_disk_bus"], "scsi");

    let reserved = cinder.create_attachment(call, id, server).await.expect("it is reserved");
    assert!(reserved.connection_info.is_empty());
    assert_eq!((reserved.status.as_str(), &*status(&fake, id)), ("reserved", "reserved"));
    let connected = cinder.update_attachment(call, reserved.id, &connector()).await;
    let connected = connected.expect("it is connected");
    assert_eq!(connected.connection_info.0["driver_volume_type"], "iscsi");
    assert!(!format!("{connected:?}").contains("chap-secret"), "secrets are not shown");
    cinder.complete_attachment(call, reserved.id).await.expect("it is complete");
    assert_eq!(status(&fake, id), "in-use");
    let all = cinder.attachments_of(call, server).await.expect("the list is read");
    assert_eq!(all.iter().map(|one| one.id).collect::<Vec<_>>(), [reserved.id]);
    assert_eq!(cinder.volume(call, id).await.expect("the volume exists").attachments.len(), 1);

    // A second attachment of the same server, as for a live migration.
    let other = json!({"host": "b", "initiator": "iqn.1994-05.com.kilonova:b"});
    let late = cinder.create_attachment(call, id, server).await.expect("it is created");
    let refused =
        cinder.update_attachment(call, late.id, &other).await.expect_err("one is connected");
    assert_eq!(refused.status(), Some(StatusCode::CONFLICT));
    assert!(cinder.delete_attachment(call, late.id).await.expect("it is deleted"));
    let second = cinder.create_connected_attachment(call, id, server, &other).await;
    let second = second.expect("it is connected");
    assert!(!second.connection_info.is_empty());
    let foreign = cinder.create_attachment(call, id, ServerId::new_v4()).await;
    let foreign = foreign.expect_err("the volume is in use");
    assert!(foreign.is_final());
    let words = foreign.into_refusal().message;
    assert_eq!(
        words,
        format!(
            "Invalid input received: Invalid volume: Volume {id} status must be available or \
             downloading to reserve, but the current status is in-use. (HTTP 400) (Request-ID: \
             req-of-cinder)"
        )
    );
    assert!(cinder.delete_attachment(call, second.id).await.expect("it is deleted"));

    cinder.begin_detaching(call, id).await.expect("it begins");
    assert_eq!(status(&fake, id), "detaching");
    let again = cinder.begin_detaching(call, id).await.expect_err("it is refused");
    assert_eq!(again.status(), Some(StatusCode::BAD_REQUEST));
    cinder.roll_detaching(call, id).await.expect("the detach is rolled back");
    assert_eq!(status(&fake, id), "in-use");
    assert!(cinder.delete_attachment(call, reserved.id).await.expect("it is deleted"));
    assert!(!cinder.delete_attachment(call, reserved.id).await.expect("404 is success"));
    assert_eq!(status(&fake, id), "available");
}

#[tokio::test]
async fn volumes_snapshots_types_and_limits() {
    let (fake, cinder) = cinder().await;
    let token = ANN;
    let call = ann(&token);
    fake.state().add_type("fast");
    let kinds = cinder.types(call).await.expect("the list is read");
    assert_eq!(kinds.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["fast"]);
    let new = NewVolume {
        size: 3,
        name: "root".into(),
        description: String::new(),
        volume_type: Some("fast".into()),
        availability_zone: None,
        source: VolumeSource::Blank,
        metadata: [("kilonova".to_owned(), "x'1".to_owned())].into(),
    };
    let made = cinder.create_volume(call, &new).await.expect("it is created");
    assert_eq!(made.status, "creating");
    assert_eq!(cinder.volume(call, made.id).await.expect("the volume exists").status, "available");
    let found = |volumes: Vec<Volume>| volumes.into_iter().map(|one| one.id).collect::<Vec<_>>();
    for caller in [call, Call::OWN] {
        let with = cinder.volumes_with(caller, "kilonova", "x'1").await.expect("the list is read");
        assert_eq!(found(with), [made.id]);
        let with = cinder.volumes_with(caller, "kilonova", "y").await.expect("the list is read");
        assert_eq!(found(with), []);
    }
    fake.state().limit_snapshots(1);
    assert!(cinder.snapshot_limit(call).await.expect("the limit is read").allows(1));
    let new = NewSnapshot {
        volume: made.id,
        name: "s".into(),
        description: "d".into(),
        metadata: [("kilonova".to_owned(), "s1".to_owned())].into(),
    };
    let snapshot = cinder.create_snapshot(call, &new).await.expect("it is created");
    assert_eq!((snapshot.volume_id, snapshot.size), (made.id, 3));
    assert!(!cinder.snapshot_limit(call).await.expect("the limit is read").allows(1));
    let over = cinder.create_snapshot(call, &new).await.expect_err("the limit is reached");
    assert_eq!(over.status(), Some(StatusCode::PAYLOAD_TOO_LARGE));
    assert_eq!(cinder.snapshot(call, snapshot.id).await.expect("the snapshot exists"), snapshot);
    for caller in [call, Call::OWN] {
        let with = cinder.snapshots_with(caller, "kilonova", "s1").await.expect("it is read");
        assert_eq!(with, std::slice::from_ref(&snapshot));
        assert_eq!(cinder.snapshots_with(caller, "kilonova", "s2").await.expect("it is read"), []);
    }
    let stranger = HeaderValue::from_static("bob:blue");
    let missing = cinder.snapshot(ann(&stranger), snapshot.id).await.expect_err("hidden");
    assert!(missing.is_not_found());
    assert!(cinder.delete_volume(call, made.id).await.expect_err("it has a snapshot").is_final());
    assert!(cinder.delete_snapshot(call, snapshot.id).await.expect("it is deleted"));
    assert!(!cinder.delete_snapshot(call, SnapshotId::new_v4()).await.expect("404 is success"));
    let missing = cinder.snapshot(call, snapshot.id).await.expect_err("it is gone");
    assert!(missing.is_not_found());
    assert!(cinder.delete_volume(call, made.id).await.expect("it is deleted"));
    assert!(!cinder.delete_volume(call, made.id).await.expect("404 is success"));
}

#[tokio::test]
async fn the_data_of_a_volume_are_replaced() {
    let (fake, cinder) = cinder().await;
    let (token, image) = (ANN, ImageId::new_v4());
    let call = ann(&token);
    let id = volume(&fake, json!({}));
    fake.state().creating = 1;
    cinder.reimage(call, id, image).await.expect("it begins");
    let again = cinder.reimage(call, id, image).await.expect_err("it is in progress");
    assert!(again.is_final(), "{again}");
    let seen = async || cinder.volume(call, id).await.expect("the volume exists");
    assert_eq!(seen().await.status, "downloading");
    let after = seen().await;
    assert_eq!((after.status.as_str(), after.bootable), ("available", true));
    assert_eq!(after.image_metadata["image_id"], image.to_string());
    fake.state().creation_fails = true;
    cinder.reimage(call, id, image).await.expect("it begins");
    seen().await;
    assert_eq!(seen().await.status, "error");
}

#[tokio::test]
async fn every_call_carries_a_service_token() {
    let (fake, cinder) = cinder().await;
    let (token, server) = (ANN, ServerId::new_v4());
    let id = volume(&fake, json!({}));
    for call in [ann(&token), Call::OWN] {
        let made = cinder.create_attachment(call, id, server).await.expect("it is created");
        cinder.update_attachment(call, made.id, &connector()).await.expect("it is connected");
        cinder.complete_attachment(call, made.id).await.expect("it is complete");
        cinder.delete_attachment(call, made.id).await.expect("a service token permits it");
    }
    let calls = fake.take_calls();
    assert!(calls.iter().all(|call| call.ends_with(", service)")), "{calls:?}");
    // Without a service token, Cinder asks Nova, which does not answer here.
    let made = cinder.create_attachment(ann(&token), id, server).await.expect("it is created");
    let connected = cinder.update_attachment(ann(&token), made.id, &connector()).await;
    connected.expect("it is connected");
    let alone = Call { caller: Caller::User(&token), project: Some("red"), request_id: None };
    let refused = cinder.delete_attachment(alone, made.id).await.expect_err("it is refused");
    assert_eq!(refused.status(), Some(StatusCode::INTERNAL_SERVER_ERROR));
    fake.state().listed_by_nova = Some(vec![made.id.to_string()]);
    let refused = cinder.delete_attachment(alone, made.id).await.expect_err("it is refused");
    assert_eq!(refused.status(), Some(StatusCode::CONFLICT));

    fake.expire("ann:red");
    cinder.volume(ann(&token), id).await.expect("a service token vouches for an expired one");
    let refused = cinder.volume(alone, id).await.expect_err("it has expired");
    assert_eq!(refused.status(), Some(StatusCode::UNAUTHORIZED));
    assert!(!refused.is_final(), "another token may help");
}

#[tokio::test]
async fn the_address_has_the_project_where_the_catalog_has_it() {
    let fake = FakeCinder::start().await;
    fake.put_project_into_url();
    let token = ANN;
    let id = volume(&fake, json!({}));
    let template = format!("{}/v3/%(project_id)s", fake.url());
    for template in [None, Some(template)] {
        let cinder = client(&fake, template);
        cinder.volume(ann(&token), id).await.expect("the user's project is in the URL");
        cinder.volume(Call::OWN, id).await.expect("the login's project is in the URL");
        cinder.check().await.expect("it answers");
    }
    let other = client(&fake, Some(format!("{}/v2", fake.url())));
    let refused = other.volume(ann(&token), id).await.expect_err("it is another API");
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    assert_eq!(refused.into_refusal().kind, Kind::Unavailable);
}

#[tokio::test]
async fn failures_are_repeated_where_upstream_repeats() {
    let (fake, cinder) = cinder().await;
    let (token, server) = (ANN, ServerId::new_v4());
    let call = ann(&token);
    let id = volume(&fake, json!({}));
    let made = cinder.create_attachment(call, id, server).await.expect("it is created");
    fake.fail("PUT attachments", Failure::Status(500), 4);
    cinder
        .update_attachment(call, made.id, &connector())
        .await
        .expect("the fifth attempt succeeds");
    fake.fail("DELETE attachments", Failure::Status(504), 5);
    let failed = cinder.delete_attachment(call, made.id).await.expect_err("all attempts failed");
    assert!(failed.may_have_effect() && !failed.is_final());
    assert_eq!(failed.into_refusal().kind, Kind::Unavailable);
    fake.take_calls();
    // A proxy times out although Cinder completes the request: the retry finds no attachment, so the deletion
    // has succeeded.
    fake.fail("DELETE attachments", Failure::AnswerStatus(504), 1);
    assert!(!cinder.delete_attachment(call, made.id).await.expect("it is done"));
    assert_eq!(fake.take_calls().len(), 2);
    // A reservation is not repeated: it may have been carried out.
    fake.fail("POST attachments", Failure::AnswerLost, 1);
    let failed = cinder.create_attachment(call, id, server).await.expect_err("no answer");
    assert!(failed.may_have_effect());
    assert_eq!(fake.state().attachments().len(), 1);
    let left = cinder.attachments_of(Call::OWN, server).await.expect("the list is read");
    assert_eq!(left.len(), 1, "the caller finds the attachment");
    let missing = cinder.attachment(call, AttachmentId::new_v4()).await.expect_err("there is none");
    assert!(missing.is_not_found());
    // A proxy's answer says nothing about an attachment.
    fake.fail("DELETE attachments", Failure::Proxy(404), 1);
    let failed = cinder.delete_attachment(call, left[0].id).await.expect_err("not Cinder's answer");
    assert_eq!(failed.status(), Some(StatusCode::NOT_FOUND));
    assert!(!failed.is_not_found() && !failed.is_final() && !failed.may_have_effect());
    assert_eq!(fake.state().attachments().len(), 1);
}

#[tokio::test]
async fn a_slow_or_absent_cinder_is_bounded() {
    let fake = FakeCinder::start().await;
    let token = ANN;
    let id = volume(&fake, json!({}));
    let http = Http::plain(Duration::from_millis(200), 1 << 20).expect("the client is created");
    let login = Login {
        auth_url: fake.url(),
        username: "kilonova".into(),
        password: "secret".into(),
        user_domain_name: "Default".into(),
        project_name: "service".into(),
        project_domain_name: "Default".into(),
    };
    let quick = Arc::new(Session::new(http, login));
    let endpoint = Endpoint {
        service_types: vec!["block-storage".into()],
        interfaces: vec!["public".into()],
        ..Endpoint::default()
    };
    let cinder = Cinder::new(Service::new(quick, endpoint, Retries::default()), None);
    cinder.volume(ann(&token), id).await.expect("the volume exists");
    fake.fail("GET volumes", Failure::Slow(Duration::from_secs(30)), 1);
    let slow = cinder.volume(ann(&token), id).await.expect_err("it is too slow");
    assert!(matches!(slow, Error::NoAnswer(_)), "{slow}");
    fake.fail("GET volumes", Failure::Lost, 1);
    let lost = cinder.volume(ann(&token), id).await.expect_err("the connection broke");
    let refusal = lost.into_refusal();
    assert_eq!(refusal.kind, Kind::Unavailable);
    assert_eq!(refusal.message, "The volume service is temporarily unavailable. Try again.");
}

//! The events for an external Nova. A bind does not depend on whether Nova is reachable.

use std::sync::{Arc, Mutex};

use axum::extract::State as Extract;
use axum::routing::post;
use axum::{Json, Router};
use http::{HeaderMap, StatusCode};
use kilonova_accelerator::EventStatus;
use kilonova_accelerator::nova::{
    Address, Credentials, Delivery, Event, HttpNova, Nova, NovaError, Presence, PresenceQuery,
};
use kilonova_accelerator::reconcile::{Delivered, deliver};
use kilonova_keystone::Login;
use kilonova_store::Store;
use serde_json::{Value, json};

use crate::common::arqs::{ABSENT, PATH, SERVER, bind, request, unbind};
use crate::common::{Api, count, fake, report, stores};

const WAITING: &str = "SELECT COUNT(*) FROM nova_events";

/// A Nova with configured answers that records its events.
#[derive(Clone, Default)]
struct Script {
    answers: Arc<Mutex<Vec<Result<(), NovaError>>>>,
    events: Arc<Mutex<Vec<Vec<Event>>>>,
}

impl Script {
    fn of(answers: Vec<Result<(), NovaError>>) -> Self {
        Self { answers: Arc::new(Mutex::new(answers)), ..Self::default() }
    }
}

impl Nova for Script {
    fn has(&self, _: kilonova_ids::ServerId) -> PresenceQuery<'_> {
        Box::pin(async { Err(NovaError::Temporary("not asked here".into())) })
    }

    fn deliver<'a>(&'a self, events: &'a [Event]) -> Delivery<'a> {
        self.events.lock().unwrap().push(events.to_vec());
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.is_empty() { Ok(()) } else { answers.remove(0) };
        Box::pin(async move { answer })
    }
}

fn later() -> Result<(), NovaError> {
    Err(NovaError::Temporary("away".into()))
}

/// Makes deferred retries due.
async fn time_passes(store: &Store) {
    store
        .write(|tx| tx.execute("UPDATE nova_events SET due_at = 0", &[]))
        .await
        .expect("the update succeeds");
}

/// An API with an external Nova, and a bind of two requests.
async fn bound(store: &Store, nova: &Script) -> (Api, Vec<String>) {
    let specs = report(store, vec![fake(4)]).await.unwrap();
    let api = Api { nova: Some(Arc::new(nova.clone())), ..Api::admin(store).with_service() };
    let arqs = request(&api, "FPGA", "2").await;
    let answer = api.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED);
    (api, arqs)
}

#[tokio::test]
async fn the_requests_of_a_bind_are_delivered_to_nova_together_and_once() {
    for (name, store, _guard) in stores().await {
        let nova = Script::default();
        let (_, arqs) = bound(&store, &nova).await;
        assert_eq!(count(&store, WAITING).await, 2, "{name}");
        let once = Delivered { delivered: 1, ..Delivered::default() };
        assert_eq!(deliver(&store, &nova).await.unwrap(), once, "{name}");
        assert_eq!(deliver(&store, &nova).await.unwrap(), Delivered::default(), "{name}");
        let delivered = nova.events.lock().unwrap().clone();
        assert_eq!(delivered.len(), 1, "{name}");
        let mut tags: Vec<String> =
            delivered[0].iter().map(|event| event.arq.to_string()).collect();
        let mut arqs = arqs;
        tags.sort();
        arqs.sort();
        assert_eq!(tags, arqs, "{name}");
        assert!(
            delivered[0]
                .iter()
                .all(|e| e.server.to_string() == SERVER && e.status == EventStatus::Completed)
        );
        assert_eq!(count(&store, WAITING).await, 0, "{name}");
    }
}

#[tokio::test]
async fn an_unavailable_nova_fails_no_bind_and_gets_the_events_later() {
    for (name, store, _guard) in stores().await {
        let nova = Script::of(vec![later(), later()]);
        bound(&store, &nova).await;
        let put_off = Delivered { retried: 1, ..Delivered::default() };
        assert_eq!(deliver(&store, &nova).await.unwrap(), put_off, "{name}");
        assert_eq!(
            deliver(&store, &nova).await.unwrap(),
            Delivered::default(),
            "{name}: the retry is not due yet"
        );
        time_passes(&store).await;
        assert_eq!(deliver(&store, &nova).await.unwrap(), put_off, "{name}");
        time_passes(&store).await;
        assert_eq!(deliver(&store, &nova).await.unwrap().delivered, 1, "{name}");
        assert_eq!(count(&store, WAITING).await, 0, "{name}");
    }
}

#[tokio::test]
async fn events_that_nova_refuses_and_old_events_are_given_up() {
    for (name, store, _guard) in stores().await {
        let nova = Script::of(vec![Err(NovaError::Permanent("nonsense".into()))]);
        bound(&store, &nova).await;
        assert_eq!(deliver(&store, &nova).await.unwrap().given_up, 1, "{name}");
        assert_eq!(count(&store, WAITING).await, 0, "{name}");
        let old = Script::of(vec![later()]);
        let api = Api { nova: Some(Arc::new(old.clone())), ..Api::admin(&store).with_service() };
        let provider = count_provider(&store).await;
        let arqs = request(&api, "FPGA", "1").await;
        api.patch(PATH, bind(&arqs, provider, ABSENT)).await;
        store
            .write(|tx| tx.execute("UPDATE nova_events SET created_at = 0, due_at = 0", &[]))
            .await
            .expect("the row is written");
        assert_eq!(deliver(&store, &old).await.unwrap().given_up, 1, "{name}");
    }
}

async fn count_provider(store: &Store) -> kilonova_ids::ProviderId {
    let sql = "SELECT provider_id FROM deployables";
    store
        .read(move |tx| tx.row(sql, &[])?.expect("the row exists").id(0))
        .await
        .expect("the provider is read")
}

#[tokio::test]
async fn no_event_is_sent_after_an_unbind_or_without_an_external_nova() {
    for (name, store, _guard) in stores().await {
        let nova = Script::default();
        let (api, arqs) = bound(&store, &nova).await;
        api.patch(PATH, unbind(&arqs[0])).await;
        assert_eq!(count(&store, WAITING).await, 1, "{name}");
        api.delete(&format!("{PATH}?instance={SERVER}")).await;
        assert_eq!(count(&store, WAITING).await, 0, "{name}");
        let silent = Api::admin(&store).with_service();
        silent.patch(PATH, bind(&arqs[..1], count_provider(&store).await, SERVER)).await;
        assert_eq!(count(&store, WAITING).await, 0, "{name}");
    }
}

/// The requests that a real Nova and its Keystone would get.
#[derive(Clone, Default)]
struct Cloud {
    catalog: Arc<Mutex<Value>>,
    requests: Arc<Mutex<Vec<(HeaderMap, Value)>>>,
    tokens: Arc<Mutex<u32>>,
    answer: Arc<Mutex<(u16, Value)>>,
}

async fn events(
    Extract(cloud): Extract<Cloud>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> (StatusCode, Json<Value>) {
    let expired = headers.get("x-auth-token").is_some_and(|token| token == "t1");
    cloud.requests.lock().unwrap().push((headers, body));
    if expired {
        return (StatusCode::UNAUTHORIZED, Json(json!({})));
    }
    let (status, body) = cloud.answer.lock().unwrap().clone();
    (StatusCode::from_u16(status).unwrap(), Json(body))
}

async fn tokens(
    Extract(cloud): Extract<Cloud>,
    Json(body): Json<Value>,
) -> (StatusCode, [(&'static str, String); 1], Json<Value>) {
    assert_eq!(body["auth"]["identity"]["password"]["user"]["name"], "cyborg");
    let mut count = cloud.tokens.lock().unwrap();
    *count += 1;
    let catalog = cloud.catalog.lock().unwrap().clone();
    let body = json!({"token": {"expires_at": "2999-01-01T00:00:00.000000Z", "catalog": catalog}});
    (StatusCode::CREATED, [("x-subject-token", format!("t{count}"))], Json(body))
}

async fn serve(cloud: &Cloud) -> String {
    let router = Router::new()
        .route("/v2.1/os-server-external-events", post(events))
        .route("/v3/auth/tokens", post(tokens))
        .with_state(cloud.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

#[tokio::test]
async fn events_have_novas_form_and_its_answers_are_understood() {
    let cloud = Cloud::default();
    let root = serve(&cloud).await;
    let nova = HttpNova::new(
        Address::at(&format!("{root}/v2.1/")),
        Credentials::Password(Login {
            auth_url: root.clone(),
            username: "cyborg".into(),
            password: "secret".into(),
            project_name: "service".into(),
            user_domain_name: "Default".into(),
            project_domain_name: "Default".into(),
        }),
        None,
    )
    .unwrap();
    let event = Event {
        server: SERVER.parse().unwrap(),
        arq: ABSENT.parse().unwrap(),
        status: EventStatus::Completed,
    };
    let of = |code: u16| json!({"events": [{"code": code}]});
    for (status, body, fine, forever) in [
        (200, of(200), true, false),
        (207, of(422), true, false),
        (404, json!({}), true, false),
        (207, of(400), false, true),
        (400, json!({}), false, true),
        (403, json!({}), false, false),
        (503, json!({}), false, false),
    ] {
        *cloud.answer.lock().unwrap() = (status, body);
        let outcome = nova.deliver(std::slice::from_ref(&event)).await;
        assert_eq!(outcome.is_ok(), fine, "{status}: {outcome:?}");
        assert_eq!(
            matches!(outcome, Err(NovaError::Permanent(_))),
            forever,
            "{status}: {outcome:?}"
        );
    }
    assert_eq!(
        *cloud.tokens.lock().unwrap(),
        2,
        "the refused token is replaced, the other one kept"
    );
    let (headers, body) = cloud.requests.lock().unwrap().last().unwrap().clone();
    assert_eq!(headers["openstack-api-version"], "compute 2.82");
    assert_eq!(
        body,
        json!({"events": [{
            "name": "accelerator-request-bound",
            "server_uuid": SERVER,
            "tag": ABSENT,
            "status": "completed",
        }]})
    );
    let nobody =
        HttpNova::new(Address::at("http://127.0.0.1:1/v2.1"), Credentials::None, None).unwrap();
    let outcome = nobody.deliver(&[event]).await;
    assert!(matches!(outcome, Err(NovaError::Temporary(_))), "{outcome:?}");
}

/// A Nova with configured answers for one instance and for all projects.
#[derive(Clone, Default)]
struct Instances {
    one: Arc<Mutex<(u16, Value)>>,
    all: Arc<Mutex<(u16, Value)>>,
}

async fn one_instance(Extract(it): Extract<Instances>) -> (StatusCode, Json<Value>) {
    let (status, body) = it.one.lock().unwrap().clone();
    (StatusCode::from_u16(status).unwrap(), Json(body))
}

async fn all_instances(
    Extract(it): Extract<Instances>,
    axum::extract::RawQuery(query): axum::extract::RawQuery,
) -> (StatusCode, Json<Value>) {
    let whole = format!("all_tenants=1&soft_deleted=1&uuid={SERVER}");
    assert_eq!(query.as_deref(), Some(whole.as_str()));
    let (status, body) = it.all.lock().unwrap().clone();
    (StatusCode::from_u16(status).unwrap(), Json(body))
}

#[tokio::test]
async fn only_a_nova_that_shows_all_projects_can_report_an_instance_gone() {
    let it = Instances::default();
    let router = Router::new()
        .route("/v2.1/servers/{id}", axum::routing::get(one_instance))
        .route("/v2.1/servers", axum::routing::get(all_instances))
        .with_state(it.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let root = format!("http://{}/v2.1", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let credentials = Credentials::Token("t".into());
    let nova = HttpNova::new(Address::at(&root), credentials.clone(), None).unwrap();
    let absent = json!({"itemNotFound": {"code": 404, "message": "Instance could not be found."}});
    let (none, some) = (json!({"servers": []}), json!({"servers": [{"id": SERVER}]}));
    let not_allowed = json!({"forbidden": {"code": 403}});
    for (one, all, gone) in [
        ((404, &absent), (200, &none), Some(true)),
        ((200, &json!({"server": {}})), (200, &none), Some(false)),
        ((404, &absent), (200, &some), Some(false)),
        ((404, &absent), (403, &not_allowed), None),
        ((404, &absent), (404, &absent), None),
        ((404, &json!("no such page")), (200, &none), None),
        ((403, &not_allowed), (200, &none), None),
        ((500, &absent), (200, &none), None),
        ((503, &absent), (200, &none), None),
    ] {
        *it.one.lock().unwrap() = (one.0, one.1.clone());
        *it.all.lock().unwrap() = (all.0, all.1.clone());
        let answer = nova.has(SERVER.parse().unwrap()).await;
        match gone {
            Some(true) => assert_eq!(answer, Ok(Presence::Absent), "{one:?} {all:?}"),
            Some(false) => assert_eq!(answer, Ok(Presence::Exists), "{one:?} {all:?}"),
            None => assert!(answer.is_err(), "{one:?} {all:?}: {answer:?}"),
        }
    }
    let nobody = HttpNova::new(Address::at("http://127.0.0.1:1/v2.1"), credentials, None).unwrap();
    assert!(nobody.has(SERVER.parse().unwrap()).await.is_err());
}

#[tokio::test]
async fn the_catalog_names_the_address_of_nova() {
    let cloud = Cloud::default();
    let root = serve(&cloud).await;
    let endpoint = |region: &str, interface: &str, url: &str| json!({"region_id": region, "interface": interface, "url": url});
    let right = format!("{root}/v2.1");
    *cloud.answer.lock().unwrap() = (200, json!({"events": []}));
    let event = Event {
        server: SERVER.parse().unwrap(),
        arq: ABSENT.parse().unwrap(),
        status: EventStatus::Completed,
    };
    for (endpoints, found) in [
        (vec![endpoint("one", "internal", &right)], true),
        (vec![endpoint("one", "public", &right)], true),
        (
            vec![
                endpoint("two", "internal", "http://127.0.0.1:1"),
                endpoint("one", "public", &right),
            ],
            true,
        ),
        (vec![endpoint("one", "admin", &right)], false),
        (vec![endpoint("two", "public", &right)], false),
        (vec![], false),
    ] {
        *cloud.catalog.lock().unwrap() = json!([
            {"type": "image", "endpoints": [endpoint("one", "internal", "http://127.0.0.1:1")]},
            {"type": "compute", "endpoints": endpoints},
        ]);
        *cloud.tokens.lock().unwrap() = 1;
        let address = Address::Catalog {
            interfaces: vec!["internal".into(), "public".into()],
            region: Some("one".into()),
        };
        let login = Login {
            auth_url: root.clone(),
            username: "cyborg".into(),
            password: "secret".into(),
            project_name: "service".into(),
            user_domain_name: "Default".into(),
            project_domain_name: "Default".into(),
        };
        let nova = HttpNova::new(address, Credentials::Password(login), None).unwrap();
        match nova.deliver(std::slice::from_ref(&event)).await {
            Ok(()) => assert!(found, "{endpoints:?}"),
            Err(NovaError::Temporary(why)) => {
                assert!(!found && why.contains("no endpoint of type compute"), "{why}");
                assert!(why.contains("in one"), "{why}");
            }
            Err(NovaError::Permanent(why)) => panic!("{why}"),
        }
    }
}

//! Requests to another service of the cloud, with logins at a Keystone that misbehaves.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use kilonova_keystone::{
    Caller, CredentialName, Credentials, Endpoint, Error, Http, Ids, Named, Retries, Service,
    Session,
};
use serde_json::{Value, json};

use super::{login, serve};

/// A Keystone and a service in one.
#[derive(Default)]
struct Fake {
    logins: Mutex<Vec<Value>>,
    /// The headers of the requests to the service.
    requests: Mutex<Vec<HeaderMap>>,
    /// The answers of the service; 200 after the last one.
    statuses: Mutex<Vec<u16>>,
    /// Milliseconds before each answer of the service.
    slow: AtomicUsize,
}

type Shared = State<Arc<Fake>>;

async fn log_in(State(fake): Shared, headers: HeaderMap, Json(body): Json<Value>) -> Response {
    let number = {
        let mut logins = fake.logins.lock().expect("the lock is not poisoned");
        logins.push(body);
        logins.len()
    };
    let host = headers["host"].to_str().expect("the host is text");
    let endpoint = |interface: &str, region: &str| {
        json!({"interface": interface, "region": region, "region_id": region,
               "url": format!("http://{host}/{interface}/{region}/")})
    };
    let end = (jiff::Timestamp::now() + Duration::from_secs(600)).to_string();
    let catalog = json!([
        {"type": "volumev2", "name": "old", "endpoints": [endpoint("internal", "one")]},
        {"type": "network", "name": "neutron", "endpoints": [
            endpoint("public", "one"), endpoint("public", "two"), endpoint("internal", "two"),
        ]},
    ]);
    let body = json!({"token": {"expires_at": end, "catalog": catalog}});
    (StatusCode::CREATED, [("x-subject-token", format!("own-{number}"))], Json(body))
        .into_response()
}

async fn answer(State(fake): Shared, uri: http::Uri, headers: HeaderMap) -> Response {
    let status = {
        fake.requests.lock().expect("the lock is not poisoned").push(headers);
        let mut statuses = fake.statuses.lock().expect("the lock is not poisoned");
        if statuses.is_empty() { 200 } else { statuses.remove(0) }
    };
    let slow = fake.slow.load(Ordering::SeqCst) as u64;
    tokio::time::sleep(Duration::from_millis(slow)).await;
    let status = StatusCode::from_u16(status).expect("the status is valid");
    (status, uri.path().to_owned()).into_response()
}

impl Fake {
    fn answering(&self, statuses: &[u16]) {
        *self.statuses.lock().expect("the lock is not poisoned") = statuses.to_vec();
        self.requests.lock().expect("the lock is not poisoned").clear();
    }

    fn sent(&self) -> usize {
        self.requests.lock().expect("the lock is not poisoned").len()
    }

    fn logins(&self) -> usize {
        self.logins.lock().expect("the lock is not poisoned").len()
    }

    fn header(&self, name: &str) -> Option<String> {
        let requests = self.requests.lock().expect("the lock is not poisoned");
        let value = requests.last().expect("there is a request").get(name)?;
        Some(value.to_str().expect("the header is text").to_owned())
    }
}

async fn fake() -> (Arc<Fake>, String) {
    let fake = Arc::new(Fake::default());
    let routes = Router::new()
        .route("/v3/auth/tokens", axum::routing::post(log_in))
        .fallback(answer)
        .with_state(Arc::clone(&fake));
    let address = serve(routes).await;
    (fake, format!("http://{address}"))
}

fn session(credentials: impl Into<Credentials>) -> Arc<Session> {
    let http = Http::plain(Duration::from_millis(500), 1 << 20).expect("the client is created");
    Arc::new(Session::new(http, credentials))
}

fn network(interfaces: &[&str], region: Option<&str>) -> Endpoint {
    Endpoint {
        service_types: vec!["network".into()],
        interfaces: interfaces.iter().map(|name| (*name).to_owned()).collect(),
        region: region.map(str::to_owned),
        ..Endpoint::default()
    }
}

fn quick(connect: u32, status: u32) -> Retries {
    let pause = Duration::from_millis(1);
    Retries { connect, status, connect_delay: pause, status_delay: pause, ..Retries::default() }
}

async fn get(service: &Service, caller: Caller<'_>) -> Result<(u16, String), Error> {
    let answer = service.send(caller, Method::GET, "/v2.0/ports", None, Some("req-1")).await?;
    Ok((answer.status.as_u16(), String::from_utf8_lossy(&answer.body).into_owned()))
}

#[tokio::test]
async fn the_catalog_names_the_endpoint_by_interface_and_region() {
    let (fake, url) = fake().await;
    let session = session(login(url.clone(), "x"));
    let at = |endpoint: Endpoint| Service::new(Arc::clone(&session), endpoint, Retries::default());
    for (interfaces, region, path) in [
        (&["internal", "public"][..], None, "/internal/two/v2.0/ports"),
        (&["internalURL", "publicURL"], Some("one"), "/public/one/v2.0/ports"),
        (&["public"], Some("two"), "/public/two/v2.0/ports"),
    ] {
        let found = get(&at(network(interfaces, region)), Caller::Own).await;
        assert_eq!(found.expect("there is an endpoint"), (200, path.to_owned()));
    }
    assert_eq!(fake.logins(), 1, "the services share one login");
    assert_eq!(fake.header("x-auth-token").as_deref(), Some("own-1"));
    assert_eq!(fake.header("x-openstack-request-id").as_deref(), Some("req-1"));
    let missing = get(&at(network(&["admin"], Some("two"))), Caller::Own).await;
    let text = missing.expect_err("there is none").to_string();
    assert!(text.contains("type network with interface admin in region two"), "{text}");
    let named = Endpoint { service_name: Some("other".into()), ..network(&["public"], None) };
    get(&at(named), Caller::Own).await.expect_err("the service has another name");
    let fixed =
        Endpoint { endpoint_override: Some(format!("{url}/fixed/")), ..Endpoint::default() };
    let found = get(&at(fixed), Caller::Own).await.expect("the URL is configured");
    assert_eq!(found, (200, "/fixed/v2.0/ports".to_owned()));
    for (root, path) in [
        ("/v2.0", "/v2.0/ports"),
        ("/network/v2.0/", "/network/v2.0/ports"),
        ("/v2", "/v2/v2.0/ports"),
        ("/netv2.0", "/netv2.0/v2.0/ports"),
    ] {
        let endpoint_override = Some(format!("{url}{root}"));
        let versioned = Endpoint { endpoint_override, ..Endpoint::default() };
        let found = get(&at(versioned), Caller::Own).await.expect("the URL is configured");
        assert_eq!(found, (200, path.to_owned()), "{root}");
    }
}

#[tokio::test]
async fn a_request_carries_the_tokens_of_its_caller() {
    let (fake, url) = fake().await;
    let endpoint = Endpoint { endpoint_override: Some(url.clone()), ..Endpoint::default() };
    let service = Service::new(session(login(url, "x")), endpoint, Retries::default());
    let user = HeaderValue::from_static("of a user");
    get(&service, Caller::User(&user)).await.expect("an answer arrives");
    assert_eq!(fake.header("x-auth-token").as_deref(), Some("of a user"));
    assert_eq!((fake.header("x-service-token"), fake.logins()), (None, 0), "no login is needed");
    get(&service, Caller::Vouched(&user)).await.expect("an answer arrives");
    assert_eq!(fake.header("x-auth-token").as_deref(), Some("of a user"));
    assert_eq!(fake.header("x-service-token").as_deref(), Some("own-1"));
    // A revoked service token is renewed once. If the user's token is refused, the 401 is returned.
    for (caller, logins, sent) in
        [(Caller::Own, 2, 2), (Caller::Vouched(&user), 3, 2), (Caller::User(&user), 3, 1)]
    {
        fake.answering(&[401, 401, 401]);
        let answered = get(&service, caller).await.expect("an answer arrives");
        assert_eq!((answered.0, fake.logins(), fake.sent()), (401, logins, sent), "{caller:?}");
    }
    fake.answering(&[401]);
    assert_eq!(get(&service, Caller::Own).await.expect("an answer arrives").0, 200);
}

#[tokio::test]
async fn retries_repeat_only_what_is_safe() {
    let (fake, url) = fake().await;
    let endpoint = Endpoint { endpoint_override: Some(url.clone()), ..Endpoint::default() };
    let service = Service::new(session(login(url.clone(), "x")), endpoint, quick(2, 2));
    let user = HeaderValue::from_static("u");
    let caller = Caller::User(&user);
    for (statuses, last, sent) in
        [(&[503, 503][..], 200, 3), (&[503, 503, 503, 503], 503, 3), (&[500], 500, 1)]
    {
        fake.answering(statuses);
        let answered = get(&service, caller).await.expect("an answer arrives");
        assert_eq!((answered.0, fake.sent()), (last, sent), "{statuses:?}");
    }
    fake.slow.store(900, Ordering::SeqCst);
    for (method, sent) in [(Method::GET, 3), (Method::POST, 1)] {
        fake.answering(&[]);
        let begun = Instant::now();
        let slow = service.send(caller, method.clone(), "/", None, None).await;
        let Err(error) = slow else { panic!("an answer arrived in time") };
        assert!(matches!(error, Error::Unreachable { connected: true, .. }), "{error}");
        assert_eq!(fake.sent(), sent, "{method} may have been carried out");
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        let refusal = error.into_unavailable("network");
        assert!(!refusal.message.contains("127.0.0.1"), "{}", refusal.message);
        assert_eq!(refusal.retry_after, Some(1));
        assert_eq!(kilonova_wire::Fault::from(refusal).status(), 503);
    }
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("the socket is bound");
    let address = free.local_addr().expect("the socket has an address");
    drop(free);
    let nobody =
        Endpoint { endpoint_override: Some(format!("http://{address}")), ..Endpoint::default() };
    let service = Service::new(session(login(url, "x")), nobody, quick(2, 0));
    let refused = service.send(caller, Method::POST, "/", None, None).await;
    let Err(error) = refused else { panic!("nobody listens there") };
    assert!(matches!(error, Error::Unreachable { connected: false, .. }), "{error}");
}

#[tokio::test]
async fn each_kind_of_login_sends_its_own_body() {
    let (fake, url) = fake().await;
    let secret = "sesame";
    let ids = Ids { user: Some("uid".into()), project: Some("pid".into()), ..Ids::default() };
    let kinds = [
        Credentials::Password(login(url.clone(), secret), ids),
        Credentials::ApplicationCredential {
            auth_url: url.clone(),
            credential: CredentialName::Id("cid".into()),
            secret: secret.into(),
        },
        Credentials::ApplicationCredential {
            auth_url: url.clone(),
            credential: CredentialName::OfUser {
                name: "key".into(),
                user: Named::Name {
                    name: "nova".into(),
                    domain_id: None,
                    domain_name: "Default".into(),
                },
            },
            secret: secret.into(),
        },
        Credentials::Token {
            auth_url: format!("{url}/v3/"),
            token: secret.into(),
            project: Named::Id("pid".into()),
        },
    ];
    for one in kinds {
        assert!(!format!("{one:?}").contains(secret), "{one:?}");
        session(one).token().await.expect("the login succeeds");
    }
    let logins = fake.logins.lock().expect("the lock is not poisoned").clone();
    let project = json!({"project": {"id": "pid"}});
    assert_eq!(
        logins,
        [
            json!({"auth": {"scope": project, "identity": {"methods": ["password"],
                "password": {"user": {"id": "uid", "password": secret}}}}}),
            json!({"auth": {"identity": {"methods": ["application_credential"],
                "application_credential": {"id": "cid", "secret": secret}}}}),
            json!({"auth": {"identity": {"methods": ["application_credential"],
                "application_credential": {"name": "key", "secret": secret,
                    "user": {"name": "nova", "domain": {"name": "Default"}}}}}}),
            json!({"auth": {"scope": project, "identity": {"methods": ["token"],
                "token": {"id": secret}}}}),
        ]
    );
}

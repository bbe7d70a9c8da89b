//! A Cinder with its Keystone, in memory, behind a socket: as strict as the real one about the life cycle of an
//! attachment, and with failures on demand.
//!
//! ```text
//!   mod       the server: logins, faults on demand, the record of requests
//!   state     volumes, attachments, snapshots, types
//!   requests  the requests of the API
//! ```
//!
//! Tokens are plain text: `USER:PROJECT` belongs to a member of that project, `admin` to an admin, and `own-N` to the
//! N-th login of the service user, which has the roles `admin` and `service`. The fake serves the requests of a compute
//! service and refuses all others. It must never be more tolerant than Cinder.

mod requests;
mod state;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State as Shared;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use http_body_util::{Full, Limited};
use serde_json::{Value, json};

pub use state::{Backend, FakeAttachment, FakeVolume, State};

/// The newest microversion of the fake.
pub const NEWEST: u32 = 71;

/// How a request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// With this status; the request is not carried out.
    Status(u16),
    /// With this status and a page of a proxy; Cinder does not get the request.
    Proxy(u16),
    /// The connection is lost before the request is carried out.
    Lost,
    /// The request is carried out, and the connection is lost before the answer.
    AnswerLost,
    /// The request is carried out, and the answer is this status: a proxy gave up.
    AnswerStatus(u16),
    /// The answer is delayed by this time.
    Slow(Duration),
}

/// The requests that fail, and the number of remaining failures.
struct Fault {
    what: String,
    failure: Failure,
    /// Number of requests that succeed first.
    first: usize,
    left: usize,
}

#[derive(Default)]
struct Control {
    calls: Vec<String>,
    faults: Vec<Fault>,
    logins: usize,
    /// Expired tokens, which are accepted only with a service token.
    expired: Vec<String>,
    /// The project of tokens that do not name one.
    other_tokens: Option<String>,
    /// True if catalogs contain the login's project in the URL, as set by older installers.
    project_in_url: bool,
    observer: Option<Observer>,
}

/// Called with the kind of a request and whether it was carried out.
type Observer = Arc<dyn Fn(&str, bool) + Send + Sync>;

/// The running fake; cheap to clone. The server ends with the test's runtime.
#[derive(Clone)]
pub struct FakeCinder {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    control: Arc<Mutex<Control>>,
}

impl FakeCinder {
    /// Starts one on a free port.
    ///
    /// # Panics
    /// When the socket cannot be bound.
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("the socket is bound");
        let address = listener.local_addr().expect("the socket has an address");
        let fake = Self { address, state: Arc::default(), control: Arc::default() };
        let routes = Router::new().fallback(answer).with_state(fake.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        fake
    }

    /// The URL of its Keystone and of its list of versions.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its state.
    ///
    /// # Panics
    /// When a test panicked while it held the lock.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panicked")
    }

    /// Makes requests of a kind fail, such as `DELETE attachments` or `POST attachments
    /// os-complete`, or those for one object: `DELETE attachments/ID`.
    pub fn fail(&self, what: &str, failure: Failure, times: usize) {
        self.add_fault(what, failure, 0, times);
    }

    /// Makes one request fail, after `first` successful ones.
    pub fn fail_after(&self, what: &str, failure: Failure, first: usize) {
        self.add_fault(what, failure, first, 1);
    }

    fn add_fault(&self, what: &str, failure: Failure, first: usize, left: usize) {
        self.control().faults.push(Fault { what: what.to_owned(), failure, first, left });
    }

    /// Ends all faults.
    pub fn heal(&self) {
        self.control().faults.clear();
    }

    /// Accepts every token that does not name a project, such as a real one, as a token of this project.
    pub fn accept_tokens_of(&self, project: &str) {
        self.control().other_tokens = Some(project.to_owned());
    }

    /// Makes a token expire: it is accepted only together with a service token.
    pub fn expire(&self, token: &str) {
        self.control().expired.push(token.to_owned());
    }

    /// From the next login on, the catalog contains the login's project in the URL.
    pub fn put_project_into_url(&self) {
        self.control().project_in_url = true;
    }

    /// Calls `observer` with each request, before and after it is carried out.
    pub fn observe(&self, observer: impl Fn(&str, bool) + Send + Sync + 'static) {
        self.control().observer = Some(Arc::new(observer));
    }

    /// The requests since the last call, each as its kind and its tokens: `PUT attachments (ann:red, service)`.
    pub fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut self.control().calls)
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().expect("no holder panicked")
    }

    /// The failure of a request, if it fails.
    fn failure(&self, what: &str, exactly: &str) -> Option<Failure> {
        let mut control = self.control();
        let fits = |fault: &&mut Fault| fault.what == what || fault.what == exactly;
        let fault = control.faults.iter_mut().filter(|fault| fault.left > 0).find(fits)?;
        if fault.first > 0 {
            fault.first -= 1;
            return None;
        }
        fault.left -= 1;
        Some(fault.failure)
    }
}

/// The caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub project: String,
    pub admin: bool,
    /// True if the request carries a valid service token.
    pub service: bool,
    /// The microversion of the request: the minor number.
    pub version: u32,
}

impl Identity {
    fn of(headers: &HeaderMap, expired: &[String], other: Option<String>) -> Option<Self> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let token = text("x-auth-token")?;
        let service = text("x-service-token").is_some_and(|token| token.starts_with("own-"));
        if expired.iter().any(|one| one == token) && !service {
            return None;
        }
        let version = text("openstack-api-version").and_then(|text| {
            text.split(',').find_map(|one| one.trim().strip_prefix("volume 3.")?.parse().ok())
        });
        let (project, admin) = match token.split_once(':') {
            Some((_, project)) => (project.to_owned(), false),
            None if token.starts_with("own-") => ("service".to_owned(), true),
            None if token == "admin" => ("admin".to_owned(), true),
            None => (other?, false),
        };
        Some(Self { project, admin, service, version: version.unwrap_or(0) })
    }
}

/// The kind of a request: the method, the collection, and the action of a body.
fn kind(method: &Method, path: &str, body: &Value) -> String {
    let mut parts = path.trim_matches('/').split('/');
    let collection = parts.next().unwrap_or_default();
    let rest: Vec<&str> = parts.collect();
    let action = match rest.as_slice() {
        [.., "action"] => body.as_object().and_then(|body| body.keys().next()).cloned(),
        ["detail"] => Some("detail".to_owned()),
        _ => None,
    };
    match action {
        Some(action) => format!("{method} {collection} {action}"),
        None => format!("{method} {collection}"),
    }
}

async fn answer(
    Shared(fake): Shared<FakeCinder>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    match uri.path() {
        "/v3/auth/tokens" => return log_in(&fake, &body),
        "/" => return versions(),
        _ => {}
    }
    let Some(path) = uri.path().strip_prefix("/v3/") else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let parsed = if body.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(&body) };
    let Ok(parsed) = parsed else {
        return refusal(400, "badRequest", "Malformed request body").into_response();
    };
    let collections = ["volumes", "attachments", "snapshots", "types", "limits"];
    let first = path.split('/').next().unwrap_or_default();
    let (in_url, path) = match collections.contains(&first) {
        true => (None, path.to_owned()),
        false => {
            let (project, rest) = path.split_once('/').unwrap_or((path, ""));
            (Some(project.to_owned()), rest.to_owned())
        }
    };
    let what = kind(&method, &path, &parsed);
    let (expired, other) = {
        let control = fake.control();
        (control.expired.clone(), control.other_tokens.clone())
    };
    let identity = Identity::of(&headers, &expired, other);
    let token = headers.get("x-auth-token").and_then(|value| value.to_str().ok()).unwrap_or("-");
    let service = if headers.contains_key("x-service-token") { ", service" } else { "" };
    fake.control().calls.push(format!("{what} ({token}{service})"));
    let Some(identity) = identity else {
        let message = "The request you have made requires authentication.";
        let error = json!({"error": {"code": 401, "title": "Unauthorized", "message": message}});
        return (StatusCode::UNAUTHORIZED, axum::Json(error)).into_response();
    };
    if identity.version > NEWEST {
        return refusal(406, "computeFault", "Version is not supported by the API").into_response();
    }
    if in_url.is_some_and(|project| project != identity.project) {
        return refusal(400, "badRequest", "Malformed request url").into_response();
    }
    let observer = fake.control().observer.clone();
    let failure = fake.failure(&what, &format!("{method} {path}"));
    if let Some(observer) = &observer {
        observer(&what, false);
    }
    match failure {
        Some(Failure::Status(status)) => {
            let kind = match status {
                400 => "badRequest",
                404 => "itemNotFound",
                _ => "computeFault",
            };
            return refusal(status, kind, "The server has failed.").into_response();
        }
        Some(Failure::Proxy(status)) => {
            let status = StatusCode::from_u16(status).expect("a status");
            return (status, "<html><body>The proxy has no backend.</body></html>").into_response();
        }
        Some(Failure::Lost) => return broken(),
        Some(Failure::Slow(time)) => tokio::time::sleep(time).await,
        Some(Failure::AnswerLost | Failure::AnswerStatus(_)) | None => {}
    }
    let query = uri.query().unwrap_or_default();
    let request = requests::Request { method: &method, path: &path, query, body: &parsed };
    let answered = requests::answer(&mut fake.state(), &identity, &request);
    if let Some(observer) = &observer {
        observer(&what, true);
    }
    match failure {
        Some(Failure::AnswerLost) => return broken(),
        Some(Failure::AnswerStatus(status)) => {
            return refusal(status, "computeFault", "The server has failed.").into_response();
        }
        Some(Failure::Status(_) | Failure::Proxy(_) | Failure::Lost | Failure::Slow(_)) | None => {}
    }
    let id = [("x-openstack-request-id", "req-of-cinder")];
    match answered {
        (status, Value::Null) => (status, id).into_response(),
        (status, body) => (status, id, axum::Json(body)).into_response(),
    }
}

/// A refusal in Cinder's form.
pub(crate) fn refusal(status: u16, kind: &str, message: &str) -> (StatusCode, axum::Json<Value>) {
    let code = StatusCode::from_u16(status).expect("a status");
    (code, axum::Json(json!({kind: {"code": status, "message": message}})))
}

/// A truncated answer, from which the client cannot tell the outcome.
fn broken() -> Response {
    let text = Full::<Bytes>::from("this answer is longer than its limit");
    Response::new(Body::new(Limited::new(text, 1)))
}

fn versions() -> Response {
    let version = json!({
        "id": "v3.0", "status": "CURRENT", "version": format!("3.{NEWEST}"), "min_version": "3.0",
        "links": [], "media-types": [], "updated": "2023-08-31T00:00:00Z",
    });
    (StatusCode::MULTIPLE_CHOICES, axum::Json(json!({"versions": [version]}))).into_response()
}

fn log_in(fake: &FakeCinder, body: &Bytes) -> Response {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let user = &body["auth"]["identity"]["password"]["user"];
    if user["password"] != "secret" {
        let error = json!({"error": {"code": 401, "message": "Invalid user / password"}});
        return (StatusCode::UNAUTHORIZED, axum::Json(error)).into_response();
    }
    let (number, in_url) = {
        let mut control = fake.control();
        control.logins += 1;
        (control.logins, control.project_in_url)
    };
    let url = format!("{}/v3{}", fake.url(), if in_url { "/service" } else { "" });
    let endpoint = json!({"interface": "public", "region_id": "RegionOne", "url": url});
    let catalog = json!([{"type": "block-storage", "name": "cinder", "endpoints": [endpoint]}]);
    let token = json!({
        "expires_at": "2999-01-01T00:00:00.000000Z", "catalog": catalog,
        "project": {"id": "service", "name": "service"},
    });
    let answer = axum::Json(json!({"token": token}));
    (StatusCode::CREATED, [("x-subject-token", format!("own-{number}"))], answer).into_response()
}

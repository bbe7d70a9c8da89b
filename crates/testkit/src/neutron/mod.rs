//! A Neutron with its Keystone, in memory, behind a socket: as strict as the real one, and with
//! failures on demand. `crates/neutron/tests` compares it with a recording of the real one.
//!
//! ```text
//!   mod       the server: logins, faults on demand, the record of requests
//!   state     networks, subnets, ports, bindings, groups, quotas, and their visibility
//!   requests  the requests of the API
//! ```
//!
//! The fake serves the requests of a compute service and refuses all others. It must never be more tolerant than
//! Neutron.

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

pub use state::State;

/// The name of the service login, which has the roles `admin` and `service`.
pub const SERVICE_USER: &str = "nova";
/// Its password.
pub const PASSWORD: &str = "secret";

/// How a request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// With this status; the request is not carried out.
    Status(u16),
    /// The connection is lost before the request is carried out.
    Lost,
    /// The request is carried out, and the connection is lost before the answer.
    AnswerLost,
    /// The answer is delayed by this time.
    Slow(Duration),
}

/// The requests that fail, and the number of remaining failures.
struct Fault {
    method: Method,
    path: String,
    failure: Failure,
    /// Number of requests that succeed first.
    first: usize,
    left: usize,
}

#[derive(Default)]
struct Control {
    calls: Vec<String>,
    faults: Vec<Fault>,
    /// Number of requests until the fake dies, if [`FakeNeutron::die_after`] set one.
    last: Option<usize>,
}

/// The running fake; cheap to clone. The server ends with the test's runtime.
#[derive(Clone)]
pub struct FakeNeutron {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    control: Arc<Mutex<Control>>,
}

impl FakeNeutron {
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

    /// The URL of its Keystone, without a version.
    pub fn auth_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its state.
    ///
    /// # Panics
    /// When a test panicked while it held the lock.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panicked")
    }

    /// A token of a member of the project.
    pub fn member(project: &str) -> String {
        format!("member:{project}")
    }

    /// Makes the next requests fail: `fail("PUT /ports", …)` matches each `PUT` below `/ports`.
    ///
    /// # Panics
    /// When `what` is not a method and a path.
    pub fn fail(&self, what: &str, failure: Failure, times: usize) {
        self.add_fault(what, failure, 0, times);
    }

    /// Makes one request fail, after `first` successful ones.
    pub fn fail_after(&self, what: &str, failure: Failure, first: usize) {
        self.add_fault(what, failure, first, 1);
    }

    fn add_fault(&self, what: &str, failure: Failure, first: usize, left: usize) {
        let (method, path) = what.split_once(' ').expect("a method and a path");
        let method = method.parse().expect("a method");
        let fault = Fault { method, path: path.to_owned(), failure, first, left };
        self.control().faults.push(fault);
    }

    /// Kills the fake after this many requests; the last one is not answered. [`FakeNeutron::heal`] restarts it.
    pub fn die_after(&self, requests: usize) {
        self.control().last = Some(requests);
    }

    /// True if it is dead.
    pub fn is_dead(&self) -> bool {
        self.control().last == Some(0)
    }

    /// Ends all faults.
    pub fn heal(&self) {
        let mut control = self.control();
        control.faults.clear();
        control.last = None;
    }

    /// The requests since the last call, each as its method, its path and the role of its token.
    pub fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut self.control().calls)
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().expect("no holder panicked")
    }

    /// The failure of a request, if it fails.
    fn failure(&self, method: &Method, path: &str) -> Option<Failure> {
        let mut control = self.control();
        match &mut control.last {
            Some(0) => return Some(Failure::Lost),
            Some(last) => {
                *last -= 1;
                if *last == 0 {
                    return Some(Failure::AnswerLost);
                }
            }
            None => {}
        }
        let fault = control.faults.iter_mut().find(|fault| {
            fault.left > 0 && fault.method == *method && path.starts_with(&fault.path)
        })?;
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
}

impl Identity {
    fn of(headers: &HeaderMap) -> Option<Self> {
        let token = headers.get("x-auth-token")?.to_str().ok()?;
        let (role, project) = token.split_once(':').unwrap_or((token, ""));
        match role {
            "admin" => Some(Self { project: "service".into(), admin: true }),
            // The users of the compute service's tests.
            "member" | "ann" | "bob" => Some(Self { project: project.to_owned(), admin: false }),
            _ => None,
        }
    }
}

async fn answer(
    Shared(fake): Shared<FakeNeutron>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if uri.path() == "/v3/auth/tokens" {
        return log_in(&fake, &body);
    }
    let Some(path) = uri.path().strip_prefix("/v2.0") else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let identity = Identity::of(&headers);
    let role = match &identity {
        Some(identity) if identity.admin => "admin",
        Some(_) => "member",
        None => "nobody",
    };
    fake.control().calls.push(format!("{method} {path} ({role})"));
    let Some(identity) = identity else {
        let message = "The request you have made requires authentication.";
        let error = json!({"error": {"code": 401, "title": "Unauthorized", "message": message}});
        return (StatusCode::UNAUTHORIZED, axum::Json(error)).into_response();
    };
    let failure = fake.failure(&method, path);
    match failure {
        Some(Failure::Status(status)) => {
            let status = StatusCode::from_u16(status).expect("a status");
            let error = json!({"NeutronError": {
                "type": "HTTPInternalServerError",
                "message": "Request Failed: internal server error while processing your request.",
                "detail": "",
            }});
            return (status, axum::Json(error)).into_response();
        }
        Some(Failure::Lost) => return broken(),
        Some(Failure::Slow(time)) => tokio::time::sleep(time).await,
        Some(Failure::AnswerLost) | None => {}
    }
    let query = uri.query().unwrap_or_default();
    let answered = requests::answer(&mut fake.state(), &identity, &method, path, query, &body);
    if failure == Some(Failure::AnswerLost) {
        return broken();
    }
    match answered {
        (status, Value::Null) => status.into_response(),
        (status, body) => (status, axum::Json(body)).into_response(),
    }
}

/// A truncated answer, from which the client cannot tell the outcome.
fn broken() -> Response {
    let text = Full::<Bytes>::from("this answer is longer than its limit");
    Response::new(Body::new(Limited::new(text, 1)))
}

fn log_in(fake: &FakeNeutron, body: &Bytes) -> Response {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let user = &body["auth"]["identity"]["password"]["user"];
    if user["password"] != PASSWORD || user["name"] != SERVICE_USER {
        let error = json!({"error": {"code": 401, "message": "Invalid user / password"}});
        return (StatusCode::UNAUTHORIZED, axum::Json(error)).into_response();
    }
    let url = fake.auth_url();
    let endpoint = json!({"interface": "internal", "region_id": "RegionOne", "url": url});
    let catalog = json!([{"type": "network", "name": "neutron", "endpoints": [endpoint]}]);
    let token = json!({"expires_at": "2999-01-01T00:00:00.000000Z", "catalog": catalog});
    let answer = axum::Json(json!({"token": token}));
    (StatusCode::CREATED, [("x-subject-token", "admin:service")], answer).into_response()
}

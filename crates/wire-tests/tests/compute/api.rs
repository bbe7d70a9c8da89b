//! A client that checks every response against the document, and records its calls.

use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use kilonova_wire_tests::{Coverage, Document, Side};
use serde_json::{Value, json};

use crate::compute::cloud::Cloud;

pub const ADMIN: &str = "admin";
/// Every microversion.
pub const ALL: RangeInclusive<u32> = 1..=104;

/// An accepted request, from which invalid ones are derived.
pub struct Taken {
    pub method: String,
    pub path: String,
    pub minor: u32,
    pub body: Value,
}

/// The shared state of all calls of a test.
pub struct Notes {
    pub document: Document,
    pub coverage: Mutex<Coverage>,
    pub objections: Mutex<Vec<String>>,
    pub taken: Mutex<Vec<Taken>>,
    /// True if servers are kept for further requests.
    pub keep: bool,
}

impl Notes {
    pub fn new() -> Self {
        Self {
            document: Document::compute().expect("the document is valid"),
            coverage: Mutex::default(),
            objections: Mutex::default(),
            taken: Mutex::default(),
            keep: false,
        }
    }

    pub fn object(&self, text: String) {
        self.objections.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }
}

/// A client of one microversion.
#[derive(Clone, Copy)]
pub struct Api<'a> {
    pub cloud: &'a Cloud,
    pub notes: &'a Notes,
    pub minor: u32,
    /// The service of the cloud that it calls.
    pub router: &'a Router,
}

/// The path of actions in the document.
pub const ACTION: &str = "/v2.1/servers/{id}/action";

impl<'a> Api<'a> {
    pub fn of(cloud: &'a Cloud, notes: &'a Notes, minor: u32) -> Self {
        Self { cloud, notes, minor, router: &cloud.router }
    }

    /// The same client, for another router of the cloud.
    pub fn with(self, router: impl Fn(&'a Cloud) -> &'a Router) -> Self {
        Self { router: router(self.cloud), ..self }
    }

    /// True if one of these actions changes at this microversion.
    pub fn changes(&self, actions: &[&str]) -> bool {
        let operation = self.notes.document.find("POST", ACTION).expect("the document has actions");
        actions.iter().any(|action| operation.boundaries_of(action).contains(&self.minor))
    }

    /// Records a violation unless the condition holds.
    pub fn expect(&self, holds: bool, what: &str) {
        if !holds {
            self.notes.object(format!("{} at 2.{}: wrong: {what}", self.cloud.store, self.minor));
        }
    }

    /// Calls an action and expects a refusal with this status.
    pub async fn refused(&self, what: &str, body: Value, code: u16) {
        let (method, path) = what.split_once(' ').expect("the text is METHOD PATH");
        let path = format!("/v2.1{path}");
        let action = body.as_object().and_then(|body| body.keys().next().cloned());
        let action = action.expect("the body names an action");
        let sent = Some(body);
        let (got, answer) = exchange(self.cloud, ADMIN, self.minor, method, &path, &sent).await;
        if got != code {
            let shown = format!("{} {action} at 2.{}", self.cloud.store, self.minor);
            self.notes.object(format!("{shown}: {got}, not {code}: {answer}"));
        }
        let mut coverage = self.notes.coverage.lock().unwrap_or_else(PoisonError::into_inner);
        coverage.action(&action, self.minor, Some(code));
    }

    /// Deletes a server, unless servers are kept.
    pub async fn gone(&self, id: &str) {
        if !self.notes.keep {
            self.ask(&format!("DELETE /servers/{id}"), ALL, 204).await;
        }
    }

    pub async fn host_of(&self, id: &str) -> String {
        let path = format!("/v2.1/servers/{id}");
        let (_, answer) = exchange(self.cloud, ADMIN, 1, "GET", &path, &None).await;
        answer["server"]["OS-EXT-SRV-ATTR:host"].as_str().expect("the server has a host").to_owned()
    }

    /// The host that does not run the server.
    pub async fn other_host(&self, id: &str) -> &'static str {
        if self.host_of(id).await == "h1" { "h2" } else { "h1" }
    }

    /// Calls an operation without a body. Expects `status` in versions that have the operation, and
    /// 404 (result `None`) in the others.
    pub async fn ask(&self, what: &str, within: RangeInclusive<u32>, status: u16) -> Option<Value> {
        self.call(what, None, within, status).await
    }

    /// [`Api::ask`] with a body.
    pub async fn send(
        &self,
        what: &str,
        body: Value,
        within: RangeInclusive<u32>,
        status: u16,
    ) -> Option<Value> {
        self.call(what, Some(body), within, status).await
    }

    async fn call(
        &self,
        what: &str,
        body: Option<Value>,
        within: RangeInclusive<u32>,
        status: u16,
    ) -> Option<Value> {
        let (method, path) = what.split_once(' ').expect("the text is METHOD PATH");
        let path = format!("/v2.1{path}");
        let bare = path.split('?').next().unwrap_or(&path);
        let shown = format!("{} {method} {path} at 2.{}", self.cloud.store, self.minor);
        let operation = self.notes.document.find(method, bare);
        let operation = operation
            .unwrap_or_else(|| panic!("{shown}: the document does not have the operation"));
        let (got, answer) = sent(self.router, ADMIN, self.minor, method, &path, &body).await;
        let mut coverage = self.notes.coverage.lock().unwrap_or_else(PoisonError::into_inner);
        if !within.contains(&self.minor) {
            coverage.absent(&operation.name(), self.minor);
            drop(coverage);
            if got != 404 {
                self.notes.object(format!("{shown}: {got}, not 404: {answer}"));
            }
            return None;
        }
        if got != status {
            drop(coverage);
            eprintln!("{shown}: {got}, not {status}: {answer}");
            self.notes.object(format!("{shown}: {got}, not {status}: {answer}"));
            return None;
        }
        if !(200..300).contains(&got) {
            return Some(answer);
        }
        coverage.done(&operation.name(), self.minor);
        let action = body
            .as_ref()
            .filter(|_| bare.ends_with("/action") && bare.contains("/servers/"))
            .and_then(Value::as_object)
            .and_then(|body| body.keys().next().cloned());
        if let Some(action) = &action {
            coverage.action(action, self.minor, None);
        }
        drop(coverage);
        let action = action.as_deref();
        let judge = |side, body: &Value| {
            self.notes.document.objection(operation, side, self.minor, action, body)
        };
        if let Some(why) = judge(Side::Answer, &answer).filter(|_| !answer.is_null()) {
            self.notes.object(format!("{shown}: {why}"));
        }
        // The document has one response for all versions; upstream returns no body from 2.14.
        let bare = action == Some("evacuate") && self.minor >= 14;
        if answer.is_null() && !bare && operation.schema(Side::Answer, self.minor, action).is_some()
        {
            self.notes.object(format!("{shown}: no body"));
        }
        if let Some(body) = body {
            if let Some(why) = judge(Side::Request, &body) {
                self.notes.object(format!("{shown}: upstream would refuse {body}: {why}"));
            }
            let taken = Taken { method: method.into(), path, minor: self.minor, body };
            self.notes.taken.lock().unwrap_or_else(PoisonError::into_inner).push(taken);
        }
        Some(answer)
    }

    /// Creates a flavor with a unique id.
    pub async fn flavor(&self, id: &str) -> String {
        let id = format!("{id}-{}", self.minor);
        let flavor = json!({"id": id, "name": id, "ram": 64, "vcpus": 1, "disk": 1});
        self.send("POST /flavors", json!({"flavor": flavor}), ALL, 200).await;
        id
    }

    /// Creates a server and waits until it is `ACTIVE`.
    pub async fn server(&self, name: &str, flavor: &str) -> String {
        let mut sent = json!({
            "name": name, "flavorRef": flavor, "imageRef": self.cloud.image,
            "metadata": {"k": "v"},
        });
        if self.minor >= 37 {
            sent["networks"] = json!("none");
        }
        if self.minor >= 52 {
            sent["tags"] = json!(["red"]);
        }
        let made = self.send("POST /servers", json!({"server": sent}), ALL, 202).await;
        let made = made.expect("the server is accepted");
        let id = made["server"]["id"].as_str().expect("the server has an id").to_owned();
        self.becomes(&id, "ACTIVE").await;
        id
    }

    /// Waits until the server has no task, and checks its status.
    pub async fn becomes(&self, id: &str, status: &str) {
        let path = format!("/v2.1/servers/{id}");
        let mut last = Value::Null;
        for _ in 0..4000 {
            let (_, answer) = exchange(self.cloud, ADMIN, 1, "GET", &path, &None).await;
            let server = &answer["server"];
            if server["status"] == status && server["OS-EXT-STS:task_state"].is_null() {
                return;
            }
            assert!(server["status"] != "ERROR" || status == "ERROR", "{answer}");
            last = answer;
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let history = format!("{path}/os-instance-actions");
        let (_, history) = exchange(self.cloud, ADMIN, 84, "GET", &history, &None).await;
        panic!("server {id} did not become {status} in time: {last} {history}");
    }
}

/// Sends one request and returns the response; checks the form of faults.
pub async fn exchange(
    cloud: &Cloud,
    token: &str,
    minor: u32,
    method: &str,
    path: &str,
    body: &Option<Value>,
) -> (u16, Value) {
    sent(&cloud.router, token, minor, method, path, body).await
}

async fn sent(
    router: &Router,
    token: &str,
    minor: u32,
    method: &str,
    path: &str,
    body: &Option<Value>,
) -> (u16, Value) {
    let bytes = body.as_ref().map_or_else(Body::empty, |body| Body::from(body.to_string()));
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "cloud:1234")
        .header("x-auth-token", token)
        .header("openstack-api-version", format!("compute 2.{minor}"))
        .body(bytes)
        .expect("the request is valid");
    let answer = kilonova_testkit::http::send(router, request).await;
    assert!(answer.bytes.is_empty() || !answer.body.is_null(), "{method} {path}: not JSON");
    let (status, answer) = (answer.status.as_u16(), answer.body);
    if status >= 400 {
        let fault = answer.as_object().and_then(|fault| fault.values().next());
        let fault = fault.unwrap_or_else(|| panic!("{method} {path}: {status} without a fault"));
        assert_eq!(fault["code"], status, "{method} {path}: {answer}");
        assert!(fault["message"].as_str().is_some_and(|text| !text.is_empty()), "{answer}");
    }
    (status, answer)
}

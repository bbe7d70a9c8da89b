//! Calls the service as a client would.

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use kilonova_compute::Compute;
use kilonova_ids::{HostId, ProviderId};
use kilonova_placement::World;
use kilonova_store::{Error, Store, params};
use kilonova_testkit::Guard;
use kilonova_wire::noauth::NoAuth;
use serde_json::{Value, json};
use std::sync::Arc;
use tower::ServiceExt;

/// An admin, and two users of two projects.
pub const ADMIN: &str = "admin";
pub const ANN: &str = "ann:red";
pub const BOB: &str = "bob:blue";

pub struct Api {
    pub store: Store,
    pub compute: Compute,
    router: Router,
    _guard: Guard,
}

pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Answer {
    /// The message of a fault.
    pub fn message(&self) -> &str {
        let fault = self.body.as_object().and_then(|body| body.values().next());
        fault.and_then(|fault| fault["message"].as_str()).unwrap_or_default()
    }

    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.body);
        self.body
    }

    /// Checks a refusal and that its message says what is wrong.
    pub fn refused(self, status: u16, part: &str) {
        assert_eq!(self.status.as_u16(), status, "{}", self.body);
        assert!(self.message().contains(part), "{:?} does not say {part:?}", self.message());
    }
}

/// The service on each store.
pub async fn apis() -> Vec<Api> {
    let mut apis = Vec::new();
    let mut migrations = kilonova_compute::MIGRATIONS.to_vec();
    migrations.push(kilonova_flow::MIGRATIONS);
    for (_, store, guard) in kilonova_testkit::stores(&migrations).await {
        let compute = Compute::open(store.clone(), World::new()).await.expect("opens");
        let routes = kilonova_compute::routes(compute.clone());
        let router =
            kilonova_wire::mount(routes, kilonova_compute::service(), "/compute", Arc::new(NoAuth));
        apis.push(Api { store, compute, router, _guard: guard });
    }
    apis
}

impl Api {
    pub async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.expect("infallible");
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        let body = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes).expect("JSON")
        };
        Answer { status: parts.status, headers: parts.headers, body }
    }

    /// `call(ANN, "2.61", "GET /flavors", None)`; paths are below `/v2.1`.
    pub async fn call(
        &self,
        token: &str,
        version: &str,
        what: &str,
        body: Option<Value>,
    ) -> Answer {
        let (method, path) = what.split_once(' ').expect("a method and a path");
        let request = Request::builder()
            .method(method)
            .uri(format!("/v2.1{path}"))
            .header("host", "cloud:1234")
            .header("x-auth-token", token)
            .header("openstack-api-version", format!("compute {version}"))
            .body(body.map_or_else(Body::empty, |body| Body::from(body.to_string())))
            .expect("a request");
        self.send(request).await
    }

    pub async fn get(&self, token: &str, version: &str, path: &str) -> Answer {
        self.call(token, version, &format!("GET {path}"), None).await
    }

    pub async fn admin(&self, version: &str, what: &str, body: Value) -> Answer {
        self.call(ADMIN, version, what, Some(body)).await
    }

    pub async fn flavor(&self, id: &str, more: Value) -> Value {
        let mut flavor = json!({"id": id, "name": id, "ram": 64, "vcpus": 1, "disk": 1});
        if let (Some(flavor), Value::Object(more)) = (flavor.as_object_mut(), more) {
            flavor.extend(more);
        }
        self.admin("2.61", "POST /flavors", json!({"flavor": flavor})).await.expect(200)
    }

    /// A registered host, heard of at `seen`.
    pub async fn host(&self, name: &str, seen: i64) -> i64 {
        let new = kilonova_compute::db::hosts::NewHost {
            id: HostId::new_v4(),
            host: name.into(),
            root_provider: ProviderId::new_v4(),
            hypervisor_type: "simulated".into(),
            hypervisor_version: 1000,
            host_ip: "127.0.0.1".into(),
            vcpus: 8,
            memory_mb: 8192,
            disk_gb: 100,
        };
        self.store
            .write(move |tx| kilonova_compute::db::hosts::register(tx, &new, seen))
            .await
            .expect("registers")
    }

    /// A server's row, as far as sums over servers look at it.
    pub async fn server(&self, project: &str, user: &str, host: &str, vcpus: i64, memory_mb: i64) {
        let id = kilonova_ids::ServerId::new_v4();
        let (project, user, host) = (project.to_owned(), user.to_owned(), host.to_owned());
        self.store
            .write(move |tx| {
                let spec = json!({"flavor": {"disk": 5, "ephemeral": 1, "swap": 1}}).to_string();
                tx.execute(
                    "INSERT INTO servers (id, project_id, user_id, name, host, vm_state,
                        power_state, vcpus, memory_mb, spec, metadata, tags, created_at, updated_at)
                     VALUES (?1, ?2, ?3, 's', ?4, 'active', 1, ?5, ?6, ?7, '{}', '[]', 0, 0)",
                    params![id, &project, &user, &host, vcpus, memory_mb, spec],
                )?;
                Ok::<_, Error>(())
            })
            .await
            .expect("inserts");
    }
}

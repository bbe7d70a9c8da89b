//! The service on each database, and an HTTP client.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use kilonova_network::{MIGRATIONS, Networks, ledger, routes, service};
use kilonova_store::Store;
use kilonova_store::testing::Meter;
use kilonova_testkit::Guard;
use kilonova_wire::noauth::NoAuth;
use serde_json::{Value, json};

#[derive(Clone)]
pub struct Api {
    pub store: Store,
    router: Router,
    _guard: Arc<Guard>,
}

pub async fn apis() -> Vec<Api> {
    apis_with(|networks| networks).await
}

/// [`apis`] with configured services.
pub async fn apis_with(set: impl Fn(Networks) -> Networks) -> Vec<Api> {
    apis_on(|store| store, set).await
}

/// [`apis`] with a meter that counts their statements and round trips.
pub async fn metered_apis(meter: &Meter) -> Vec<Api> {
    apis_on(|store| store.with_meter(meter.clone()), |networks| networks).await
}

async fn apis_on(on: impl Fn(Store) -> Store, set: impl Fn(Networks) -> Networks) -> Vec<Api> {
    let api = |(_, store, guard): (&'static str, Store, Guard)| {
        let store = on(store);
        let routes = routes(set(Networks::new(store.clone())));
        let service = kilonova_wire::mount(routes, service(), "/network", Arc::new(NoAuth));
        let service = kilonova_network::reached_with_suffix(service);
        let router = Router::new().nest("/network", service);
        Api { store, router, _guard: Arc::new(guard) }
    };
    kilonova_testkit::stores(&[MIGRATIONS]).await.into_iter().map(api).collect()
}

impl Api {
    async fn send(&self, request: Request<Body>) -> (u16, Value) {
        let answer = kilonova_testkit::http::send(&self.router, request).await;
        (answer.status.as_u16(), answer.body)
    }

    pub async fn anonymous(&self, path: &str) -> (u16, Value) {
        let path = format!("/network{}", path.trim_end_matches('/'));
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    /// Sends a request; the path is relative to `/v2.0`.
    pub async fn call(&self, token: &str, what: &str, body: Option<Value>) -> (u16, Value) {
        self.call_with(&[("x-auth-token", token)], what, body).await
    }

    /// [`Api::call`] with exactly these roles, without implied ones.
    pub async fn call_as(
        &self,
        (token, roles): (&str, &str),
        what: &str,
        body: Option<Value>,
    ) -> (u16, Value) {
        self.call_with(&[("x-auth-token", token), ("x-roles", roles)], what, body).await
    }

    /// [`Api::call`] with a header `If-Match`.
    pub async fn call_if(
        &self,
        condition: &str,
        token: &str,
        what: &str,
        body: Option<Value>,
    ) -> (u16, Value) {
        self.call_with(&[("x-auth-token", token), ("if-match", condition)], what, body).await
    }

    async fn call_with(
        &self,
        headers: &[(&str, &str)],
        what: &str,
        body: Option<Value>,
    ) -> (u16, Value) {
        let (method, path) = what.split_once(' ').unwrap();
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let request = Request::builder().method(method).uri(format!("/network/v2.0{path}"));
        let request =
            headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        self.send(request.body(body).unwrap()).await
    }

    pub async fn ok(&self, token: &str, what: &str, body: Option<Value>) -> Value {
        let (status, body) = self.call(token, what, body).await;
        assert_eq!(status, 200, "{what}: {body}");
        body
    }

    pub async fn none(&self, token: &str, what: &str) {
        let (status, body) = self.call(token, what, None).await;
        assert_eq!(status, 204, "{what}: {body}");
    }

    pub async fn refused(
        &self,
        token: &str,
        what: &str,
        body: Option<Value>,
        status: u16,
        kind: &str,
    ) {
        let sent = body.clone();
        let (got, body) = self.call(token, what, body).await;
        let error = &body["NeutronError"];
        assert_eq!((got, &error["type"]), (status, &json!(kind)), "{what} {sent:?}: {body}");
        assert!(!error["message"].as_str().unwrap().is_empty());
    }

    /// Creates a resource and returns it.
    pub async fn make(&self, token: &str, member: &str, body: Value) -> Value {
        let what = format!("POST /{}s", member.replace('_', "-"));
        let (status, mut body) = self.call(token, &what, Some(json!({member: body}))).await;
        assert_eq!(status, 201, "{what}: {body}");
        body[member].take()
    }

    /// Creates a network with these subnets and returns its id.
    pub async fn network(&self, token: &str, cidrs: &[&str]) -> String {
        let id = self.make(token, "network", json!({})).await["id"].as_str().unwrap().to_owned();
        for cidr in cidrs {
            let version = if cidr.contains(':') { 6 } else { 4 };
            let subnet = json!({"network_id": id, "cidr": cidr, "ip_version": version,
                "enable_dhcp": false});
            self.make(token, "subnet", subnet).await;
        }
        id
    }

    pub async fn audit(&self) {
        let broken = kilonova_testkit::audit::broken(&self.store, &[ledger::AUDIT]).await;
        assert_eq!(broken, Vec::<String>::new());
    }
}

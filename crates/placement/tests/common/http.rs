//! The service in process, called as a client calls it.

use std::sync::Arc;

use axum::Router;
use kilonova_placement::{Placement, World};
use kilonova_store::Store;
pub use kilonova_testkit::http::Answer;
use kilonova_testkit::http::{self, request};
use kilonova_wire::noauth::NoAuth;
use serde_json::Value;

/// The mounted service, its store and its in-memory copy.
pub struct Api {
    pub router: Router,
    pub world: World,
}

impl Api {
    pub fn new(store: &Store) -> Self {
        let world = World::new();
        // With the older defaults an administrator may do everything, including a reshape.
        let defaults = kilonova_policy::Defaults { new_only: false, scope: true };
        let policy = kilonova_placement::policy(&[], defaults).expect("the rules are valid");
        let policy = Arc::new(policy);
        let state = Placement { store: store.clone(), world: world.clone(), policy, manager: None };
        let router = kilonova_wire::mount(
            kilonova_placement::routes(state),
            kilonova_placement::service(),
            "/placement",
            Arc::new(NoAuth),
        );
        Self { router, world }
    }

    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> Answer {
        let mut headers = [&[("host", "here")], headers].concat();
        if body.is_some() {
            headers.push(("content-type", "application/json"));
        }
        let request = request(&format!("{method} {path}"), &headers, body.as_ref());
        http::send(&self.router, request).await
    }

    /// As an administrator, in version 1.`minor`.
    pub async fn at(&self, minor: u32, method: &str, path: &str, body: Option<Value>) -> Answer {
        let version = format!("placement 1.{minor}");
        let headers = [("x-auth-token", "admin"), ("openstack-api-version", version.as_str())];
        self.send(method, path, &headers, body).await
    }

    /// As an administrator, in the newest version.
    pub async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        self.at(39, method, path, body).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, None).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.ask("PUT", path, Some(body)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.ask("POST", path, Some(body)).await
    }

    /// Creates a provider with inventories and returns its UUID.
    pub async fn provider(
        &self,
        name: &str,
        parent: Option<&str>,
        inventories: &[(&str, i64)],
    ) -> String {
        let mut body = serde_json::json!({"name": name});
        if let Some(parent) = parent {
            body["parent_provider_uuid"] = parent.into();
        }
        let made = self.post("/resource_providers", body).await.is(200);
        let uuid = made.body["uuid"].as_str().expect("the provider has a uuid").to_owned();
        if !inventories.is_empty() {
            let mut all = serde_json::json!({});
            for (class, total) in inventories {
                all[class] = serde_json::json!({"total": total});
            }
            let body = serde_json::json!({"resource_provider_generation": 0, "inventories": all});
            self.put(&format!("/resource_providers/{uuid}/inventories"), body).await.is(200);
        }
        uuid
    }
}

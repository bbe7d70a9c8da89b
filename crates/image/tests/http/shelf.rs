//! A service on each database with its own directory, and helpers to call it.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use kilonova_image::{ImageOptions, Images, MIGRATIONS, routes, service, statements};
use kilonova_store::Store;
pub use kilonova_testkit::http::Answer as Reply;
use kilonova_wire::noauth::NoAuth;
use serde_json::{Value, json};

pub const ADMIN: &str = "admin";
pub const ANNA: &str = "anna:red";
pub const BEN: &str = "ben:blue";
const PATCH_TYPE: &str = "application/openstack-images-v2.1-json-patch";

pub struct Shelf {
    pub images: Images,
    pub store: Store,
    pub directory: PathBuf,
    pub router: Router,
    _guard: (kilonova_testkit::Guard, Removed),
}

struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

pub async fn shelves() -> Vec<Shelf> {
    shelves_with(ImageOptions { size_cap: 1 << 20, ..ImageOptions::default() }).await
}

pub async fn shelves_with(options: ImageOptions) -> Vec<Shelf> {
    let mut shelves = Vec::new();
    for (_, store, guard) in kilonova_testkit::stores(&[MIGRATIONS]).await {
        let directory = std::env::temp_dir().join(format!("kilonova-{}", uuid::Uuid::new_v4()));
        let images = Images::open_with(store.clone(), &directory, options.clone()).await.unwrap();
        let routes = routes(images.clone());
        let routes = kilonova_wire::mount(routes, service(), "/image", Arc::new(NoAuth));
        let router = Router::new().nest("/image", routes);
        let guard = (guard, Removed(directory.clone()));
        shelves.push(Shelf { images, store, directory, router, _guard: guard });
    }
    shelves
}

impl Shelf {
    /// Sends a request as `user:project`; as `user:` without a project.
    pub async fn call(
        &self,
        who: &str,
        method: &str,
        path: &str,
        kind: &str,
        body: impl Into<Body>,
    ) -> Reply {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/image{path}"))
            .header("host", "cloud.example")
            .header("accept", "application/json")
            .header("content-type", kind);
        if !who.is_empty() {
            request = request.header("x-auth-token", who);
        }
        if who.ends_with(':') {
            request = request.header("x-project-id", "");
        }
        kilonova_testkit::http::send(&self.router, request.body(body.into()).unwrap()).await
    }

    pub async fn get(&self, who: &str, path: &str) -> Reply {
        self.call(who, "GET", path, "application/json", Body::empty()).await
    }

    pub async fn post(&self, who: &str, fields: Value) -> Reply {
        self.call(who, "POST", "/v2/images", "application/json", fields.to_string()).await
    }

    pub async fn patch(&self, who: &str, id: &str, steps: Value) -> Reply {
        self.call(who, "PATCH", &format!("/v2/images/{id}"), PATCH_TYPE, steps.to_string()).await
    }

    pub async fn delete(&self, who: &str, id: &str) -> Reply {
        self.call(who, "DELETE", &format!("/v2/images/{id}"), "", Body::empty()).await
    }

    pub async fn put(&self, who: &str, id: &str, data: impl Into<Body>) -> Reply {
        let path = format!("/v2/images/{id}/file");
        self.call(who, "PUT", &path, "application/octet-stream", data).await
    }

    /// Creates a queued image with more fields; returns its id.
    pub async fn make(&self, who: &str, more: Value) -> String {
        let mut fields = json!({"name": "i", "disk_format": "raw", "container_format": "bare"});
        for (key, value) in more.as_object().unwrap() {
            fields[key] = value.clone();
        }
        let reply = self.post(who, fields).await;
        assert_eq!(reply.status, 201, "{}", reply.body);
        reply.body["id"].as_str().unwrap().to_owned()
    }

    pub async fn status(&self, id: &str) -> String {
        let reply = self.get(ADMIN, &format!("/v2/images/{id}")).await;
        reply.body["status"].as_str().unwrap_or("gone").to_owned()
    }

    pub fn files(&self) -> usize {
        std::fs::read_dir(&self.directory).unwrap().count()
    }
}

#[tokio::test]
async fn statements_prepare_on_each_database() {
    for shelf in shelves().await {
        for list in statements() {
            assert_eq!(shelf.store.refused(list).await, Vec::<String>::new());
        }
    }
}

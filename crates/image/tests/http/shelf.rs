//! A service on each database with its own directory, and helpers to call it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use kilonova_access::Enforcer;
use kilonova_image::{
    ImageOptions, Images, LEAST_PART, MIGRATIONS, RULES, S3Options, Secret, StoreName,
    StoreOptions, routes, service, statements,
};
use kilonova_policy::{Defaults, Policy};
use kilonova_store::Store;
pub use kilonova_testkit::http::Answer as Reply;
use kilonova_wire::Dialect;
use kilonova_wire::noauth::NoAuth;
use serde_json::{Value, json};
use tower::ServiceExt as _;

pub const ADMIN: &str = "admin";
pub const ANNA: &str = "anna:red";
pub const BEN: &str = "ben:blue";
const PATCH_TYPE: &str = "application/openstack-images-v2.1-json-patch";

/// Bytes that differ from part to part.
pub fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n % 251) as u8 ^ (n >> 20) as u8).collect()
}

fn router(images: &Images) -> Router {
    let routes = routes(images.clone());
    let routes = kilonova_wire::mount(routes, service(), "/image", Arc::new(NoAuth));
    Router::new().nest("/image", routes)
}

pub struct Shelf {
    pub images: Images,
    pub store: Store,
    pub directory: PathBuf,
    pub options: ImageOptions,
    pub router: Router,
    _guard: Option<(kilonova_testkit::Guard, Removed)>,
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
        let mut shelf = Shelf::open(store, directory.clone(), options.clone()).await;
        shelf._guard = Some((guard, Removed(directory)));
        shelves.push(shelf);
    }
    shelves
}

/// The URL of the S3 server of the tests.
pub fn server() -> Option<String> {
    std::env::var("KILONOVA_TEST_S3").ok().filter(|server| !server.is_empty())
}

/// A new bucket at the server that `KILONOVA_TEST_S3` names, by way of `endpoint` if given.
pub fn bucket(endpoint: Option<String>) -> Option<StoreOptions> {
    let Some(server) = server() else {
        kilonova_testkit::skip_part("no object store: KILONOVA_TEST_S3 names no server");
        return None;
    };
    let s3 = S3Options {
        endpoint: endpoint.unwrap_or(server),
        region: "us-east-1".into(),
        bucket: format!("images-{}", uuid::Uuid::new_v4()),
        virtual_hosted: false,
        create_bucket: true,
        access_key: "id".into(),
        secret_key: Secret::new("key".into()),
        cacert: None,
        part_size: LEAST_PART,
        timeout: Duration::from_secs(20),
    };
    Some(StoreOptions { s3: Some(s3), default: StoreName::S3, ..StoreOptions::default() })
}

/// [`shelves`], and as many with a bucket each.
pub async fn shelves_of_all_stores() -> Vec<Shelf> {
    let mut all = shelves().await;
    if bucket(None).is_some() {
        for shelf in shelves().await {
            let stores = bucket(None).unwrap();
            all.push(shelf.with_stores(stores).await);
        }
    }
    all
}

impl Shelf {
    /// The same controller with other stores.
    pub async fn with_stores(mut self, stores: StoreOptions) -> Self {
        let options = ImageOptions { stores, ..self.options.clone() };
        let mut other = Self::open(self.store.clone(), self.directory.clone(), options).await;
        other._guard = self._guard.take();
        other
    }

    /// A controller over a database and a directory. The caller removes the directory.
    pub async fn open(store: Store, directory: PathBuf, options: ImageOptions) -> Self {
        let opened = Images::open_with(store.clone(), &directory, options.clone()).await;
        let images = opened.unwrap();
        let router = router(&images);
        Self { images, store, directory, options, router, _guard: None }
    }

    /// The same controller with the operator's `policy.yaml`.
    pub fn with_policy(&self, text: &str, defaults: Defaults) -> Self {
        let own = kilonova_policy::read(text).unwrap();
        let policy = Policy::build(RULES, &own, defaults).unwrap();
        let enforcer = Enforcer::new(Arc::new(policy), Dialect::Image);
        let images = self.images.clone().with_policy(enforcer);
        Self {
            router: router(&images),
            images,
            store: self.store.clone(),
            directory: self.directory.clone(),
            options: self.options.clone(),
            _guard: None,
        }
    }

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

    /// The bytes of a 200 answer, if the transfer is complete.
    pub async fn receive(&self, who: &str, path: &str) -> Result<Vec<u8>, String> {
        let request = Request::get(format!("/image{path}")).header("x-auth-token", who);
        let request = request.body(Body::empty()).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        if response.status() != 200 {
            return Err(response.status().to_string());
        }
        let length =
            response.headers()["content-length"].to_str().unwrap().parse::<usize>().unwrap();
        let body = response.into_body().collect().await.map_err(|error| error.to_string())?;
        let bytes = body.to_bytes().to_vec();
        if bytes.len() == length { Ok(bytes) } else { Err(format!("{} bytes", bytes.len())) }
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

    /// [`Shelf::put`] with a header.
    pub async fn put_with(&self, id: &str, header: (&str, &str), data: impl Into<Body>) -> Reply {
        let request = Request::put(format!("/image/v2/images/{id}/file"))
            .header("x-auth-token", ANNA)
            .header("accept", "application/json")
            .header("content-type", "application/octet-stream")
            .header(header.0, header.1);
        kilonova_testkit::http::send(&self.router, request.body(data.into()).unwrap()).await
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

    /// The number of files, without the one that names the cloud.
    pub fn files(&self) -> usize {
        let names = std::fs::read_dir(&self.directory).unwrap();
        names.filter(|entry| entry.as_ref().unwrap().file_name() != ".cloud").count()
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

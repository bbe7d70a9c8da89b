//! A bootstrapped service on each database, and helpers to call it.

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request};
use kilonova_identity::{
    CatalogEntry, Identity, IdentityOptions, MIGRATIONS, TokenKeys, routes, service,
};
use kilonova_seal::{KeySource, Vault};
use kilonova_store::Store;
pub use kilonova_testkit::http::{Answer as Reply, send};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

pub const PASSWORD: &str = "opensesame";

pub struct Cloud {
    pub identity: Identity,
    pub store: Store,
    pub router: Router,
    pub keys: TokenKeys,
    _guard: (kilonova_testkit::Guard, TemporaryDirectory),
}

/// Deleted when the test ends.
pub struct TemporaryDirectory(pub std::path::PathBuf);

impl TemporaryDirectory {
    pub fn new() -> Self {
        let path = std::env::temp_dir().join(format!("kilonova-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

pub fn options() -> IdentityOptions {
    IdentityOptions {
        token_expiration: Duration::from_secs(3600),
        cache_time: Duration::from_secs(30),
        hash_cost: argon2::Params::new(argon2::Params::MIN_M_COST, 1, 1, None).unwrap(),
        ..IdentityOptions::default()
    }
}

pub async fn clouds() -> Vec<Cloud> {
    clouds_with(options()).await
}

pub async fn clouds_with(options: IdentityOptions) -> Vec<Cloud> {
    let mut clouds = Vec::new();
    for (_, store, guard) in
        kilonova_testkit::stores(&[kilonova_seal::MIGRATIONS, MIGRATIONS]).await
    {
        let directory = TemporaryDirectory::new();
        let source = KeySource::Default(directory.0.join("seal.key"));
        let vault = Vault::open(store.clone(), source).await.unwrap();
        let keys = TokenKeys::open(vault, &directory.0.join("keys")).await.unwrap();
        let identity = Identity::open(store.clone(), keys.clone(), options.clone()).await.unwrap();
        assert!(identity.bootstrap(PASSWORD).await.unwrap());
        let router = mounted(&identity);
        clouds.push(Cloud { identity, store, router, keys, _guard: (guard, directory) });
    }
    clouds
}

pub fn mounted(identity: &Identity) -> Router {
    identity.set_catalog(
        [("identity", "keystone", "/identity/v3"), ("compute", "nova", "/compute/v2.1")]
            .map(|(kind, name, path)| CatalogEntry {
                service_type: kind.into(),
                name: name.into(),
                path: path.into(),
            })
            .to_vec(),
    );
    let auth = Arc::new(identity.clone());
    let routes = routes(identity.clone());
    Router::new().nest("/identity", kilonova_wire::mount(routes, service(), "/identity", auth))
}

impl Cloud {
    /// The directory of the controller's files.
    pub fn directory(&self) -> &std::path::Path {
        &self._guard.1.0
    }

    pub async fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> Reply {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/identity{path}"))
            .header("host", "cloud.example:8000");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        send(&self.router, request.body(body).unwrap()).await
    }

    pub async fn as_user(&self, token: &str, method: &str, path: &str, body: Value) -> Reply {
        self.call(method, path, &[("x-auth-token", token)], body).await
    }

    pub async fn login(&self, body: Value) -> Reply {
        self.call("POST", "/v3/auth/tokens", &[], body).await
    }

    /// A token for a user on a project, both by name.
    pub async fn token(&self, user: &str, password: &str, project: &str) -> String {
        let reply = self.login(by_name(user, password, Some(project))).await;
        assert_eq!(reply.status, 201, "{}", reply.body);
        token_of(&reply)
    }

    pub async fn admin(&self) -> String {
        self.token("admin", PASSWORD, "admin").await
    }

    /// Creates a resource as the admin and returns its id.
    pub async fn make(&self, token: &str, kind: &str, fields: Value) -> String {
        let reply =
            self.as_user(token, "POST", &format!("/v3/{kind}s"), json!({kind: fields})).await;
        assert_eq!(reply.status, 201, "{}", reply.body);
        reply.body[kind]["id"].as_str().unwrap().to_owned()
    }

    /// The id of a resource by its name.
    pub async fn find(&self, token: &str, kind: &str, name: &str) -> String {
        let reply =
            self.as_user(token, "GET", &format!("/v3/{kind}s?name={name}"), Value::Null).await;
        reply.body[format!("{kind}s")][0]["id"].as_str().unwrap().to_owned()
    }

    /// Creates project and user `demo` (password `demo`) with role member; returns project, user, role.
    pub async fn demo(&self) -> (String, String, String) {
        let admin = self.admin().await;
        let project = self.make(&admin, "project", json!({"name": "demo"})).await;
        let user = self.make(&admin, "user", json!({"name": "demo", "password": "demo"})).await;
        let role = self.find(&admin, "role", "member").await;
        let path = format!("/v3/projects/{project}/users/{user}/roles/{role}");
        assert_eq!(self.as_user(&admin, "PUT", &path, Value::Null).await.status, 204);
        (project, user, role)
    }

    /// True if a service accepts the token.
    pub async fn opens(&self, token: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert("x-auth-token", token.parse().unwrap());
        kilonova_wire::Authenticator::authenticate(&self.identity, &headers).await.is_ok()
    }
}

pub fn token_of(reply: &Reply) -> String {
    reply.headers["x-subject-token"].to_str().unwrap().to_owned()
}

pub fn by_name(user: &str, password: &str, project: Option<&str>) -> Value {
    let domain = json!({"name": "Default"});
    let mut auth = json!({"identity": {"methods": ["password"], "password": {
        "user": {"name": user, "domain": domain, "password": password}}}});
    if let Some(project) = project {
        auth["scope"] = json!({"project": {"name": project, "domain": {"id": "default"}}});
    }
    json!({"auth": auth})
}

//! Authorization with real tokens, from the login to the refusal: an application credential with
//! one role of its user has only that role's permissions, and few callers may validate and revoke
//! tokens.

use std::sync::Arc;

use axum::Router;
use axum::http::Method;
use kilonova_access::Guard;
use serde_json::{Value, json};

use crate::fuzz::cloud::{Cloud, clouds};
use crate::policy::objects::NOTHING;
use crate::policy::request::{Answer, send};
use crate::policy::{action, services};

/// The services, with real tokens of the identity service.
struct Signed<'a> {
    cloud: &'a Cloud,
    identity: Router,
    compute: Router,
    image: Router,
}

impl<'a> Signed<'a> {
    fn new(cloud: &'a Cloud) -> Self {
        let identity = || Arc::new(cloud.identity.clone());
        let (people, compute) = (cloud.identity.clone(), cloud.compute.clone());
        let images = compute.images.own().cloned().expect("the image service exists");
        Self {
            cloud,
            identity: kilonova_wire::mount(
                kilonova_identity::routes(people),
                kilonova_identity::service(),
                "",
                identity(),
            ),
            compute: kilonova_wire::mount(
                kilonova_compute::routes(compute),
                kilonova_compute::service(),
                "",
                identity(),
            ),
            image: kilonova_wire::mount(
                kilonova_image::routes(images),
                kilonova_image::service(),
                "",
                identity(),
            ),
        }
    }

    async fn as_user(
        &self,
        router: &Router,
        token: &str,
        method: Method,
        path: &str,
        body: Value,
    ) -> Answer {
        let headers =
            [("x-auth-token", token.to_owned()), ("content-type", "application/json".to_owned())];
        send(router, &method, path, &headers, &body).await
    }

    /// Creates an object of identity and returns it.
    async fn make(&self, token: &str, method: Method, path: &str, body: Value) -> Value {
        let made = self.as_user(&self.identity, token, method, path, body).await;
        assert!((200..300).contains(&made.status), "{path}: {} {}", made.status, made.text);
        serde_json::from_str(&made.text).unwrap_or_default()
    }

    async fn login(&self, auth: Value) -> String {
        let request = axum::http::Request::post("/v3/auth/tokens")
            .header("host", "cloud:5000")
            .header("content-type", "application/json")
            .body(axum::body::Body::from(json!({"auth": auth}).to_string()))
            .expect("the request is valid");
        let response = tower::ServiceExt::oneshot(self.identity.clone(), request).await;
        let response = response.expect("the router is infallible");
        assert_eq!(response.status(), 201);
        response.headers()["x-subject-token"]
            .to_str()
            .expect("the login returns a token")
            .to_owned()
    }

    async fn password(&self, user: &str, password: &str, project: &str) -> String {
        let domain = json!({"id": "default"});
        self.login(json!({
            "identity": {"methods": ["password"], "password": {
                "user": {"name": user, "domain": domain, "password": password}}},
            "scope": {"project": {"name": project, "domain": domain}},
        }))
        .await
    }

    /// A user with these roles in a new project `demo-NAME`, created if necessary; its id and a
    /// token.
    async fn user(&self, name: &str, roles: &[&str]) -> (String, String) {
        let admin = self.password("admin", "secret", "admin").await;
        let demo = format!("demo-{name}");
        let made = self
            .make(&admin, Method::POST, "/v3/projects", json!({"project": {"name": demo}}))
            .await;
        let project = made["project"]["id"].as_str().expect("the project has an id").to_owned();
        let body = json!({"user": {"name": name, "password": "explorer"}});
        let made = self.make(&admin, Method::POST, "/v3/users", body).await;
        let user = made["user"]["id"].as_str().expect("the user has an id").to_owned();
        for role in roles {
            let path = format!("/v3/roles?name={role}");
            let mut found = self.make(&admin, Method::GET, &path, Value::Null).await;
            if found["roles"][0].is_null() {
                let body = json!({"role": {"name": role}});
                let made = self.make(&admin, Method::POST, "/v3/roles", body).await;
                found = json!({"roles": [made["role"]]});
            }
            let role = found["roles"][0]["id"].as_str().expect("the role has an id");
            let path = format!("/v3/projects/{project}/users/{user}/roles/{role}");
            self.make(&admin, Method::PUT, &path, json!({})).await;
        }
        (user, self.password(name, "explorer", &demo).await)
    }

    /// A token from a new application credential of the user with one role.
    async fn credential(&self, user: &str, token: &str, role: &str) -> String {
        let path = format!("/v3/users/{user}/application_credentials");
        let body = json!({"application_credential": {
            "name": role, "secret": "s3cret", "roles": [{"name": role}]}});
        let made = self.make(token, Method::POST, &path, body).await;
        let id = made["application_credential"]["id"].clone();
        self.login(json!({"identity": {"methods": ["application_credential"],
            "application_credential": {"id": id, "secret": "s3cret"}}}))
            .await
    }

    /// Creates a server in the token's project.
    async fn server(&self, token: &str) -> String {
        let admin = self.password("admin", "secret", "admin").await;
        let flavor = json!({"flavor": {"id": "f", "name": "f", "ram": 64, "vcpus": 1, "disk": 1}});
        let path = "/v2.1/flavors";
        let made = self.as_user(&self.compute, &admin, Method::POST, path, flavor).await;
        assert_eq!(made.status, 200, "{}", made.text);
        let sent = json!({"server": {"name": "s", "flavorRef": "f", "imageRef": self.cloud.image}});
        let made = self.as_user(&self.compute, token, Method::POST, "/v2.1/servers", sent).await;
        assert_eq!(made.status, 202, "{}", made.text);
        let made: Value = serde_json::from_str(&made.text).expect("the response is JSON");
        made["server"]["id"].as_str().expect("the server has an id").to_owned()
    }

    /// Sends every request of compute and image that upstream's tables deny to the role; returns
    /// the number of requests.
    async fn refuses(&self, token: &str, role: &str, server: &str) -> usize {
        let mut asked = 0;
        let here = |name: &str| ["compute", "image"].contains(&name);
        for service in services().iter().filter(|service| here(service.name)) {
            let router = if service.name == "image" { &self.image } else { &self.compute };
            for operation in &service.operations {
                let path = operation.path.replace("/servers/{id}", &format!("/servers/{server}"));
                let part = |part: &str| match part.starts_with('{') {
                    true => NOTHING.to_owned(),
                    false => part.to_owned(),
                };
                let path = path.split('/').map(part).collect::<Vec<_>>().join("/");
                if !matches!(operation.guard, Guard::Own(_) | Guard::Action(_)) {
                    continue;
                }
                for (name, rule) in operation.rules() {
                    if service.upstream.passes(rule, role) == Some(true) {
                        continue;
                    }
                    asked += 1;
                    let body = name.map_or_else(|| json!({}), action);
                    let method = operation.method.clone();
                    let answer = self.as_user(router, token, method, &path, body).await;
                    let place = format!("{role}: {} {path} {rule}", operation.method);
                    assert_eq!(answer.status, 403, "{place}: {}", answer.text);
                }
            }
        }
        asked
    }
}

#[tokio::test]
async fn a_credential_with_one_role_has_the_permissions_of_the_role() {
    for cloud in clouds().await {
        let signed = Signed::new(&cloud);
        let (user, token) = signed.user("dora", &["member", "service", "chef"]).await;
        let server = signed.server(&token).await;
        let path = format!("/v2.1/servers/{server}");
        for (role, sees, least) in [("reader", 200, 81), ("service", 403, 131), ("chef", 403, 131)]
        {
            let narrow = signed.credential(&user, &token, role).await;
            let asked = signed.refuses(&narrow, role, &server).await;
            assert!(asked >= least, "{role}: {asked} operations were tried");
            let seen =
                signed.as_user(&signed.compute, &narrow, Method::GET, &path, Value::Null).await;
            assert_eq!(seen.status, sees, "{role}: {}", seen.text);
            let events = json!({"events": [{"name": "network-changed", "server_uuid": server}]});
            let external = "/v2.1/os-server-external-events";
            let notified =
                signed.as_user(&signed.compute, &narrow, Method::POST, external, events).await;
            assert_eq!(notified.status == 403, role != "service", "{role}: {}", notified.text);
        }
        // The server still exists, and its owner may delete it.
        let gone =
            signed.as_user(&signed.compute, &token, Method::DELETE, &path, Value::Null).await;
        assert_eq!(gone.status, 204, "{}", gone.text);
    }
}

#[tokio::test]
async fn a_token_is_looked_at_and_ended_by_those_whom_keystones_rules_name() {
    for cloud in clouds().await {
        let signed = Signed::new(&cloud);
        signed.user("dora", &["member"]).await;
        let path = "/v3/auth/tokens";
        // Roles that may validate (GET) and revoke (DELETE).
        for (role, looks, ends) in [
            ("reader", false, false),
            ("member", false, false),
            ("manager", false, false),
            ("chef", false, false),
            ("service", true, false),
            ("admin", true, true),
            ("dora", true, true),
        ] {
            let subject = signed.password("dora", "explorer", "demo-dora").await;
            let asker = match role {
                "dora" => subject.clone(),
                role => signed.user(&format!("a-{role}"), &[role]).await.1,
            };
            let headers = [("x-auth-token", asker), ("x-subject-token", subject.clone())];
            let own = [("x-auth-token", subject.clone()), ("x-subject-token", subject)];
            for (method, may, right) in [(Method::GET, looks, 200), (Method::DELETE, ends, 204)] {
                let router = &signed.identity;
                let answer = send(router, &method, path, &headers, &Value::Null).await;
                let expected = if may { right } else { 403 };
                assert_eq!(answer.status, expected, "{role}: {method} {}", answer.text);
            }
            // A refused caller has revoked nothing.
            let seen = send(&signed.identity, &Method::GET, path, &own, &Value::Null).await;
            assert_eq!(seen.status, if ends { 401 } else { 200 }, "{role}: {}", seen.text);
        }
    }
}

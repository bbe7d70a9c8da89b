//! Joining over HTTP, in process, on both stores.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use kilonova_access::Enforcer;
use kilonova_enroll::{EnrollOptions, Enrollment, MIGRATIONS, VALID, record_authority, statements};
use kilonova_pki::{Authority, Fingerprint, Token};
use kilonova_policy::Rule;
use kilonova_store::Store;
use kilonova_testkit::Guard;
use kilonova_wire::noauth::NoAuth;
use kilonova_wire::{Dialect, Service, Speaker, mount, time};
use serde_json::{Value, json};

struct Cloud {
    enrollment: Enrollment,
    store: Store,
    router: Router,
    _guard: Guard,
}

async fn clouds() -> Vec<Cloud> {
    let mut clouds = Vec::new();
    for (_, store, guard) in kilonova_testkit::stores(&[MIGRATIONS]).await {
        let (certificate, key) = Authority::make(time::now()).expect("the authority is created");
        let authority =
            Arc::new(Authority::load(&certificate, &key).expect("the authority is loaded"));
        record_authority(&store, Some(authority.fingerprint()))
            .await
            .expect("the first authority is accepted");
        let options = EnrollOptions { url: "https://cloud:8775".into(), valid: VALID };
        let enrollment = Enrollment::new(store.clone(), authority, options);
        let service =
            |public| Service { name: "t", dialect: Dialect::Compute, versions: None, public };
        let routes = kilonova_enroll::node_routes(enrollment.clone());
        let node = mount(routes, service(|_| true), "/node", Arc::new(NoAuth));
        let routes = kilonova_enroll::operator_routes(Some(enrollment.clone()), &policy());
        let compute = mount(routes, service(|_| false), "", Arc::new(NoAuth));
        let router = Router::new().nest("/node", node).fallback_service(compute);
        clouds.push(Cloud { enrollment, store, router, _guard: guard });
    }
    clouds
}

/// Administrators only, as in the compute service's policy table.
fn policy() -> Enforcer {
    const fn rule(name: &'static str) -> Rule {
        Rule { name, check: "role:admin", deprecated: None, scopes: &[] }
    }
    const RULES: [Rule; 3] = [
        rule("kilonova:enrollments:create"),
        rule("kilonova:enrollments:index"),
        rule("kilonova:enrollments:delete"),
    ];
    Enforcer::of(&RULES, Dialect::Compute)
}

impl Cloud {
    async fn send(&self, what: &str, speaker: Option<&str>, body: &Value) -> (u16, Value) {
        self.send_as("admin", what, speaker, body).await
    }

    async fn send_as(
        &self,
        who: &str,
        what: &str,
        speaker: Option<&str>,
        body: &Value,
    ) -> (u16, Value) {
        let (method, path) = what.split_once(' ').expect("a request line has a method and a path");
        let request = Request::builder().method(method).uri(path).header("x-auth-token", who);
        let mut request = request.body(Body::from(body.to_string())).expect("the request is valid");
        if let Some(host) = speaker {
            request.extensions_mut().insert(Speaker(host.into()));
        }
        let answer = kilonova_testkit::http::send(&self.router, request).await;
        (answer.status.as_u16(), answer.body)
    }

    /// Creates a token and returns its secret.
    async fn token(&self, host: Option<&str>, valid: i64) -> String {
        let body = json!({"enrollment": {"host": host, "valid": valid}});
        let (status, made) = self.send("POST /v2.1/kilonova/enrollments", None, &body).await;
        assert_eq!(status, 201, "{made}");
        let made = &made["enrollment"];
        assert_eq!(made["url"], "https://cloud:8775");
        let token: Token = made["token"]
            .as_str()
            .expect("the answer has a token")
            .parse()
            .expect("the token is well formed");
        assert_eq!(token.authority, self.enrollment.authority().fingerprint());
        token.secret.to_string()
    }

    async fn join(&self, secret: &str, host: &str, address: &str) -> (u16, Value) {
        let csr = kilonova_pki::Request::new("any-name").expect("the request is valid").csr;
        let request = json!({"csr": csr, "addresses": [address]});
        let body = json!({"secret": secret, "host": host, "request": request});
        self.send("POST /node/v1/join", None, &body).await
    }

    async fn refused(&self, secret: &str, host: &str, address: &str, words: &str) {
        let (status, body) = self.join(secret, host, address).await;
        let said = body["forbidden"]["message"].as_str().unwrap_or_default();
        assert!(status == 403 && said.contains(words), "{status} {body}");
    }
}

fn serial(credential: &Value) -> String {
    let pem = credential["certificate"].as_str().expect("the answer has a certificate");
    kilonova_pki::read(pem).expect("the certificate is readable").serial
}

#[tokio::test]
async fn a_token_works_once_and_for_one_host() {
    for cloud in clouds().await {
        let secret = cloud.token(Some("a"), 3600).await;
        cloud.refused(&secret, "b", "192.0.2.1", "for host a, but this is host b").await;
        let (status, given) = cloud.join(&secret, "a", "192.0.2.1").await;
        assert_eq!(status, 200, "{given}");
        let said =
            kilonova_pki::read(given["certificate"].as_str().expect("the certificate is text"))
                .expect("the certificate is valid");
        assert_eq!(said.name, "a", "the name in the CSR is ignored");
        assert_eq!(given["authority"], cloud.enrollment.authority().pem());
        cloud.refused(&secret, "a", "192.0.2.1", "Host a used this token at 20").await;
        cloud.refused("x", "a", "192.0.2.1", "token is unknown").await;
        let other = kilonova_pki::Secret::new().to_string();
        cloud.refused(&other, "a", "192.0.2.1", "token is unknown").await;
        let (status, _) = cloud.join(&secret, "a/b", "192.0.2.1").await;
        assert_eq!(status, 422);
    }
}

#[tokio::test]
async fn a_token_expires() {
    for cloud in clouds().await {
        let secret = cloud.token(None, 1).await;
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
        cloud.refused(&secret, "a", "192.0.2.1", "expired at 20").await;
        for valid in [0, -1, 31 * 24 * 3600, i64::MAX] {
            let body = json!({"enrollment": {"valid": valid}});
            let (status, _) = cloud.send("POST /v2.1/kilonova/enrollments", None, &body).await;
            assert_eq!(status, 400, "{valid}");
        }
    }
}

#[tokio::test]
async fn a_token_for_any_host_does_not_allow_an_existing_name() {
    for cloud in clouds().await {
        let (one, two) = (cloud.token(None, 60).await, cloud.token(None, 60).await);
        let (_, first) = cloud.join(&one, "a", "192.0.2.1").await;
        cloud.refused(&two, "a", "192.0.2.2", "enroll --host a").await;
        cloud
            .refused(&two, "b", "192.0.2.1", "Address 192.0.2.1 is in the certificate of host a")
            .await;
        assert_eq!(
            cloud.join(&two, "b", "192.0.2.2").await.0,
            200,
            "a refused request does not use the token"
        );
        // With a token for its name it may, and its earlier certificates are revoked.
        let bound = cloud.token(Some("a"), 60).await;
        let (status, second) = cloud.join(&bound, "a", "192.0.2.1").await;
        assert_eq!(status, 200, "{second}");
        assert!(cloud.enrollment.revoked().has(&serial(&first)));
        assert!(!cloud.enrollment.revoked().has(&serial(&second)));
    }
}

#[tokio::test]
async fn only_its_host_renews_a_certificate() {
    for cloud in clouds().await {
        let csr = kilonova_pki::Request::new("a").expect("the request is valid").csr;
        let body = json!({"csr": csr, "addresses": ["192.0.2.1"]});
        let what = "POST /node/v1/hosts/a/certificate";
        assert_eq!(cloud.send(what, None, &body).await.0, 401);
        let (status, said) = cloud.send(what, Some("b"), &body).await;
        assert_eq!(status, 403, "{said}");
        assert!(
            said.to_string().contains("belongs to host b, which cannot act for host a"),
            "{said}"
        );
        let (status, given) = cloud.send(what, Some("a"), &body).await;
        assert_eq!(status, 200, "{given}");
        let said =
            kilonova_pki::read(given["certificate"].as_str().expect("the certificate is text"))
                .expect("the certificate is valid");
        let days = said.not_after.duration_since(time::now()).as_hours() / 24;
        assert!(said.name == "a" && (29..=30).contains(&days), "{said:?}");
        assert_eq!(cloud.send(what, Some("a"), &json!({"csr": "x"})).await.0, 422);
    }
}

#[tokio::test]
async fn every_controller_knows_revoked_certificates() {
    for cloud in clouds().await {
        let secret = cloud.token(None, 60).await;
        let (_, given) = cloud.join(&secret, "a", "192.0.2.1").await;
        let open = cloud.token(Some("a"), 60).await;
        let (_, listed) = cloud.send("GET /v2.1/kilonova/enrollments", None, &Value::Null).await;
        assert_eq!(listed["certificates"][0]["state"], "valid", "{listed}");
        assert_eq!(listed["tokens"][0]["host"], "a", "{listed}");
        let what = "DELETE /v2.1/kilonova/enrollments/a";
        let (status, said) = cloud.send(what, None, &Value::Null).await;
        assert_eq!((status, &said["revoked"]["certificates"]), (200, &json!(1)), "{said}");
        assert_eq!(cloud.send(what, None, &Value::Null).await.0, 404);
        cloud.refused(&open, "a", "192.0.2.1", "token is unknown").await;
        let (_, listed) = cloud.send("GET /v2.1/kilonova/enrollments", None, &Value::Null).await;
        assert_eq!(listed["certificates"][0]["state"], "revoked", "{listed}");
        let authority = Authority::make(time::now()).expect("the authority is created");
        let authority = Authority::load(&authority.0, &authority.1).expect("the authority loads");
        let options = EnrollOptions { url: String::new(), valid: VALID };
        let other = Enrollment::new(cloud.store.clone(), Arc::new(authority), options);
        assert!(!other.revoked().has(&serial(&given)));
        other.refresh().await.expect("the revocations are read");
        assert!(other.revoked().has(&serial(&given)));
    }
}

#[tokio::test]
async fn operators_routes_require_an_administrator_and_a_listener() {
    for cloud in clouds().await {
        for (what, body) in [
            ("POST /v2.1/kilonova/enrollments", json!({"enrollment": {"valid": 60}})),
            ("GET /v2.1/kilonova/enrollments", Value::Null),
            ("DELETE /v2.1/kilonova/enrollments/a", Value::Null),
        ] {
            assert_eq!(cloud.send_as("u:p", what, None, &body).await.0, 403, "{what}");
            let routes = kilonova_enroll::operator_routes(None, &policy());
            let service =
                Service { name: "t", dialect: Dialect::Compute, versions: None, public: |_| false };
            let router = mount(routes, service, "", Arc::new(NoAuth));
            let cloud = Cloud {
                enrollment: cloud.enrollment.clone(),
                store: cloud.store.clone(),
                router,
                _guard: kilonova_testkit::stores(&[]).await.remove(0).2,
            };
            let (status, said) = cloud.send(what, None, &body).await;
            assert!(status == 409 && said.to_string().contains("--node-listen"), "{said}");
        }
    }
}

#[tokio::test]
async fn a_cloud_has_one_authority_and_valid_statements() {
    for cloud in clouds().await {
        let ours = cloud.enrollment.authority().fingerprint();
        record_authority(&cloud.store, Some(ours))
            .await
            .expect("the cloud's authority is accepted");
        let said = record_authority(&cloud.store, None)
            .await
            .expect_err("the cloud has an authority")
            .to_string();
        assert!(said.contains("copy the folder ca") && said.contains(&ours.to_string()), "{said}");
        let other = Fingerprint::of(b"another");
        let said = record_authority(&cloud.store, Some(other))
            .await
            .expect_err("another authority is refused")
            .to_string();
        assert!(said.contains(&other.to_string()), "{said}");
        for list in statements() {
            assert_eq!(cloud.store.refused(list).await, Vec::<String>::new());
        }
    }
}

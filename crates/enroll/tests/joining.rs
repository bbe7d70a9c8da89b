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
use jiff::SignedDuration;
use kilonova_access::Enforcer;
use kilonova_changes::Follower;
use kilonova_enroll::{
    Authorities, AuthorityPem, AuthorityState, EnrollOptions, Enrollment, MIGRATIONS, Presented,
    VALID, statements,
};
use kilonova_pki::{Authority, Fingerprint, Token};
use kilonova_policy::Rule;
use kilonova_seal::{KeySource, Vault};
use kilonova_store::testing::{CrashPlan, Death};
use kilonova_store::{Store, System};
use kilonova_testkit::Guard;
use kilonova_wire::noauth::NoAuth;
use kilonova_wire::{CertifiedHost, Dialect, Service, mount, time};
use serde_json::{Value, json};

struct Cloud {
    enrollment: Enrollment,
    store: Store,
    router: Router,
    vault: Vault,
    _guard: (Guard, tempfile::TempDir),
}

async fn stores() -> Vec<(&'static str, Store, Guard)> {
    kilonova_testkit::stores(&[kilonova_seal::MIGRATIONS, MIGRATIONS]).await
}

async fn vault(store: &Store, folder: &std::path::Path) -> Vault {
    let source = KeySource::Default(folder.join("seal.key"));
    Vault::open(store.clone(), source).await.expect("the sealing key is created")
}

async fn clouds() -> Vec<Cloud> {
    let mut clouds = Vec::new();
    for (_, store, guard) in stores().await {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let vault = vault(&store, folder.path()).await;
        let authorities =
            Authorities::open(vault.clone(), None).await.expect("the authority is created");
        let (enrollment, router) = controller(&store, authorities);
        clouds.push(Cloud { enrollment, store, router, vault, _guard: (guard, folder) });
    }
    clouds
}

/// A controller over the database.
fn controller(store: &Store, authorities: Authorities) -> (Enrollment, Router) {
    let options = EnrollOptions { url: "https://cloud:8775".into(), valid: VALID };
    let enrollment = Enrollment::new(store.clone(), authorities, options);
    let service = |public| Service { name: "t", dialect: Dialect::Compute, versions: None, public };
    let routes = kilonova_enroll::node_routes(enrollment.clone());
    let node = mount(routes, service(|_| true), "/node", Arc::new(NoAuth));
    let routes = kilonova_enroll::operator_routes(Some(enrollment.clone()), &policy());
    let compute = mount(routes, service(|_| false), "", Arc::new(NoAuth));
    (enrollment, Router::new().nest("/node", node).fallback_service(compute))
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
    async fn send(&self, what: &str, certified: Option<&str>, body: &Value) -> (u16, Value) {
        self.send_as("admin", what, certified, body).await
    }

    async fn send_as(
        &self,
        who: &str,
        what: &str,
        certified: Option<&str>,
        body: &Value,
    ) -> (u16, Value) {
        send(&self.router, who, what, certified.map(|host| (host, "00")), body).await
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
        assert_eq!(token.authority, self.enrollment.authorities().shown().fingerprint());
        token.secret.to_string()
    }

    async fn join(&self, secret: &str, host: &str, address: &str) -> (u16, Value) {
        let csr = kilonova_pki::Request::new(&kilonova_ids::HostName::verbatim("any-name"))
            .expect("the request is valid")
            .csr;
        let request = json!({"csr": csr, "addresses": [address]});
        let body = json!({"secret": secret, "host": host, "request": request});
        self.send("POST /node/v1/join", None, &body).await
    }

    /// Renews the certificate of a host that presents the certificate with a serial number.
    async fn renewed(&self, host: &str, serial: &str, addresses: &[&str]) -> (u16, Value) {
        renewed(&self.router, host, serial, addresses).await
    }

    async fn refused(&self, secret: &str, host: &str, address: &str, words: &str) {
        let (status, body) = self.join(secret, host, address).await;
        let refusal = body["forbidden"]["message"].as_str().unwrap_or_default();
        assert!(status == 403 && refusal.contains(words), "{status} {body}");
    }
}

/// Sends a request. The connection presents the certificate with the host and serial number in
/// `certified`, if any.
async fn send(
    router: &Router,
    who: &str,
    what: &str,
    certified: Option<(&str, &str)>,
    body: &Value,
) -> (u16, Value) {
    let (method, path) = what.split_once(' ').expect("a request line has a method and a path");
    let request = Request::builder().method(method).uri(path).header("x-auth-token", who);
    let mut request = request.body(Body::from(body.to_string())).expect("the request is valid");
    if let Some((host, serial)) = certified {
        request.extensions_mut().insert(CertifiedHost(kilonova_ids::HostName::verbatim(host)));
        request.extensions_mut().insert(Presented(serial.into()));
    }
    let answer = kilonova_testkit::http::send(router, request).await;
    (answer.status.as_u16(), answer.body)
}

async fn renewed(router: &Router, host: &str, serial: &str, addresses: &[&str]) -> (u16, Value) {
    let request = kilonova_pki::Request::new(&kilonova_ids::HostName::verbatim(host));
    let csr = request.expect("the request is made").csr;
    let what = format!("POST /node/v1/hosts/{host}/certificate");
    let body = json!({"csr": csr, "addresses": addresses});
    send(router, "admin", &what, Some((host, serial)), &body).await
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
        let shown =
            kilonova_pki::read(given["certificate"].as_str().expect("the certificate is text"))
                .expect("the certificate is valid");
        assert_eq!(shown.name, "a", "the name in the CSR is ignored");
        assert_eq!(given["authority"], cloud.enrollment.authorities().shown().pem());
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
        // With a token for its name the host may join again, and its earlier certificates are revoked.
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
        let csr = kilonova_pki::Request::new(&kilonova_ids::HostName::verbatim("a"))
            .expect("the request is valid")
            .csr;
        let body = json!({"csr": csr, "addresses": ["192.0.2.1"]});
        let what = "POST /node/v1/hosts/a/certificate";
        assert_eq!(cloud.send(what, None, &body).await.0, 401);
        let (status, shown) = cloud.send(what, Some("b"), &body).await;
        assert_eq!(status, 403, "{shown}");
        assert!(
            shown.to_string().contains("belongs to host b, which cannot act for host a"),
            "{shown}"
        );
        let (status, given) = cloud.send(what, Some("a"), &body).await;
        assert_eq!(status, 200, "{given}");
        let shown =
            kilonova_pki::read(given["certificate"].as_str().expect("the certificate is text"))
                .expect("the certificate is valid");
        let days = shown.not_after.duration_since(time::now()).as_hours() / 24;
        assert!(shown.name == "a" && (29..=30).contains(&days), "{shown:?}");
        assert_eq!(cloud.send(what, Some("a"), &json!({"csr": "x"})).await.0, 422);
    }
}

/// A renewal depends on the presented certificate: it fails with one that another controller
/// revoked, and succeeds with the one from joining again.
#[tokio::test]
async fn a_revoked_certificate_is_not_renewed_by_a_controller_that_has_not_noticed() {
    for cloud in clouds().await {
        let authorities = Authorities::open(cloud.vault.clone(), None).await;
        let (behind, router) = controller(&cloud.store, authorities.expect("they are loaded"));
        let secret = cloud.token(None, 60).await;
        let (_, first) = cloud.join(&secret, "a", "192.0.2.1").await;
        let (status, second) = renewed(&router, "a", &serial(&first), &["192.0.2.1"]).await;
        assert_eq!(status, 200, "{second}");
        let what = "DELETE /v2.1/kilonova/enrollments/a";
        assert_eq!(cloud.send(what, None, &Value::Null).await.0, 200);
        for revoked in [&first, &second] {
            assert!(!behind.revoked().has(&serial(revoked)), "the revocation is not noticed yet");
            let (status, said) = renewed(&router, "a", &serial(revoked), &["192.0.2.1"]).await;
            assert!(status == 403 && said.to_string().contains("was revoked"), "{status} {said}");
        }
        let bound = cloud.token(Some("a"), 60).await;
        let (status, again) = cloud.join(&bound, "a", "192.0.2.1").await;
        assert_eq!(status, 200, "{again}");
        let (status, said) = renewed(&router, "a", &serial(&first), &["192.0.2.1"]).await;
        assert!(status == 403, "the host's new certificate is not the presented one: {said}");
        let (status, said) = renewed(&router, "a", &serial(&again), &["192.0.2.1"]).await;
        assert_eq!(status, 200, "{said}");
    }
}

/// An address is in the certificates of one host only, whatever its position among the host's
/// addresses. An address that is a prefix of another as text does not match it.
#[tokio::test]
async fn an_address_belongs_to_one_host() {
    for cloud in clouds().await {
        let csr = || {
            let request = kilonova_pki::Request::new(&kilonova_ids::HostName::verbatim("a"));
            request.expect("the request is made").csr
        };
        let join = async |host: &str, addresses: &[&str]| {
            let request = json!({"csr": csr(), "addresses": addresses});
            let secret = cloud.token(None, 60).await;
            let body = json!({"secret": secret, "host": host, "request": request});
            let (status, said) = cloud.send("POST /node/v1/join", None, &body).await;
            (status, said["forbidden"]["message"].as_str().unwrap_or_default().to_owned())
        };
        assert_eq!(join("a", &["192.0.2.10", "2001:DB8::10", "192.0.2.12"]).await.0, 200);
        for taken in ["192.0.2.10", "2001:db8::10", "192.0.2.12", "2001:db8:0::10"] {
            let (status, said) = join("b", &["198.51.100.1", taken]).await;
            assert!(
                status == 403 && said.contains("in the certificate of host a"),
                "{taken} {said}"
            );
        }
        let (status, said) = join("b", &["192.0.2.1", "2.0.2.10", "2001:db8::1"]).await;
        assert_eq!(status, 200, "{said}");
        cloud.send("DELETE /v2.1/kilonova/enrollments/a", None, &Value::Null).await;
        assert_eq!(
            join("c", &["192.0.2.10"]).await.0,
            200,
            "the addresses of a revoked certificate are free"
        );
    }
}

/// All hosts renew at the same time after a rotation, so a renewal must not read other hosts' rows.
#[tokio::test]
async fn a_renewal_reads_the_rows_of_its_host() {
    for cloud in clouds().await {
        let join = async |host: &str, address: &str| {
            let (status, given) = cloud.join(&cloud.token(None, 60).await, host, address).await;
            assert_eq!(status, 200, "{given}");
            serial(&given)
        };
        let (one, _) = (join("a", "192.0.2.1").await, join("b", "192.0.2.2").await);
        let meter = kilonova_store::testing::Meter::listing();
        let authorities = Authorities::open(cloud.vault.clone(), None).await;
        let authorities = authorities.expect("they are loaded");
        let (_, router) = controller(&cloud.store.with_meter(meter.clone()), authorities);
        let (status, said) = renewed(&router, "a", &one, &["192.0.2.1"]).await;
        assert_eq!(status, 200, "{said}");
        let transactions = meter.take_transactions();
        let statements = transactions.iter().flat_map(|tx| &tx.statements);
        let reads: Vec<&str> = statements
            .map(|statement| statement.sql.as_str())
            .filter(|sql| sql.contains("FROM enroll_certificates"))
            .collect();
        assert!(!reads.is_empty());
        for sql in reads {
            assert!(sql.contains("host = ?1") || sql.contains("serial = ?1"), "{sql}");
        }
        // Another address is compared with those of the other hosts.
        let (status, said) = cloud.renewed("a", &one, &["192.0.2.1", "192.0.2.2"]).await;
        assert!(status == 403 && said.to_string().contains("of host b"), "{status} {said}");
        let (status, said) = cloud.renewed("a", &one, &["192.0.2.3"]).await;
        assert_eq!(status, 200, "{said}");
    }
}

#[tokio::test]
async fn a_certificate_that_a_restored_database_lacks_is_renewed() {
    for cloud in clouds().await {
        cloud.join(&cloud.token(None, 60).await, "b", "192.0.2.2").await;
        let (status, said) = cloud.renewed("a", "0123", &["192.0.2.1"]).await;
        assert_eq!(status, 200, "{said}");
        let (status, said) = cloud.renewed("a", "0123", &["192.0.2.2"]).await;
        assert!(status == 403 && said.to_string().contains("of host b"), "{status} {said}");
    }
}

/// Joining again revokes the earlier certificates; other controllers notice through the change log.
#[tokio::test]
async fn joining_again_is_noticed_by_the_other_controllers() {
    for cloud in clouds().await {
        if cloud.store.system() != System::Postgres {
            continue;
        }
        let (_, first) = cloud.join(&cloud.token(None, 60).await, "a", "192.0.2.1").await;
        let authorities = Authorities::open(cloud.vault.clone(), None).await;
        let (other, _) = controller(&cloud.store, authorities.expect("they are loaded"));
        let mut follower = Follower::open(&cloud.store).await.expect("the log is read");
        follower.subscribe(Arc::new(other.clone()));
        let bound = cloud.token(Some("a"), 60).await;
        let (status, second) = cloud.join(&bound, "a", "192.0.2.1").await;
        assert_eq!(status, 200, "{second}");
        assert!(!other.revoked().has(&serial(&first)));
        follower.poll().await.expect("the entries are applied");
        assert!(other.revoked().has(&serial(&first)));
        assert!(!other.revoked().has(&serial(&second)));
    }
}

/// Without its sealing key a controller cannot load a new authority, but still reads revocations.
#[tokio::test]
async fn revocations_are_read_though_the_authorities_cannot_be() {
    for cloud in clouds().await {
        let (_, given) = cloud.join(&cloud.token(None, 60).await, "a", "192.0.2.1").await;
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let copy = folder.path().join("seal.key");
        std::fs::copy(cloud._guard.1.path().join("seal.key"), &copy).expect("the key is copied");
        let other = Vault::open(cloud.store.clone(), KeySource::Default(copy)).await;
        let authorities = Authorities::open(other.expect("it has the key"), None).await;
        let (other, _) = controller(&cloud.store, authorities.expect("they are loaded"));
        cloud.vault.add_key().await.expect("a key is added");
        cloud.vault.reseal().await.expect("the secrets are resealed");
        Authorities::rotate(&cloud.vault).await.expect("it begins");
        let what = "DELETE /v2.1/kilonova/enrollments/a";
        assert_eq!(cloud.send(what, None, &Value::Null).await.0, 200);
        let said = other.refresh().await.expect_err("it lacks the key").to_string();
        assert!(said.contains("are sealed with key"), "{said}");
        assert!(other.revoked().has(&serial(&given)));
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
        let (status, text) = cloud.send(what, None, &Value::Null).await;
        assert_eq!((status, &text["revoked"]["certificates"]), (200, &json!(1)), "{text}");
        assert_eq!(cloud.send(what, None, &Value::Null).await.0, 404);
        cloud.refused(&open, "a", "192.0.2.1", "token is unknown").await;
        let (_, listed) = cloud.send("GET /v2.1/kilonova/enrollments", None, &Value::Null).await;
        assert_eq!(listed["certificates"][0]["state"], "revoked", "{listed}");
        let authorities = Authorities::open(cloud.vault.clone(), None).await;
        let authorities = authorities.expect("the authority is loaded");
        let options = EnrollOptions { url: String::new(), valid: VALID };
        let other = Enrollment::new(cloud.store.clone(), authorities, options);
        assert!(!other.revoked().has(&serial(&given)));
        other.refresh().await.expect("the revocations are read");
        assert!(other.revoked().has(&serial(&given)));
    }
}

/// A token may be revoked before its host has a certificate, and also one that names no host.
#[tokio::test]
async fn unused_tokens_are_revoked() {
    for cloud in clouds().await {
        let named = cloud.token(Some("a"), 60).await;
        let (one, other) = (cloud.token(None, 60).await, cloud.token(None, 60).await);
        let revoke = async |path: &str| {
            let what = format!("DELETE /v2.1/kilonova/enrollments{path}");
            cloud.send(&what, None, &Value::Null).await
        };
        let (status, text) = revoke("/a").await;
        let counts = json!({"host": "a", "certificates": 0, "tokens": 1});
        assert_eq!((status, &text["revoked"]), (200, &counts), "{text}");
        let (status, text) = revoke("/a").await;
        let why = "Host a has no valid certificate and no unused join token.";
        assert_eq!((status, text.to_string().contains(why)), (404, true), "{text}");
        cloud.refused(&named, "a", "192.0.2.1", "token is unknown").await;
        cloud.join(&one, "b", "192.0.2.2").await;
        // A path whose host is empty is no request for the tokens without a host.
        for unclear in ["", "?host=", "?host=a", "?host=none&host=none", "?all=1&host=none"] {
            assert_eq!(revoke(unclear).await.0, 400, "{unclear}");
        }
        let (status, text) = revoke("?host=none").await;
        assert_eq!((status, &text["revoked"]["tokens"]), (200, &json!(1)), "{text}");
        assert_eq!(revoke("?host=none").await.0, 404);
        cloud.refused(&other, "c", "192.0.2.3", "token is unknown").await;
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
                vault: cloud.vault.clone(),
                _guard: (
                    kilonova_testkit::stores(&[]).await.remove(0).2,
                    tempfile::tempdir().expect("a temporary directory is created"),
                ),
            };
            let (status, text) = cloud.send(what, None, &body).await;
            assert!(status == 409 && text.to_string().contains("--node-listen"), "{text}");
        }
    }
}

fn made() -> AuthorityPem {
    let (certificate, key) = Authority::make(time::now()).expect("the authority is created");
    AuthorityPem { certificate, key }
}

fn again(pem: &AuthorityPem) -> AuthorityPem {
    AuthorityPem { certificate: pem.certificate.clone(), key: pem.key.clone() }
}

#[tokio::test]
async fn statements_prepare_on_each_database() {
    for cloud in clouds().await {
        for list in statements().into_iter().chain(kilonova_seal::statements()) {
            assert_eq!(cloud.store.refused(list).await, Vec::<String>::new());
        }
    }
}

#[tokio::test]
async fn controllers_that_start_at_once_agree_on_one_authority() {
    for (_, store, _guard) in stores().await {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let vault = vault(&store, folder.path()).await;
        let open = || tokio::spawn(Authorities::open(vault.clone(), None));
        let starts = [open(), open(), open()];
        let mut seen = Vec::new();
        for start in starts {
            let opened = start.await.expect("the task does not panic").expect("it starts");
            seen.push(opened.shown().fingerprint());
        }
        assert!(seen.iter().all(|one| *one == seen[0]), "{seen:?}");
        let all = Authorities::list(&vault).await.expect("they are read");
        assert_eq!(all.len(), 1);
    }
}

#[tokio::test]
async fn an_authority_in_files_is_imported_whole_or_not_at_all() {
    for at in 0..2 {
        for death in [Death::BeforeCommit, Death::AfterCommit] {
            for (_, store, _guard) in stores().await {
                let folder = tempfile::tempdir().expect("a temporary directory is created");
                let files = made();
                let ours = kilonova_pki::fingerprint(&files.certificate).expect("it is read");
                let plan = CrashPlan::at(at, death);
                let dying = store.with_crash_plan(plan.clone());
                let source = || KeySource::Default(folder.path().join("seal.key"));
                if let Ok(vault) = Vault::open(dying, source()).await {
                    let outcome = Authorities::open(vault, Some(again(&files))).await;
                    assert_eq!(outcome.is_err(), plan.is_dead(), "write {at}");
                }
                let vault = vault(&store, folder.path()).await;
                let opened = Authorities::open(vault.clone(), Some(again(&files))).await;
                assert_eq!(opened.expect("it starts again").shown().fingerprint(), ours);
                assert_eq!(Authorities::list(&vault).await.expect("they are read").len(), 1);
                let copy = Authorities::export(&vault).await.expect("it is exported");
                assert!(copy.key == files.key && copy.certificate == files.certificate);
            }
        }
    }
}

#[tokio::test]
async fn another_authority_than_the_clouds_is_not_imported() {
    const KNOWN: kilonova_store::Migration = kilonova_store::Migration {
        name: "test-known",
        sql: "INSERT INTO enroll_authority (one, fingerprint) VALUES (1, 'abcd');",
    };
    let migrations: [&[_]; 3] = [kilonova_seal::MIGRATIONS, MIGRATIONS, &[KNOWN]];
    for (_, store, _guard) in kilonova_testkit::stores(&migrations).await {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let vault = vault(&store, folder.path()).await;
        for (earlier, words) in [
            (Some(made()), "but the cloud's is abcd"),
            (None, "(abcd) is in the folder ca of the controller that created it"),
        ] {
            let said = Authorities::open(vault.clone(), earlier).await.expect_err(words);
            assert!(said.to_string().contains(words), "{said}");
        }
    }
}

impl Cloud {
    /// The authorities for a host, after it has reported those that it trusts.
    async fn authorities(&self, host: &str, has: &str) -> Value {
        let digest = Fingerprint::of(has.as_bytes());
        let what = format!("GET /node/v1/hosts/{host}/authorities?has={digest}");
        let (status, said) = self.send(&what, Some(host), &Value::Null).await;
        assert_eq!(status, 200, "{said}");
        said
    }

    async fn renew(&self, host: &str) -> Value {
        let (status, said) = self.renewed(host, "00", &[]).await;
        assert_eq!(status, 200, "{said}");
        said
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("the value is a text")
}

#[tokio::test]
async fn a_rotation_of_the_authority_waits_for_the_hosts() {
    for cloud in clouds().await {
        let join = cloud.token(None, 60).await;
        let (_, joined) = cloud.join(&join, "a", "192.0.2.1").await;
        let old = text(&joined["authority"]).to_owned();
        let vault = &cloud.vault;
        let day = SignedDuration::from_hours(24);
        let refused = |error: kilonova_enroll::Error, words: &str| {
            assert!(error.to_string().contains(words), "{error}");
        };
        refused(
            Authorities::activate(vault, day, false).await.unwrap_err(),
            "no authority is staged",
        );
        refused(Authorities::retire(vault, false).await.unwrap_err(), "no authority is outgoing");
        refused(Authorities::cancel(vault).await.unwrap_err(), "no authority is staged");
        // Hosts see no trace of a cancelled rotation.
        Authorities::rotate(vault).await.expect("it begins");
        refused(Authorities::rotate(vault).await.unwrap_err(), "is staged");
        Authorities::cancel(vault).await.expect("it ends");
        cloud.enrollment.refresh().await.expect("they are read");
        assert_eq!(cloud.authorities("a", &old).await["authorities"], old);

        let new = Authorities::rotate(vault).await.expect("it begins");
        cloud.enrollment.refresh().await.expect("they are read");
        let told = cloud.authorities("a", &old).await;
        let both = text(&told["authorities"]).to_owned();
        assert!(both.starts_with(&old) && both.len() > old.len());
        assert_ne!(text(&told["signing"]), new.to_string(), "it signs nothing yet");
        assert_eq!(cloud.renew("a").await["authority"], both);
        refused(
            Authorities::activate(vault, day, false).await.unwrap_err(),
            "1 host(s) do not trust",
        );
        cloud.authorities("a", &both).await;
        let (until, late) = Authorities::activate(vault, day, false).await.expect("it signs");
        assert!(late.is_empty() && until > time::now());

        // A controller that has not noticed the change still signs with the new authority.
        let renewed = cloud.renew("a").await;
        let by = |fingerprint: &str| {
            kilonova_pki::is_issued_by(text(&renewed["certificate"]), &both, fingerprint)
        };
        assert!(by(&new.to_string()).expect("it is read"));
        let told = cloud.authorities("a", &both).await;
        assert_eq!(
            (text(&told["authorities"]), text(&told["signing"])),
            (&*both, &*new.to_string())
        );
        let join = cloud.token(None, 60).await;
        let (status, _) = cloud.join(&join, "b", "192.0.2.2").await;
        assert_eq!(status, 200);
        refused(
            Authorities::retire(vault, false).await.unwrap_err(),
            "still use the old authority",
        );
        refused(Authorities::rotate(vault).await.unwrap_err(), "is still trusted");
        cloud.authorities("b", &both).await;
        assert!(Authorities::retire(vault, false).await.expect("it ends").is_empty());
        cloud.enrollment.refresh().await.expect("they are read");
        let told = cloud.authorities("a", &both).await;
        assert!(both.ends_with(text(&told["authorities"])) && told["authorities"] != both);
        assert_eq!(cloud.enrollment.authorities().shown().fingerprint(), new);
        let states: Vec<AuthorityState> = Authorities::list(vault)
            .await
            .expect("they are read")
            .iter()
            .map(|one| one.state)
            .collect();
        let retired = AuthorityState::Retired;
        assert_eq!(states, [retired, retired, AuthorityState::Signing]);
        let sealed = vault.list().await.expect("they are listed").1;
        assert_eq!(sealed.len(), 1, "the keys of retired authorities are deleted");
    }
}

/// The hosts are checked before the transaction, so the transaction must notice a concurrent step.
#[tokio::test]
async fn of_two_steps_at_once_one_is_refused() {
    for cloud in clouds().await {
        let vault = &cloud.vault;
        for overlap in [SignedDuration::ZERO, SignedDuration::from_hours(1)] {
            Authorities::rotate(vault).await.expect("it begins");
            let activate = || Authorities::activate(vault, overlap, true);
            let (one, other) = tokio::join!(activate(), activate());
            assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
            if !overlap.is_zero() {
                let retire = || Authorities::retire(vault, true);
                let (one, other) = tokio::join!(retire(), retire());
                assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
            }
        }
        let all = Authorities::list(vault).await.expect("they are read");
        let signing = all.iter().filter(|one| one.state == AuthorityState::Signing);
        assert_eq!(signing.count(), 1);
    }
}

#[tokio::test]
async fn the_trust_in_the_old_authority_ends_with_its_time() {
    for cloud in clouds().await {
        let join = cloud.token(None, 60).await;
        cloud.join(&join, "a", "192.0.2.1").await;
        let new = Authorities::rotate(&cloud.vault).await.expect("it begins");
        let (_, late) = Authorities::activate(&cloud.vault, SignedDuration::ZERO, true)
            .await
            .expect("it is forced");
        assert_eq!(late.iter().map(|host| host.as_str()).collect::<Vec<_>>(), ["a"]);
        cloud.enrollment.refresh().await.expect("they are read");
        assert_eq!(cloud.enrollment.authorities().shown().fingerprint(), new);
        // Another rotation may begin, whether or not this one was ended.
        let shown = async || {
            const SHOWN: &str = "SELECT fingerprint FROM enroll_authority WHERE one = 1";
            let read = cloud.store.read(|tx| {
                let row = tx.row(SHOWN, kilonova_store::params![])?;
                row.map(|row| row.string("fingerprint")).transpose()
            });
            let read: Result<_, kilonova_store::Error> = read.await;
            read.expect("it is read").expect("there is one")
        };
        assert_ne!(shown().await, new.to_string());
        let staged = Authorities::rotate(&cloud.vault).await.expect("it begins");
        assert_eq!(shown().await, new.to_string(), "a rotation ends the expired trust");
        let all = Authorities::list(&cloud.vault).await.expect("they are read");
        let states: Vec<AuthorityState> = all.iter().map(|one| one.state).collect();
        let expected = [AuthorityState::Retired, AuthorityState::Signing, AuthorityState::Staged];
        assert_eq!(states, expected);
        Authorities::activate(&cloud.vault, SignedDuration::ZERO, true).await.expect("it signs");
        let late = Authorities::retire(&cloud.vault, false).await.expect("it is no longer trusted");
        assert_eq!(late.len(), 1);
        assert_eq!(shown().await, staged.to_string(), "so does ending a rotation");
        Authorities::rotate(&cloud.vault).await.expect("it begins");
    }
}

#[tokio::test]
async fn an_inspection_names_the_hosts_that_are_late() {
    for cloud in clouds().await {
        let inspect = async |days: i64| {
            let now = time::after(time::now(), SignedDuration::from_hours(24 * days));
            Authorities::inspect(&cloud.store, now).await.expect("it is read")
        };
        let (_, joined) = cloud.join(&cloud.token(None, 60).await, "a", "192.0.2.1").await;
        cloud.join(&cloud.token(None, 60).await, "b", "192.0.2.2").await;
        let late = |found: &kilonova_enroll::Inspection| {
            let late = found.authorities.iter().map(|one| {
                (one.known.state, one.late.iter().map(ToString::to_string).collect::<Vec<_>>())
            });
            late.collect::<Vec<_>>()
        };
        let (staged, signing) = (AuthorityState::Staged, AuthorityState::Signing);
        let outgoing = AuthorityState::Outgoing;
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let found = inspect(0).await;
        assert_eq!((late(&found), found.hosts), (vec![(signing, vec![])], 2));
        assert!(found.authorities[0].not_after > time::after(time::now(), VALID * 12));
        assert!(found.expiring.is_empty());
        // Thirty days of validity: renewal after twenty, and late after twenty-five.
        assert!(inspect(24).await.expiring.is_empty());
        let expiring = inspect(26).await.expiring;
        assert_eq!(expiring.iter().map(|one| &*one.0).collect::<Vec<_>>(), ["a", "b"]);
        let (status, _) = cloud.renewed("a", &serial(&joined), &["192.0.2.1"]).await;
        assert_eq!(status, 200);

        Authorities::rotate(&cloud.vault).await.expect("it begins");
        cloud.enrollment.refresh().await.expect("they are read");
        let old = text(&joined["authority"]);
        let both = cloud.authorities("a", old).await;
        cloud.authorities("a", text(&both["authorities"])).await;
        assert_eq!(late(&inspect(0).await), [(signing, vec![]), (staged, names(&["b"]))]);
        Authorities::activate(&cloud.vault, VALID, true).await.expect("it is forced");
        let found = inspect(0).await;
        assert_eq!(late(&found), [(outgoing, names(&["a", "b"])), (signing, vec![])]);
        let (status, _) = cloud.renewed("a", &serial(&joined), &["192.0.2.1"]).await;
        assert_eq!(status, 200);
        assert_eq!(late(&inspect(0).await)[0], (outgoing, names(&["b"])));
        cloud.send("DELETE /v2.1/kilonova/enrollments/b", None, &Value::Null).await;
        assert_eq!((late(&inspect(0).await)[0].1.len(), inspect(0).await.hosts), (0, 1));
    }
}

#[tokio::test]
async fn only_a_host_says_what_it_trusts() {
    for cloud in clouds().await {
        let digest = "a".repeat(64);
        let what = format!("GET /node/v1/hosts/a/authorities?has={digest}");
        assert_eq!(cloud.send(&what, Some("b"), &Value::Null).await.0, 403);
        assert_eq!(cloud.send(&what, None, &Value::Null).await.0, 401);
        for wrong in ["x", "", &"g".repeat(64), &"a".repeat(65)] {
            let what = format!("GET /node/v1/hosts/a/authorities?has={wrong}");
            assert_eq!(cloud.send(&what, Some("a"), &Value::Null).await.0, 400, "{wrong}");
        }
        let what = "GET /node/v1/hosts/a/authorities";
        assert_eq!(cloud.send(what, Some("a"), &Value::Null).await.0, 200);
    }
}

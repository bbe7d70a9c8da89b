//! Validation against a fake Keystone that fails on demand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use kilonova_keystone::{Credentials, Validator};
use serde_json::json;

use super::{admit, login, options, serve};

/// The behaviour of the fake and a record of its requests.
#[derive(Default)]
struct Fake {
    /// Status of validations; 0 for 200.
    status: AtomicU32,
    /// Lifetime of its tokens in seconds.
    lasts: AtomicU32,
    /// Duration of a validation in milliseconds.
    slow: AtomicU32,
    /// Number of the first login whose token is accepted.
    valid_from: AtomicUsize,
    logins: AtomicUsize,
    validations: AtomicUsize,
    /// Number of validations that it first answers with 503.
    unavailable: AtomicUsize,
    /// The body of the last login.
    login: std::sync::Mutex<serde_json::Value>,
}

type Shared = State<Arc<Fake>>;

fn end(seconds: u32) -> String {
    (jiff::Timestamp::now() + Duration::from_secs(seconds.into())).to_string()
}

async fn log_in(State(fake): Shared, Json(body): Json<serde_json::Value>) -> Response {
    *fake.login.lock().expect("the lock is not poisoned") = body;
    let number = fake.logins.fetch_add(1, Ordering::SeqCst) + 1;
    let body = json!({"token": {"expires_at": end(fake.lasts.load(Ordering::SeqCst))}});
    (StatusCode::CREATED, [("x-subject-token", number.to_string())], Json(body)).into_response()
}

async fn show(State(fake): Shared, uri: axum::http::Uri, headers: HeaderMap) -> Response {
    fake.validations.fetch_add(1, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(fake.slow.load(Ordering::SeqCst).into())).await;
    let unavailable = fake.unavailable.load(Ordering::SeqCst);
    if unavailable > 0 {
        fake.unavailable.store(unavailable - 1, Ordering::SeqCst);
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let ours: usize =
        headers["x-auth-token"].to_str().ok().and_then(|t| t.parse().ok()).unwrap_or_default();
    if ours < fake.valid_from.load(Ordering::SeqCst) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let subject = headers["x-subject-token"].to_str().unwrap_or_default();
    let allowed = uri.query().is_some_and(|query| query.contains("allow_expired=1"));
    if subject == "expired" && !allowed {
        return StatusCode::NOT_FOUND.into_response();
    }
    if subject == "of a service" {
        let token = json!({"token": {
            "user": {"id": "s", "name": "neutron"}, "roles": [{"name": "service"}],
            "expires_at": end(600),
        }});
        return Json(token).into_response();
    }
    match fake.status.load(Ordering::SeqCst) {
        0 => Json(json!({"token": {
            "user": {"id": "u", "name": "un"}, "project": {"id": "p", "name": "pn"},
            "roles": [{"name": "reader"}], "expires_at": end(600),
        }}))
        .into_response(),
        1 => Json(json!({"token": {"roles": 7}})).into_response(),
        status => StatusCode::from_u16(status as u16).expect("the status is valid").into_response(),
    }
}

async fn fake_keystone() -> (Arc<Fake>, Validator) {
    fake_keystone_with(|_| {}).await
}

async fn fake_keystone_with(
    change: impl FnOnce(&mut kilonova_keystone::ValidatorOptions),
) -> (Arc<Fake>, Validator) {
    let fake = Arc::new(Fake { lasts: AtomicU32::new(600), ..Fake::default() });
    let routes = Router::new()
        .route("/v3/auth/tokens", post(log_in).get(show))
        .with_state(Arc::clone(&fake));
    let address = serve(routes).await;
    let mut options = options(login(format!("http://{address}/"), "x"));
    change(&mut options);
    let validator = Validator::new(options).expect("the validator builds");
    (fake, validator)
}

#[tokio::test]
async fn concurrent_requests_with_a_new_token_are_validated_once() {
    let (fake, validator) = fake_keystone().await;
    fake.slow.store(100, Ordering::SeqCst);
    let asking: Vec<_> = (0..50)
        .map(|_| {
            let validator = validator.clone();
            tokio::spawn(async move { admit(&validator, &[("x-auth-token", "same")]).await })
        })
        .collect();
    for one in asking {
        let context = one.await.expect("the task ends").expect("the token is valid");
        assert_eq!((context.user_id.as_str(), context.project_id.as_str()), ("u", "p"));
        assert_eq!(context.roles, ["reader"]);
    }
    assert_eq!(fake.validations.load(Ordering::SeqCst), 1);
    assert_eq!(fake.logins.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_service_token_is_renewed_when_it_expires_or_is_revoked() {
    let (fake, validator) = fake_keystone().await;
    fake.lasts.store(30, Ordering::SeqCst);
    for token in ["a", "b"] {
        admit(&validator, &[("x-auth-token", token)]).await.expect("the token is valid");
    }
    assert_eq!(fake.logins.load(Ordering::SeqCst), 2, "a token of 30 s is too short to keep");
    fake.lasts.store(600, Ordering::SeqCst);
    for token in ["c", "d"] {
        admit(&validator, &[("x-auth-token", token)]).await.expect("the token is valid");
    }
    assert_eq!(fake.logins.load(Ordering::SeqCst), 3);
    fake.valid_from.store(4, Ordering::SeqCst);
    admit(&validator, &[("x-auth-token", "e")]).await.expect("the service token is renewed");
    assert_eq!(fake.logins.load(Ordering::SeqCst), 4);
    fake.valid_from.store(100, Ordering::SeqCst);
    let fault =
        admit(&validator, &[("x-auth-token", "f")]).await.expect_err("renewal does not help");
    assert_eq!((fault.status().as_u16(), fake.logins.load(Ordering::SeqCst)), (503, 5));
}

#[tokio::test]
async fn a_failing_keystone_is_503_for_new_tokens_and_is_not_cached() {
    let (fake, validator) = fake_keystone().await;
    admit(&validator, &[("x-auth-token", "known")]).await.expect("the token is valid");
    for status in [500, 503, 403, 1, 204] {
        fake.status.store(status, Ordering::SeqCst);
        let fault = admit(&validator, &[("x-auth-token", "new")])
            .await
            .expect_err("the token is not accepted");
        assert_eq!(
            (fault.status().as_u16(), fault.refusal.retry_after),
            (503, Some(1)),
            "{status}"
        );
        assert!(
            fault.refusal.message.contains("temporarily unavailable"),
            "{}",
            fault.refusal.message
        );
        admit(&validator, &[("x-auth-token", "known")])
            .await
            .expect("the cached token is admitted");
    }
    fake.status.store(0, Ordering::SeqCst);
    admit(&validator, &[("x-auth-token", "new")]).await.expect("the token is valid");
}

#[tokio::test]
async fn a_refused_token_is_cached() {
    let (fake, validator) = fake_keystone().await;
    fake.status.store(404, Ordering::SeqCst);
    for _ in 0..20 {
        let fault =
            admit(&validator, &[("x-auth-token", "no")]).await.expect_err("the token is refused");
        assert_eq!(fault.status(), 401);
    }
    assert_eq!(fake.validations.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn callers_do_not_queue_up_while_keystone_is_unreachable() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("the socket is bound");
    let address = listener.local_addr().expect("the socket has an address");
    drop(listener);
    let validator = Validator::new(options(login(format!("http://{address}"), "x")))
        .expect("the validator builds");
    let begun = std::time::Instant::now();
    for n in 0..30 {
        let token = n.to_string();
        let fault = admit(&validator, &[("x-auth-token", &token)])
            .await
            .expect_err("an unavailable Keystone is reported");
        assert_eq!(fault.status(), 503);
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_temporary_failure_is_retried() {
    let (fake, validator) = fake_keystone_with(|options| options.retries = 2).await;
    fake.unavailable.store(2, Ordering::SeqCst);
    admit(&validator, &[("x-auth-token", "a")]).await.expect("the third attempt succeeds");
    assert_eq!(fake.validations.load(Ordering::SeqCst), 3);
    fake.unavailable.store(3, Ordering::SeqCst);
    let fault =
        admit(&validator, &[("x-auth-token", "b")]).await.expect_err("the retries are used up");
    assert_eq!(fault.status(), 503);
    fake.status.store(404, Ordering::SeqCst);
    let before = fake.validations.load(Ordering::SeqCst);
    admit(&validator, &[("x-auth-token", "c")]).await.expect_err("an unknown token is refused");
    assert_eq!(fake.validations.load(Ordering::SeqCst), before + 1, "a refusal is not retried");
}

#[tokio::test]
async fn the_timeout_limits_a_validation() {
    let (fake, validator) =
        fake_keystone_with(|options| options.timeout = Duration::from_millis(200)).await;
    fake.slow.store(60_000, Ordering::SeqCst);
    let begun = std::time::Instant::now();
    let fault =
        admit(&validator, &[("x-auth-token", "a")]).await.expect_err("a slow Keystone is reported");
    assert_eq!(fault.status(), 503);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn configured_domain_ids_take_precedence() {
    let (fake, validator) = fake_keystone_with(|options| {
        if let Credentials::Password(_, ids) = &mut options.credentials {
            ids.user_domain = Some("default".into());
        }
    })
    .await;
    validator.check().await.expect("the login succeeds");
    let login = fake.login.lock().expect("the lock is not poisoned").clone();
    let user = &login["auth"]["identity"]["password"]["user"];
    assert_eq!(user["domain"], json!({"id": "default"}));
    assert_eq!(login["auth"]["scope"]["project"]["domain"], json!({"name": "Default"}));
}

#[tokio::test]
async fn an_expired_token_is_accepted_with_a_token_of_a_service() {
    for required in [true, false] {
        let (_fake, validator) =
            fake_keystone_with(|options| options.service_token_roles_required = required).await;
        let expired = ("x-auth-token", "expired");
        let refused = admit(&validator, &[expired]).await.expect_err("the token has expired");
        assert_eq!(refused.status(), 401);
        let vouched = [expired, ("x-service-token", "of a service")];
        let context = admit(&validator, &vouched).await.expect("the service vouches");
        assert_eq!(
            (context.user_id.as_str(), &context.service_roles),
            ("u", &vec!["service".into()])
        );
        assert!(context.is_service());
        // An earlier vouched request does not make the user's token valid on its own.
        admit(&validator, &[expired]).await.expect_err("no service vouches");
        let other = [expired, ("x-service-token", "of a user")];
        let refused = admit(&validator, &other).await.expect_err("the role is missing");
        assert_eq!(refused.status(), 401);
        let valid = [("x-auth-token", "valid"), ("x-service-token", "of a user")];
        let admitted = admit(&validator, &valid).await;
        assert_eq!(admitted.is_err(), required, "an ignored service token changes nothing");
        assert!(admitted.is_err() || admitted.is_ok_and(|caller| caller.service_roles.is_empty()));
    }
}

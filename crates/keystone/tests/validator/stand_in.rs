//! Against a Keystone that fails in a chosen way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use kilonova_keystone::Validator;
use serde_json::json;

use super::{admit, login, options, serve};

/// What it does next, and what it has been asked.
#[derive(Default)]
struct Mood {
    /// Status of validations; 0 for 200.
    status: AtomicU32,
    /// Seconds that its tokens last.
    lasts: AtomicU32,
    /// Milliseconds that a validation takes.
    slow: AtomicU32,
    /// Logins whose token is taken; tokens of earlier ones are not.
    valid_from: AtomicUsize,
    logins: AtomicUsize,
    questions: AtomicUsize,
    /// Questions that are answered 503 before others are answered.
    away: AtomicUsize,
    /// The last login, as it came.
    login: std::sync::Mutex<serde_json::Value>,
}

type Shared = State<Arc<Mood>>;

fn end(seconds: u32) -> String {
    (jiff::Timestamp::now() + Duration::from_secs(seconds.into())).to_string()
}

async fn log_in(State(mood): Shared, Json(body): Json<serde_json::Value>) -> Response {
    *mood.login.lock().expect("not poisoned") = body;
    let number = mood.logins.fetch_add(1, Ordering::SeqCst) + 1;
    let body = json!({"token": {"expires_at": end(mood.lasts.load(Ordering::SeqCst))}});
    (StatusCode::CREATED, [("x-subject-token", number.to_string())], Json(body)).into_response()
}

async fn show(State(mood): Shared, headers: HeaderMap) -> Response {
    mood.questions.fetch_add(1, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(mood.slow.load(Ordering::SeqCst).into())).await;
    let away = mood.away.load(Ordering::SeqCst);
    if away > 0 {
        mood.away.store(away - 1, Ordering::SeqCst);
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let ours: usize =
        headers["x-auth-token"].to_str().ok().and_then(|t| t.parse().ok()).unwrap_or_default();
    if ours < mood.valid_from.load(Ordering::SeqCst) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    match mood.status.load(Ordering::SeqCst) {
        0 => Json(json!({"token": {
            "user": {"id": "u", "name": "un"}, "project": {"id": "p", "name": "pn"},
            "roles": [{"name": "reader"}], "expires_at": end(600),
        }}))
        .into_response(),
        1 => Json(json!({"token": {"roles": 7}})).into_response(),
        status => StatusCode::from_u16(status as u16).expect("a status").into_response(),
    }
}

async fn stand_in() -> (Arc<Mood>, Validator) {
    stand_in_with(|_| {}).await
}

async fn stand_in_with(
    change: impl FnOnce(&mut kilonova_keystone::Options),
) -> (Arc<Mood>, Validator) {
    let mood = Arc::new(Mood { lasts: AtomicU32::new(600), ..Mood::default() });
    let routes = Router::new()
        .route("/v3/auth/tokens", post(log_in).get(show))
        .with_state(Arc::clone(&mood));
    let address = serve(routes).await;
    let mut options = options(login(format!("http://{address}/"), "x"));
    change(&mut options);
    let validator = Validator::new(options).expect("set up");
    (mood, validator)
}

#[tokio::test]
async fn many_requests_with_a_new_token_are_one_question() {
    let (mood, validator) = stand_in().await;
    mood.slow.store(100, Ordering::SeqCst);
    let asking: Vec<_> = (0..50)
        .map(|_| {
            let validator = validator.clone();
            tokio::spawn(async move { admit(&validator, &[("x-auth-token", "same")]).await })
        })
        .collect();
    for one in asking {
        let context = one.await.expect("it ends").expect("let in");
        assert_eq!((context.user_id.as_str(), context.project_id.as_str()), ("u", "p"));
        assert_eq!(context.roles, ["reader"]);
    }
    assert_eq!(mood.questions.load(Ordering::SeqCst), 1);
    assert_eq!(mood.logins.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn our_own_token_is_renewed_when_it_ends_or_is_revoked() {
    let (mood, validator) = stand_in().await;
    mood.lasts.store(30, Ordering::SeqCst);
    for token in ["a", "b"] {
        admit(&validator, &[("x-auth-token", token)]).await.expect("let in");
    }
    assert_eq!(mood.logins.load(Ordering::SeqCst), 2, "30 s is too short to be kept");
    mood.lasts.store(600, Ordering::SeqCst);
    for token in ["c", "d"] {
        admit(&validator, &[("x-auth-token", token)]).await.expect("let in");
    }
    assert_eq!(mood.logins.load(Ordering::SeqCst), 3);
    mood.valid_from.store(4, Ordering::SeqCst);
    admit(&validator, &[("x-auth-token", "e")]).await.expect("let in with a new token of ours");
    assert_eq!(mood.logins.load(Ordering::SeqCst), 4);
    mood.valid_from.store(100, Ordering::SeqCst);
    let fault = admit(&validator, &[("x-auth-token", "f")]).await.expect_err("no use");
    assert_eq!((fault.status.as_u16(), mood.logins.load(Ordering::SeqCst)), (503, 5));
}

#[tokio::test]
async fn a_failing_keystone_is_503_for_new_tokens_and_nothing_is_remembered() {
    let (mood, validator) = stand_in().await;
    admit(&validator, &[("x-auth-token", "known")]).await.expect("let in");
    for status in [500, 503, 403, 1, 204] {
        mood.status.store(status, Ordering::SeqCst);
        let fault = admit(&validator, &[("x-auth-token", "new")]).await.expect_err("not let in");
        assert_eq!(fault.status, 503, "{status}");
        assert!(fault.message.contains("temporarily unavailable"), "{}", fault.message);
        admit(&validator, &[("x-auth-token", "known")]).await.expect("remembered");
    }
    mood.status.store(0, Ordering::SeqCst);
    admit(&validator, &[("x-auth-token", "new")]).await.expect("let in");
}

#[tokio::test]
async fn a_refused_token_is_not_asked_about_again_at_once() {
    let (mood, validator) = stand_in().await;
    mood.status.store(404, Ordering::SeqCst);
    for _ in 0..20 {
        let fault = admit(&validator, &[("x-auth-token", "no")]).await.expect_err("refused");
        assert_eq!(fault.status, 401);
    }
    assert_eq!(mood.questions.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn with_keystone_away_callers_do_not_queue_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let validator =
        Validator::new(options(login(format!("http://{address}"), "x"))).expect("set up");
    let begun = std::time::Instant::now();
    for n in 0..30 {
        let token = n.to_string();
        let fault = admit(&validator, &[("x-auth-token", &token)]).await.expect_err("away");
        assert_eq!(fault.status, 503);
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_keystone_that_is_away_for_a_moment_is_asked_again() {
    let (mood, validator) = stand_in_with(|options| options.retries = 2).await;
    mood.away.store(2, Ordering::SeqCst);
    admit(&validator, &[("x-auth-token", "a")]).await.expect("let in at the third attempt");
    assert_eq!(mood.questions.load(Ordering::SeqCst), 3);
    mood.away.store(3, Ordering::SeqCst);
    let fault = admit(&validator, &[("x-auth-token", "b")]).await.expect_err("three are too many");
    assert_eq!(fault.status, 503);
    mood.status.store(404, Ordering::SeqCst);
    let before = mood.questions.load(Ordering::SeqCst);
    admit(&validator, &[("x-auth-token", "c")]).await.expect_err("no such token");
    assert_eq!(mood.questions.load(Ordering::SeqCst), before + 1, "an answer is an answer");
}

#[tokio::test]
async fn keystone_has_as_long_as_it_is_given() {
    let (mood, validator) =
        stand_in_with(|options| options.timeout = Duration::from_millis(200)).await;
    mood.slow.store(2_000, Ordering::SeqCst);
    let begun = std::time::Instant::now();
    let fault = admit(&validator, &[("x-auth-token", "a")]).await.expect_err("too slow");
    assert_eq!(fault.status, 503);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn domains_are_named_by_id_where_they_are_known_by_it() {
    let (mood, validator) = stand_in_with(|options| {
        options.domains.user = Some("default".into());
    })
    .await;
    validator.check().await.expect("logged in");
    let login = mood.login.lock().expect("not poisoned").clone();
    let user = &login["auth"]["identity"]["password"]["user"];
    assert_eq!(user["domain"], json!({"id": "default"}));
    assert_eq!(login["auth"]["scope"]["project"]["domain"], json!({"name": "Default"}));
}

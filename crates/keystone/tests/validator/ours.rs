//! Validation against our own identity service.

use http::header::WWW_AUTHENTICATE;
use http::{HeaderName, HeaderValue, Method};
use kilonova_identity::{CatalogEntry, Identity, TokenKeys};
use kilonova_keystone::{Http, Session, Validator};
use kilonova_wire::mount;
use std::sync::Arc;
use std::time::Duration;

use super::{admit, login, options, serve};

const PASSWORD: &str = "correct horse";

struct Keystone {
    url: String,
    http: Http,
    _kept: kilonova_testkit::Guard,
}

async fn keystone() -> Keystone {
    let (_, store, guard) =
        kilonova_testkit::stores(&[kilonova_identity::MIGRATIONS]).await.swap_remove(0);
    let keys = TokenKeys::in_memory().expect("the keys are generated");
    let identity = Identity::open(store, keys, Default::default()).await.expect("identity opens");
    identity.bootstrap(PASSWORD).await.expect("the bootstrap succeeds");
    identity.set_catalog(vec![CatalogEntry {
        service_type: "placement".into(),
        name: "placement".into(),
        path: "/placement".into(),
    }]);
    let routes = kilonova_identity::routes(identity.clone());
    let router = mount(routes, kilonova_identity::service(), "/identity", Arc::new(identity));
    let address = serve(axum::Router::new().nest("/identity", router)).await;
    Keystone {
        url: format!("http://{address}/identity"),
        http: Http::new(None, Duration::from_secs(10), 1 << 20).expect("the client is created"),
        _kept: guard,
    }
}

impl Keystone {
    async fn token(&self, password: &str) -> String {
        let session = Session::new(self.http.clone(), login(self.url.clone(), password));
        let held = session.token().await.expect("the answer has a token");
        held.text.to_str().expect("the text is UTF-8").to_owned()
    }

    async fn ask(&self, method: Method, path: &str, subject: Option<&str>) -> u16 {
        let admin = self.token(PASSWORD).await;
        let value = |text: &str| HeaderValue::from_str(text).expect("the header value is valid");
        let mut headers = vec![(HeaderName::from_static("x-auth-token"), value(&admin))];
        if let Some(subject) = subject {
            headers.push((HeaderName::from_static("x-subject-token"), value(subject)));
        }
        let url = format!("{}/v3{path}", self.url);
        self.http
            .send(method, &url, &headers, None)
            .await
            .expect("an answer arrives")
            .status
            .as_u16()
    }
}

#[tokio::test]
async fn a_valid_token_is_accepted_and_cached() {
    let keystone = keystone().await;
    let validator = Validator::new(options(login(keystone.url.clone(), PASSWORD)))
        .expect("the validator builds");
    validator.check().await.expect("the service user logs in");
    let token = keystone.token(PASSWORD).await;
    let context = admit(&validator, &[("x-auth-token", &token)]).await.expect("the token is valid");
    assert_eq!((context.user_name.as_str(), context.project_name.as_str()), ("admin", "admin"));
    assert!(context.is_admin() && !context.is_service(), "{context:?}");
    assert_eq!(context.project_id.len(), 32);

    let both = [("x-auth-token", token.as_str()), ("x-service-token", token.as_str())];
    let context = admit(&validator, &both).await.expect("the token is valid");
    assert!(context.service_roles.is_empty(), "admin lacks the role service");
    assert!(!context.is_service(), "an ignored service token does not vouch");

    assert_eq!(keystone.ask(Method::DELETE, "/auth/tokens", Some(&token)).await, 204);
    admit(&validator, &[("x-auth-token", &token)]).await.expect("the validation is cached");
    let mut forgetful = options(login(keystone.url.clone(), PASSWORD));
    forgetful.cache_time = Duration::ZERO;
    let forgetful = Validator::new(forgetful).expect("the validator builds");
    let fault = admit(&forgetful, &[("x-auth-token", &token)])
        .await
        .expect_err("the revoked token is refused");
    assert_eq!(fault.status(), 401);
}

#[tokio::test]
async fn an_invalid_token_is_401_with_the_login_url() {
    let keystone = keystone().await;
    let validator = Validator::new(options(login(keystone.url.clone(), PASSWORD)))
        .expect("the validator builds");
    let long = "x".repeat(20_000);
    for tokens in [
        vec![],
        vec![("x-auth-token", "")],
        vec![("x-auth-token", "made up")],
        vec![("x-auth-token", long.as_str())],
        vec![("x-auth-token", "admin"), ("x-service-token", "made up")],
    ] {
        let fault = admit(&validator, &tokens).await.expect_err("the token is invalid");
        assert_eq!(fault.status(), 401, "{tokens:?}");
        let challenge = fault.headers.get(WWW_AUTHENTICATE).expect("the element exists");
        assert_eq!(challenge, &format!("Keystone uri=\"{}\"", keystone.url));
    }
}

#[tokio::test]
async fn service_tokens_are_accepted_by_role() {
    let keystone = keystone().await;
    let token = keystone.token(PASSWORD).await;
    let mut required = options(login(keystone.url.clone(), PASSWORD));
    required.service_token_roles_required = true;
    let strict = Validator::new(required.clone()).expect("the validator builds");
    let both = [("x-auth-token", token.as_str()), ("x-service-token", token.as_str())];
    let fault = admit(&strict, &both).await.expect_err("admin lacks the role service");
    assert_eq!(fault.status(), 401);
    required.service_token_roles = vec!["admin".into()];
    let other = Validator::new(required).expect("the validator builds");
    let context = admit(&other, &both).await.expect("the token is valid");
    assert!(context.service_roles.iter().any(|role| role == "admin"), "{context:?}");
    assert!(context.is_service(), "the accepted roles decide, not the name of one: {context:?}");
}

#[tokio::test]
async fn a_wrong_service_password_is_503_and_logged_with_the_user() {
    let keystone = keystone().await;
    let validator = Validator::new(options(login(keystone.url.clone(), "wrong")))
        .expect("the validator builds");
    let why = validator.check().await.expect_err("the login is refused").to_string();
    assert!(why.contains("refuses the login of user admin"), "{why}");
    let token = keystone.token(PASSWORD).await;
    let fault = admit(&validator, &[("x-auth-token", &token)])
        .await
        .expect_err("the token is not accepted");
    assert_eq!(fault.status(), 503);
    assert!(!fault.refusal.message.contains("admin"), "{}", fault.refusal.message);
    assert!(fault.refusal.cause().expect("the fault has a cause").contains("user admin"));
}

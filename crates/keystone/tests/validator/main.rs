//! Validation of tokens of an external Keystone: against our own identity service behind a socket,
//! and against a fake that fails on demand; and requests to other services.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

mod fake_keystone;
mod ours;
mod service;

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use http::{HeaderMap, HeaderValue};
use kilonova_keystone::{Login, Validator, ValidatorOptions};
use kilonova_wire::{Authenticator, Context, Fault};

pub async fn serve(router: Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("the socket is bound");
    let address = listener.local_addr().expect("the socket has an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

pub fn login(auth_url: String, password: &str) -> Login {
    Login {
        auth_url,
        username: "admin".into(),
        password: password.into(),
        user_domain_name: "Default".into(),
        project_name: "admin".into(),
        project_domain_name: "Default".into(),
    }
}

pub fn options(login: Login) -> ValidatorOptions {
    ValidatorOptions {
        credentials: login.into(),
        timeout: Duration::from_secs(10),
        retries: 0,
        www_authenticate_uri: None,
        cafile: None,
        cache_time: Duration::from_secs(300),
        service_token_roles: vec!["service".into()],
        service_token_roles_required: false,
    }
}

pub async fn admit(
    validator: &Validator,
    tokens: &[(&'static str, &str)],
) -> Result<Context, Fault> {
    let mut headers = HeaderMap::new();
    for (name, token) in tokens {
        headers.insert(*name, HeaderValue::from_str(token).expect("the header value is valid"));
    }
    validator.authenticate(&headers).await
}

#[tokio::test]
async fn a_cafile_without_a_certificate_is_refused_by_name() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file is created");
    let mut options = options(login("https://127.0.0.1:1".into(), "x"));
    options.cafile = Some(file.path().to_owned());
    let Err(error) = Validator::new(options.clone()) else { panic!("an empty file was accepted") };
    assert!(error.to_string().contains("contains no certificate"), "{error}");
    options.cafile = Some("/nowhere/ca.pem".into());
    let Err(error) = Validator::new(options) else { panic!("a missing file was accepted") };
    assert!(error.to_string().contains("/nowhere/ca.pem"), "{error}");
}

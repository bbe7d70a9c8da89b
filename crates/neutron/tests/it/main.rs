//! Tests of the client with a fake Neutron, and of the fake with a recording of the real Neutron.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

mod client;
mod recording;
mod script;

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use kilonova_keystone::{Endpoint, Http, Login, Retries, Service, Session};
use kilonova_neutron::{Call, Neutron};
use kilonova_testkit::neutron::{FakeNeutron, PASSWORD, SERVICE_USER};

/// The service login at a Keystone.
fn login(auth_url: &str) -> Login {
    Login {
        auth_url: auth_url.to_owned(),
        username: SERVICE_USER.into(),
        password: PASSWORD.into(),
        user_domain_name: "Default".into(),
        project_name: "service".into(),
        project_domain_name: "Default".into(),
    }
}

/// The network service of the catalog, with quick retries.
fn service(auth_url: &str, timeout: Duration) -> Service {
    let http = Http::plain(timeout, 1 << 24).expect("the client is created");
    let session = Arc::new(Session::new(http, login(auth_url)));
    let endpoint = Endpoint {
        service_types: vec!["network".into()],
        interfaces: vec!["internal".into(), "public".into()],
        ..Endpoint::default()
    };
    let pause = Duration::from_millis(1);
    let retries =
        Retries { connect: 3, connect_delay: pause, status_delay: pause, ..Retries::default() };
    Service::new(session, endpoint, retries)
}

fn neutron(fake: &FakeNeutron) -> Neutron {
    let service = service(&fake.auth_url(), Duration::from_secs(10));
    Neutron::new(service, Duration::from_secs(600))
}

/// A member's token as a header.
fn member(project: &str) -> HeaderValue {
    HeaderValue::from_str(&FakeNeutron::member(project)).expect("the token is a header")
}

/// A call with the service login.
fn own() -> Call<'static> {
    Call { caller: kilonova_keystone::Caller::Own, request_id: Some("req-1") }
}

/// A call with only a user's token.
fn by(token: &HeaderValue) -> Call<'_> {
    Call { caller: kilonova_keystone::Caller::User(token), request_id: None }
}

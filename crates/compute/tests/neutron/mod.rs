//! Requests to an external Neutron for a server, against a fake in memory.

mod attach;
mod resolve;
mod vif;

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use kilonova_access::Enforcer;
use kilonova_compute_app::ports::Requested;
use kilonova_compute_app::ports::neutron::ForUser;
use kilonova_keystone::{Caller, Endpoint, Http, Login, Retries, Service, Session};
use kilonova_neutron::{Call, Neutron};
use kilonova_testkit::neutron::{FakeNeutron, PASSWORD, SERVICE_USER};
use kilonova_wire::{Context, Dialect};
use serde_json::json;

const PROJECT: &str = "77777777777777777777777777777777";

/// A Neutron with `host1`, `host2`, and a network of the project.
struct Cloud {
    fake: FakeNeutron,
    neutron: Neutron,
    policy: Enforcer,
    context: Context,
    token: HeaderValue,
    network: String,
}

impl Cloud {
    async fn new() -> Self {
        let fake = FakeNeutron::start().await;
        let network = {
            let mut state = fake.state();
            state.add_agent("host1");
            state.add_agent("host2");
            let network = state.add_network(PROJECT, "net", json!({}));
            state.add_subnet(&network, "10.99.0.0/28");
            network
        };
        let http = Http::plain(Duration::from_secs(10), 1 << 24).expect("the client is created");
        let login = Login {
            auth_url: fake.auth_url(),
            username: SERVICE_USER.into(),
            password: PASSWORD.into(),
            user_domain_name: "Default".into(),
            project_name: "service".into(),
            project_domain_name: "Default".into(),
        };
        let endpoint = Endpoint {
            service_types: vec!["network".into()],
            interfaces: vec!["internal".into()],
            ..Endpoint::default()
        };
        let service =
            Service::new(Arc::new(Session::new(http, login)), endpoint, Retries::default());
        let token = HeaderValue::from_str(&FakeNeutron::member(PROJECT)).expect("a token");
        let context = Context {
            project_id: PROJECT.into(),
            user_id: "u".into(),
            roles: vec!["member".into()],
            ..Context::default()
        };
        Self {
            fake,
            neutron: Neutron::new(service, Duration::from_secs(600)),
            policy: Enforcer::of(kilonova_compute_app::RULES, Dialect::Compute),
            context,
            token,
            network,
        }
    }

    fn call(&self) -> Call<'_> {
        Call { caller: Caller::User(&self.token), request_id: None }
    }

    fn own(&self) -> Call<'static> {
        Call { caller: Caller::Own, request_id: None }
    }

    fn user(&self) -> ForUser<'_> {
        ForUser { neutron: &self.neutron, call: self.call() }
    }

    fn by(&self) -> Requested<'_> {
        Requested { policy: &self.policy, context: &self.context }
    }
}

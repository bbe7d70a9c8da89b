//! A client of the network API over the same database.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use kilonova_network::Networks;
use kilonova_wire::noauth::NoAuth;
use serde_json::{Value, json};

use super::RunningCloud;
use crate::common::{Answer, Client};

impl RunningCloud {
    /// `neutron(ANN, "POST /ports", json)`; paths are below `/v2.0`.
    pub async fn neutron(&self, token: &str, what: &str, body: Option<Value>) -> Answer {
        let (method, path) = what.split_once(' ').expect("the call is a method and a path");
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let request = Request::builder()
            .method(method)
            .uri(format!("/v2.0{path}"))
            .header("host", "cloud:1234")
            .header("x-auth-token", token)
            .body(body)
            .expect("the request is valid");
        let routes = kilonova_network::routes(Networks::new(self.compute.store.clone()));
        let service = kilonova_network::service();
        let router = kilonova_wire::mount(routes, service, "/network", Arc::new(NoAuth));
        (Client { router }).send(request).await
    }

    /// A network of a project with one subnet, and its id.
    pub async fn network_with_subnet(&self, token: &str, name: &str, cidr: &str) -> String {
        let body = json!({"network": {"name": name}});
        let net = self.neutron(token, "POST /networks", Some(body)).await.expect(201);
        let id = net["network"]["id"].as_str().expect("the answer has an id").to_owned();
        let version = if cidr.contains(':') { 6 } else { 4 };
        let body = json!({"subnet": {"network_id": id, "cidr": cidr, "ip_version": version}});
        self.neutron(token, "POST /subnets", Some(body)).await.expect(201);
        id
    }

    /// A port and its id; `more` adds to the request.
    pub async fn port(&self, token: &str, net: &str, more: Value) -> String {
        let mut port = json!({"network_id": net});
        if let (Some(port), Value::Object(more)) = (port.as_object_mut(), more) {
            port.extend(more);
        }
        let made =
            self.neutron(token, "POST /ports", Some(json!({"port": port}))).await.expect(201);
        made["port"]["id"].as_str().expect("the answer has an id").to_owned()
    }

    /// A port as an admin sees it; null when it is gone.
    pub async fn show_port(&self, id: &str) -> Value {
        let answer = self.neutron("admin", &format!("GET /ports/{id}"), None).await;
        if answer.status == 404 { Value::Null } else { answer.expect(200)["port"].take() }
    }

    /// All ports of guests and users, as an admin sees them.
    pub async fn ports(&self) -> Vec<Value> {
        let list = self.neutron("admin", "GET /ports", None).await.expect(200);
        let all = list["ports"].as_array().expect("the answer has a list");
        all.iter().filter(|port| port["device_owner"] != "network:dhcp").cloned().collect()
    }
}

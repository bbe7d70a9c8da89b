//! Cyborg's new policy defaults, rule by rule.

use std::sync::Arc;

use axum::body::Body;
use http::{HeaderMap, Request, StatusCode};
use kilonova_accelerator::State;
use kilonova_placement::World;
use kilonova_wire::auth::Authentication;
use kilonova_wire::{Authenticator, mount, noauth::NoAuth};
use serde_json::json;

use crate::common::arqs::{PATH, SERVER, bind, request};
use crate::common::{Api, fake, report, stores};

#[tokio::test]
async fn each_role_reads_only_what_its_rules_allow() {
    let table = [
        ("none", [403, 403, 403, 403, 403]),
        ("reader", [403, 403, 403, 200, 200]),
        ("member", [403, 403, 403, 200, 200]),
        ("manager", [200, 200, 200, 200, 200]),
        ("service", [403, 403, 403, 403, 403]),
        ("admin", [200, 200, 200, 200, 200]),
    ];
    let paths = ["devices", "deployables", "attributes", "device_profiles", "accelerator_requests"];
    for (name, store, _guard) in stores().await {
        for (role, statuses) in table {
            let api = Api::admin(&store).with_roles(role);
            for (path, status) in paths.iter().zip(statuses) {
                let answer = api.get(&format!("/v2/{path}")).await;
                assert_eq!(answer.status.as_u16(), status, "{name} {role} {path}");
            }
        }
        let denied = Api::admin(&store).with_roles("reader").get("/v2/devices").await;
        let text = "Access was denied to the following resource: cyborg:device:get_all";
        assert_eq!(denied.fault(), text);
    }
}

#[tokio::test]
async fn each_role_writes_only_what_its_rules_allow() {
    let table =
        [("none", 403), ("reader", 403), ("member", 404), ("manager", 404), ("service", 404)];
    for (name, store, _guard) in stores().await {
        let body = json!({"device_profile_name": "none"});
        for (role, status) in table {
            let api = Api::admin(&store).with_roles(role);
            let arq = api.post("/v2/accelerator_requests", body.clone()).await;
            assert_eq!(arq.status.as_u16(), status, "{name} {role}");
            let profile = json!([{"name": "x", "groups": [{"resources:FPGA": "1"}]}]);
            let made = api.post("/v2/device_profiles", profile).await;
            assert_eq!(made.status, StatusCode::FORBIDDEN, "{name} {role}");
            let gone = api.delete("/v2/device_profiles/x").await;
            assert_eq!(gone.status, StatusCode::FORBIDDEN, "{name} {role}");
            assert!(gone.fault().ends_with("cyborg:device_profile:delete"));
        }
    }
}

#[tokio::test]
async fn a_token_without_a_project_is_refused() {
    for (name, store, _guard) in stores().await {
        let api = Api::admin(&store).with_roles("manager").of_project("");
        assert_eq!(api.get("/v2/devices").await.status, StatusCode::FORBIDDEN, "{name}");
        let list = api.get("/v2/device_profiles").await;
        assert_eq!(list.status, StatusCode::FORBIDDEN, "{name}");
    }
}

/// Accepts the service tokens of the role `nova`, as `service_token_roles` can say.
struct AcceptsNova;

impl Authenticator for AcceptsNova {
    fn authenticate<'a>(&'a self, headers: &'a HeaderMap) -> Authentication<'a> {
        Box::pin(async move {
            let mut context = NoAuth.authenticate(headers).await?;
            context.service = context.service_roles.iter().any(|role| role == "nova");
            Ok(context)
        })
    }
}

#[tokio::test]
async fn the_authenticator_decides_who_is_a_service() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![fake(1)]).await.unwrap();
        let arqs = request(&Api::admin(&store), "FPGA", "1").await;
        let router = mount(
            kilonova_accelerator::routes(State::new(store.clone(), World::new())),
            kilonova_accelerator::service(),
            "/accelerator",
            Arc::new(AcceptsNova),
        );
        for (role, status) in [("service", StatusCode::FORBIDDEN), ("nova", StatusCode::ACCEPTED)] {
            let request = Request::patch(PATH)
                .header("host", "cloud:8780")
                .header("x-user-id", "u1")
                .header("x-project-id", "p1")
                .header("x-roles", "admin")
                .header("x-service-roles", role)
                .body(Body::from(bind(&arqs, specs[0].id, SERVER).to_string()));
            let answer = kilonova_testkit::http::send(&router, request.unwrap()).await;
            assert_eq!(answer.status, status, "{name} {role}: {}", answer.body);
        }
    }
}

//! Every route checks the policy for its own operation before it reads the body, and the operator's
//! rules override the defaults.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use kilonova_placement::{MIGRATIONS, Placement, RULES, World};
use kilonova_policy::{Defaults, read};
use kilonova_store::Store;
use kilonova_wire::noauth::NoAuth;

const P: &str = "/resource_providers/2f6d1a53-36c0-4b0a-9d0c-1c6a6fd0a5a1";
const C: &str = "/allocations/9a3bb1c0-13a4-4f0f-8d3e-3a4a1d7f4b11";

/// Method, path (with `P` for a provider and `C` for a consumer), operation.
const ROUTES: &[(&str, &str, &str)] = &[
    ("GET", "/resource_providers", "resource_providers:list"),
    ("POST", "/resource_providers", "resource_providers:create"),
    ("GET", "P", "resource_providers:show"),
    ("PUT", "P", "resource_providers:update"),
    ("DELETE", "P", "resource_providers:delete"),
    ("GET", "P/inventories", "resource_providers:inventories:list"),
    ("POST", "P/inventories", "resource_providers:inventories:create"),
    ("PUT", "P/inventories", "resource_providers:inventories:update"),
    ("DELETE", "P/inventories", "resource_providers:inventories:delete"),
    ("GET", "P/inventories/VCPU", "resource_providers:inventories:show"),
    ("PUT", "P/inventories/VCPU", "resource_providers:inventories:update"),
    ("DELETE", "P/inventories/VCPU", "resource_providers:inventories:delete"),
    ("GET", "P/usages", "resource_providers:usages"),
    ("GET", "P/aggregates", "resource_providers:aggregates:list"),
    ("PUT", "P/aggregates", "resource_providers:aggregates:update"),
    ("GET", "P/allocations", "resource_providers:allocations:list"),
    ("GET", "P/traits", "resource_providers:traits:list"),
    ("PUT", "P/traits", "resource_providers:traits:update"),
    ("DELETE", "P/traits", "resource_providers:traits:delete"),
    ("GET", "/traits", "traits:list"),
    ("GET", "/traits/CUSTOM_T", "traits:show"),
    ("PUT", "/traits/CUSTOM_T", "traits:update"),
    ("DELETE", "/traits/CUSTOM_T", "traits:delete"),
    ("GET", "/resource_classes", "resource_classes:list"),
    ("POST", "/resource_classes", "resource_classes:create"),
    ("GET", "/resource_classes/CUSTOM_C", "resource_classes:show"),
    ("PUT", "/resource_classes/CUSTOM_C", "resource_classes:update"),
    ("DELETE", "/resource_classes/CUSTOM_C", "resource_classes:delete"),
    ("POST", "/allocations", "allocations:manage"),
    ("GET", "C", "allocations:list"),
    ("PUT", "C", "allocations:update"),
    ("DELETE", "C", "allocations:delete"),
    ("GET", "/usages?project_id=p", "usages"),
    ("GET", "/allocation_candidates?resources=VCPU:1", "allocation_candidates:list"),
    ("GET", "/allocation_candidates/explain?resources=VCPU:1", "allocation_candidates:explain"),
    ("POST", "/reshaper", "reshaper:reshape"),
];

fn router(store: &Store, rules: &str) -> Router {
    let own = read(rules).expect("the policy file is valid");
    let policy =
        kilonova_placement::policy(&own, Defaults::default()).expect("the rules are valid");
    let state = Placement {
        store: store.clone(),
        world: World::new(),
        policy: Arc::new(policy),
        manager: None,
    };
    kilonova_wire::mount(
        kilonova_placement::routes(state),
        kilonova_placement::service(),
        "/placement",
        Arc::new(NoAuth),
    )
}

async fn ask(router: &Router, method: &str, path: &str, roles: &str) -> (StatusCode, String) {
    let path = match path.split_at(1) {
        ("P", rest) => format!("{P}{rest}"),
        ("C", rest) => format!("{C}{rest}"),
        _ => path.to_owned(),
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "here")
        .header("x-auth-token", "someone:p")
        .header("x-roles", roles)
        .header("openstack-api-version", "placement 1.39");
    let request = match method {
        "GET" | "DELETE" => request.body(Body::empty()),
        _ => request.header("content-type", "application/json").body(Body::from("no JSON")),
    };
    let answer = kilonova_testkit::http::send(router, request.expect("the request is valid")).await;
    (answer.status, answer.detail().to_owned())
}

fn operations() -> BTreeSet<&'static str> {
    RULES.iter().filter_map(|rule| rule.name.strip_prefix("placement:")).collect()
}

#[test]
fn every_operation_has_a_route_in_this_test() {
    let routed: BTreeSet<&str> = ROUTES.iter().map(|(_, _, operation)| *operation).collect();
    assert_eq!(routed, operations());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_route_checks_its_own_operation_only() {
    let stores = kilonova_testkit::stores(&[MIGRATIONS]).await;
    let (_, store, _guard) = &stores[0];
    for (method, path, operation) in ROUTES {
        let but_this: String = operations()
            .iter()
            .map(|name| {
                let text = if name == operation { "!" } else { "@" };
                format!("'placement:{name}': '{text}'\n")
            })
            .collect();
        let (status, message) = ask(&router(store, &but_this), method, path, "admin,service").await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{method} {path}: {message}");
        let wanted = format!("Policy does not allow placement:{operation} to be performed.");
        assert!(message.contains(&wanted), "{method} {path}: {message}");
        let only_this: String = operations()
            .iter()
            .map(|name| {
                let text = if name == operation { "role:clerk" } else { "!" };
                format!("'placement:{name}': '{text}'\n")
            })
            .collect();
        let (status, message) = ask(&router(store, &only_this), method, path, "clerk").await;
        assert_ne!(status, StatusCode::FORBIDDEN, "{method} {path}: {message}");
    }
}

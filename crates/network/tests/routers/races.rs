//! Concurrent requests.

use kilonova_ids::{HostName, RouterId};
use kilonova_network::ledger::{self, Place};
use kilonova_wire::time;
use serde_json::{Value, json};

use super::{Scene, network, text};
use crate::kit::apis;

#[tokio::test]
async fn concurrent_requests_never_give_an_address_two_floating_ones() {
    for api in apis().await {
        let scene = Scene::new(&api).await;
        let one = |_: usize| {
            let (api, body) = (
                api.clone(),
                json!({"floatingip": {
                "floating_network_id": scene.outside, "port_id": scene.port}}),
            );
            async move { api.call("ann:red", "POST /floatingips", Some(body)).await.0 }
        };
        let all: Vec<_> = (0..6).map(one).map(tokio::spawn).collect();
        let mut statuses = Vec::new();
        for one in all {
            statuses.push(one.await.unwrap());
        }
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 409, 409, 409, 409, 409]);
        api.audit().await;
    }
}

/// Requests that are valid separately, but not together.
#[tokio::test]
async fn concurrent_requests_never_contradict_each_other() {
    for api in apis().await {
        for round in 0..12 {
            let external = json!({"router:external": true});
            let cidr = format!("198.51.{round}.0/24");
            let (outside, _) = network(&api, "admin:ops", external, &cidr).await;
            let cidr = format!("10.0.{round}.0/24");
            let (net, subnet) = network(&api, "admin:ops", json!({}), &cidr).await;
            let project = json!({"project_id": format!("p{round}")});
            let router = text(&api.make("admin:ops", "router", project).await["id"]);
            // Requested addresses do not move the cursor.
            let gateway = json!({"router": {"external_gateway_info": {"network_id": outside,
                "external_fixed_ips": [{"ip_address": format!("198.51.{round}.9")}]}}});
            let floating = json!({"floatingip": {"floating_network_id": outside,
                "floating_ip_address": format!("198.51.{round}.10")}});
            let internal = json!({"network": {"router:external": false}});
            let other = json!({"subnet": {"gateway_ip": format!("10.0.{round}.200"),
                "allocation_pools": [{"start": format!("10.0.{round}.2"),
                    "end": format!("10.0.{round}.9")}]}});
            let use_it = match round % 2 {
                0 => (format!("PUT /routers/{router}"), gateway),
                _ => ("POST /floatingips".to_owned(), floating),
            };
            let add = format!("PUT /routers/{router}/add_router_interface");
            let requests = [
                use_it,
                (format!("PUT /networks/{outside}"), internal),
                (add, json!({"subnet_id": subnet})),
                (format!("PUT /subnets/{subnet}"), other),
            ];
            let one = |(what, body): (String, Value)| {
                let api = api.clone();
                async move { api.call("admin:ops", &what, Some(body)).await }
            };
            let all: Vec<_> = requests.into_iter().map(one).map(tokio::spawn).collect();
            for (number, one) in all.into_iter().enumerate() {
                let (status, answer) = one.await.unwrap();
                let refused = [400, 409].contains(&status) && number != 2;
                assert!([200, 201].contains(&status) || refused, "{number}: {status} {answer}");
            }
            api.audit().await;
            let query = format!("GET /ports?network_id={net}&device_id={router}");
            let port = api.ok("admin:ops", &query, None).await["ports"][0].clone();
            let shown = api.ok("admin:ops", &format!("GET /subnets/{subnet}"), None).await;
            assert_eq!(port["fixed_ips"][0]["ip_address"], shown["subnet"]["gateway_ip"]);
        }
    }
}

/// Adds an interface while the host is deleted.
#[tokio::test]
async fn a_new_port_of_a_router_is_never_bound_to_a_host_that_goes() {
    for api in apis().await {
        for round in 0..12 {
            let cidr = |part: u8| format!("10.{part}.{round}.0/24");
            let (_, first) = network(&api, "admin:ops", json!({}), &cidr(0)).await;
            let (_, second) = network(&api, "admin:ops", json!({}), &cidr(1)).await;
            let project = json!({"project_id": format!("p{round}")});
            let router = text(&api.make("admin:ops", "router", project).await["id"]);
            let add = format!("PUT /routers/{router}/add_router_interface");
            api.ok("admin:ops", &add, Some(json!({"subnet_id": first}))).await;
            let id: RouterId = router.parse().unwrap();
            let host = HostName::verbatim("h1");
            let place = Place::On(host.clone());
            let placed = move |tx: &mut kilonova_store::Tx<'_>| {
                ledger::place_router(tx, id, &place, time::now())
            };
            api.store.write(placed).await.unwrap();
            let (own, body) = (api.clone(), Some(json!({"subnet_id": second})));
            let added = tokio::spawn(async move { own.call("admin:ops", &add, body).await.0 });
            let left = move |tx: &mut kilonova_store::Tx<'_>| {
                ledger::unplace_routers_of(tx, &host, time::now())
            };
            let store = api.store.clone();
            let left = tokio::spawn(async move { store.write(left).await });
            assert_eq!(added.await.unwrap(), 200);
            left.await.unwrap().unwrap();
            api.audit().await;
        }
    }
}

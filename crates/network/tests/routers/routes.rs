//! Extra routes.

use kilonova_ids::{HostName, RouterId, ServerId};
use kilonova_network::ledger::{self, Place};
use kilonova_wire::time;
use serde_json::{Value, json};

use super::{Scene, attach, put, subnet};
use crate::kit::apis;

#[tokio::test]
async fn routes_lead_through_the_routers_subnets() {
    for api in apis().await {
        let scene = Scene::new(&api).await;
        let path = format!("routers/{}", scene.router);
        let route = |to: &str, hop: &str| json!({"destination": to, "nexthop": hop});
        let all = |routes: &[Value]| json!({"router": {"routes": routes}});
        let (a, b) = (route("10.9.0.0/16", "10.0.0.7"), route("10.10.0.0/16", "10.0.0.8"));
        let set = put(&api, "ann:red", &path, all(std::slice::from_ref(&a))).await;
        assert_eq!(set["router"]["routes"], json!([a]));
        let to = format!("{path}/add_extraroutes");
        let added = put(&api, "ann:red", &to, all(&[a.clone(), b.clone()]));
        assert_eq!(added.await["router"]["routes"], json!([a, b]));
        let what = format!("PUT /{path}");
        for hop in ["192.0.2.1", "10.0.0.1"] {
            let body = Some(all(&[route("10.9.0.0/16", hop)]));
            api.refused("ann:red", &what, body, 400, "InvalidRoutes").await;
        }
        let what = format!("PUT /{path}/remove_router_interface");
        let body = Some(json!({"subnet_id": scene.subnet}));
        api.refused("ann:red", &what, body, 409, "RouterInterfaceInUseByRoute").await;
        let to = format!("{path}/remove_extraroutes");
        let gone = put(&api, "ann:red", &to, all(&[a, b])).await;
        assert_eq!(gone["router"]["routes"], json!([]));

        let many = |count: usize| -> Vec<Value> {
            (0..count).map(|at| route(&format!("10.20.{at}.0/24"), "10.0.0.7")).collect()
        };
        let what = format!("PUT /{path}");
        let twice = [many(2), many(1)].concat();
        let (status, body) = api.call("ann:red", &what, Some(all(&twice))).await;
        let words = "Invalid input for routes. Reason: Duplicate hostroute '{'destination': \
                     '10.20.0.0/24', 'nexthop': '10.0.0.7'}'.";
        assert_eq!((status, &body["NeutronError"]["message"]), (400, &json!(words)));
        // A duplicate of an added route is merged.
        let to = format!("{path}/add_extraroutes");
        let added = put(&api, "ann:red", &to, all(&twice)).await;
        assert_eq!(added["router"]["routes"], json!(many(2)));
        let set = put(&api, "ann:red", &path, all(&many(30))).await;
        assert_eq!(set["router"]["routes"].as_array().unwrap().len(), 30);
        api.refused("ann:red", &what, Some(all(&many(31))), 400, "HTTPBadRequest").await;
        api.audit().await;
    }
}

#[tokio::test]
async fn routes_need_a_routable_destination() {
    for api in apis().await {
        let scene = Scene::new(&api).await;
        let path = format!("routers/{}", scene.router);
        let all = |routes: &[Value]| json!({"router": {"routes": routes}});
        for (to, why) in [
            ("10.1.2.3/16", "'10.1.2.3/16' is not a valid CIDR"),
            ("FD01::7/64", "'FD01::7/64' is not a valid CIDR"),
            ("10.1.0.0", "'10.1.0.0' is not a valid CIDR"),
            ("127.0.0.0/8", "'127.0.0.0/8' is not a routable CIDR"),
            ("::1/128", "'::1/128' is not a routable CIDR"),
        ] {
            for action in ["", "/add_extraroutes", "/remove_extraroutes"] {
                let body = Some(all(&[json!({"destination": to, "nexthop": "10.0.0.7"})]));
                let (status, body) =
                    api.call("ann:red", &format!("PUT /{path}{action}"), body).await;
                let words = format!("Invalid input for routes. Reason: {why}.");
                assert_eq!((status, &body["NeutronError"]["message"]), (400, &json!(words)));
            }
        }
        let subnet = format!("PUT /subnets/{}", scene.subnet);
        for to in ["10.1.2.3/16", "127.0.0.0/8"] {
            let routes = json!([{"destination": to, "nexthop": "10.0.0.7"}]);
            let body = Some(json!({"subnet": {"host_routes": routes}}));
            api.refused("ann:red", &subnet, body, 400, "HTTPBadRequest").await;
        }
    }
}

/// An earlier release accepted routes to loopback addresses.
#[tokio::test]
async fn routes_that_a_router_has_are_not_validated_again() {
    const STORED: &str = "UPDATE routers SET body = REPLACE(body, '10.9.0.0/16', '127.0.0.0/8')";
    for api in apis().await {
        let scene = Scene::new(&api).await;
        let path = format!("routers/{}", scene.router);
        let route = |to: &str| json!({"destination": to, "nexthop": "10.0.0.7"});
        let all = |routes: &[Value]| json!({"router": {"routes": routes}});
        put(&api, "ann:red", &path, all(&[route("10.9.0.0/16")])).await;
        api.store.write(|tx| tx.execute(STORED, &[])).await.unwrap();
        let (old, new) = (route("127.0.0.0/8"), route("10.10.0.0/16"));
        let add = format!("{path}/add_extraroutes");
        let added = put(&api, "ann:red", &add, all(&[new.clone(), old.clone()])).await;
        assert_eq!(added["router"]["routes"], json!([old, new]));
        for other in ["127.0.0.0/16", "10.1.2.3/16"] {
            let body = Some(all(&[route(other)]));
            api.refused("ann:red", &format!("PUT /{add}"), body, 400, "HTTPBadRequest").await;
        }
        let many: Vec<Value> = (0..29).map(|at| route(&format!("10.20.{at}.0/24"))).collect();
        let what = format!("PUT /{add}");
        api.refused("ann:red", &what, Some(all(&many)), 400, "HTTPBadRequest").await;
        let remove = format!("{path}/remove_extraroutes");
        let left = put(&api, "ann:red", &remove, all(std::slice::from_ref(&new))).await;
        assert_eq!(left["router"]["routes"], json!([old]));
        let left = put(&api, "ann:red", &remove, all(&[old])).await;
        assert_eq!(left["router"]["routes"], json!([]));
        api.audit().await;
    }
}

#[tokio::test]
async fn destinations_keep_their_spelling() {
    for api in apis().await {
        let scene = Scene::new(&api).await;
        let six = subnet(&api, "ann:red", &scene.net, "fd00::/64").await;
        let path = format!("routers/{}", scene.router);
        let interface = format!("{path}/add_router_interface");
        put(&api, "ann:red", &interface, json!({"subnet_id": six})).await;
        let route = |to: &str, hop: &str| json!({"destination": to, "nexthop": hop});
        let all = |routes: &[Value]| json!({"router": {"routes": routes}});
        let (add, remove) =
            (format!("{path}/add_extraroutes"), format!("{path}/remove_extraroutes"));
        // The next hop does not keep its spelling.
        let (sent, shown) = (route("FD01:0::/64", "FD00:0::7"), route("FD01:0::/64", "fd00::7"));
        let set = put(&api, "ann:red", &path, all(std::slice::from_ref(&sent))).await;
        assert_eq!(set["router"]["routes"], json!([shown]));
        let read = api.ok("ann:red", &format!("GET /{path}"), None).await;
        assert_eq!(read["router"]["routes"], json!([shown]));
        // Another spelling is the same route.
        let other = route("fd01::/64", "fd00::7");
        let what = format!("PUT /{path}");
        let twice = Some(all(&[sent, other.clone()]));
        api.refused("ann:red", &what, twice, 400, "HTTPBadRequest").await;
        let added = put(&api, "ann:red", &add, all(std::slice::from_ref(&other))).await;
        assert_eq!(added["router"]["routes"], json!([shown]));
        // Hosts get the usual spelling.
        let router: RouterId = scene.router.parse().unwrap();
        let host = HostName::verbatim("h1");
        let place = Place::On(host.clone());
        let placed = move |tx: &mut kilonova_store::Tx<'_>| {
            ledger::place_router(tx, router, &place, time::now())
        };
        api.store.write(placed).await.unwrap();
        let routers = api.store.read(move |tx| ledger::routers(tx, &host)).await.unwrap();
        assert_eq!(routers[0].routes, [("fd01::/64".to_owned(), "fd00::7".parse().unwrap())]);
        let gone = put(&api, "ann:red", &remove, all(&[other])).await;
        assert_eq!(gone["router"]["routes"], json!([]));
        api.audit().await;
        // So do guests, from the routes of their subnet.
        let (server, port) = (ServerId::new_v4(), scene.port.parse().unwrap());
        attach(&api, server, port).await;
        let routes = json!({"subnet": {"host_routes": [shown]}});
        let set = put(&api, "ann:red", &format!("subnets/{}", scene.subnet), routes).await;
        assert_eq!(set["subnet"]["host_routes"], json!([shown]));
        let ports = api.store.read(move |tx| ledger::of_server(tx, server)).await.unwrap();
        let routes = &ports[0].fixed[0].routes;
        assert_eq!(*routes, [("fd01::/64".to_owned(), "fd00::7".parse().unwrap())]);
    }
}

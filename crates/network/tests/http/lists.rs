//! Filters, order, fields and pages of lists.

use serde_json::{Value, json};

use crate::kit::{Api, apis};

#[tokio::test]
async fn lists_are_filtered_sorted_trimmed_and_paged() {
    for api in apis().await {
        for name in ["c", "a", "b", "a"] {
            api.make("ann:red", "network", json!({"name": name, "tags": [name]})).await;
        }
        let names = async |api: &Api, query: &str| -> Vec<String> {
            let list = api.ok("ann:red", &format!("GET /networks?{query}"), None).await;
            let list = list["networks"].as_array().unwrap().clone();
            list.iter().map(|net| net["name"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names(&api, "name=a").await, ["a", "a"]);
        assert_eq!(names(&api, "name=a&name=b").await, ["a", "b", "a"]);
        assert_eq!(names(&api, "sort_key=name&sort_dir=desc").await, ["c", "b", "a", "a"]);
        assert_eq!(names(&api, "tags=b").await, ["b"]);
        assert_eq!(names(&api, "not-tags=a").await, ["c", "b"]);
        assert_eq!(names(&api, "admin_state_up=False").await, Vec::<String>::new());
        let page = api.ok("ann:red", "GET /networks?limit=2&fields=id", None).await;
        assert_eq!(page["networks"][0].as_object().unwrap().len(), 1);
        let next = page["networks_links"][0]["href"].as_str().unwrap();
        let (_, query) = next.split_once('?').unwrap();
        let rest = api.ok("ann:red", &format!("GET /networks?{query}"), None).await;
        assert_eq!(rest["networks"].as_array().unwrap().len(), 2);
        for wrong in ["colour=red", "sort_key=colour", "limit=x", "limit=2&marker=x"] {
            let path = format!("GET /networks?{wrong}");
            api.refused("ann:red", &path, None, 400, "HTTPBadRequest").await;
        }
        let id = rest["networks"][0]["id"].as_str().unwrap();
        let tags = format!("PUT /networks/{id}/tags");
        let set = api.ok("ann:red", &tags, Some(json!({"tags": ["x", "y"]}))).await;
        assert_eq!(set, json!({"tags": ["x", "y"]}));
        let bulk = json!({"networks": [{"name": "d"}, {"name": "e"}]});
        let (status, made) = api.call("ann:red", "POST /networks", Some(bulk)).await;
        assert_eq!((status, made["networks"].as_array().unwrap().len()), (201, 2));
    }
}

#[tokio::test]
async fn a_marker_need_not_pass_the_filters() {
    for api in apis().await {
        let mut ids = Vec::new();
        for name in ["c", "a", "b", "a"] {
            let net = api.make("ann:red", "network", json!({"name": name})).await;
            ids.push(net["id"].as_str().unwrap().to_owned());
        }
        let listed = async |query: &str| -> Vec<String> {
            let list = api.ok("ann:red", &format!("GET /networks?{query}"), None).await;
            let nets = list["networks"].as_array().unwrap().iter();
            nets.map(|net| net["id"].as_str().unwrap().to_owned()).collect()
        };
        let [c, first, b, second] = ids.as_slice() else { panic!("there are four networks") };
        for (query, expected) in [
            (format!("name=a&limit=5&marker={c}"), vec![first, second]),
            (format!("name=a&limit=1&marker={c}"), vec![first]),
            (format!("name=a&limit=5&marker={first}"), vec![second]),
            (format!("name=a&limit=5&marker={b}"), vec![second]),
            (format!("name=a&limit=5&marker={b}&page_reverse=True"), vec![first]),
            (format!("name=a&limit=5&marker={b}&sort_key=name&sort_dir=asc"), vec![]),
            (format!("name=c&limit=5&marker={b}&sort_key=name&sort_dir=asc"), vec![c]),
            // Without a limit, a marker has no effect.
            (format!("name=a&marker={b}"), vec![first, second]),
            ("name=a&marker=x".to_owned(), vec![first, second]),
            (format!("name=a&limit=0&marker={b}"), vec![first, second]),
        ] {
            assert_eq!(listed(&query).await.iter().collect::<Vec<_>>(), expected, "{query}");
        }
        // The database applies this filter of ports.
        let mut ports = Vec::new();
        for device in ["one", "two", "one"] {
            let body = json!({"network_id": c, "device_id": device});
            let port = api.make("ann:red", "port", body).await;
            ports.push(port["id"].as_str().unwrap().to_owned());
        }
        for (marker, expected) in [(&ports[0], &ports[2..]), (&ports[1], &ports[2..])] {
            let path = format!("GET /ports?device_id=one&limit=5&marker={marker}");
            let list = api.ok("ann:red", &path, None).await;
            let found = list["ports"].as_array().unwrap().iter();
            let found: Vec<&str> = found.map(|port| port["id"].as_str().unwrap()).collect();
            assert_eq!(found, expected, "{path}");
        }
        let other = "GET /ports?device_id=one&limit=5&marker=x";
        api.refused("ann:red", other, None, 400, "HTTPBadRequest").await;
    }
}

#[tokio::test]
async fn subnets_are_filtered_by_the_sharing_of_their_network() {
    for api in apis().await {
        let shared = api.make("admin", "network", json!({"shared": true})).await["id"].clone();
        let own = api.make("ann:red", "network", json!({})).await["id"].clone();
        for (token, net) in [("admin", &shared), ("ann:red", &own)] {
            let subnet = json!({"network_id": net, "ip_version": 4, "cidr": "10.0.0.0/24"});
            let made = api.make(token, "subnet", subnet).await;
            assert!(made.get("shared").is_none(), "{made}");
        }
        for (query, expected) in [("shared=True", &shared), ("shared=false", &own)] {
            let list = api.ok("ann:red", &format!("GET /subnets?{query}"), None).await;
            let list = list["subnets"].as_array().unwrap().clone();
            assert_eq!((list.len(), &list[0]["network_id"]), (1, expected), "{query}");
            assert!(list[0].get("shared").is_none(), "{query}");
        }
    }
}

#[tokio::test]
async fn ports_are_found_by_any_of_several_addresses() {
    for api in apis().await {
        let net = api.network("ann:red", &["10.0.0.0/24", "fd00::/64"]).await;
        let mut ports = Vec::new();
        for _ in 0..3 {
            ports.push(api.make("ann:red", "port", json!({"network_id": net})).await);
        }
        let ip = |at: usize| ports[at]["fixed_ips"][0]["ip_address"].as_str().unwrap().to_owned();
        let subnet = ports[0]["fixed_ips"][0]["subnet_id"].as_str().unwrap();
        let (one, two) = (ip(0), ip(1));
        let mac = ports[2]["mac_address"].as_str().unwrap().to_uppercase();
        let either = format!("fixed_ips=ip_address%3D{one}&fixed_ips=ip_address%3D{two}");
        for (query, found) in [
            (either.clone(), vec![0, 1]),
            (format!("{either}&fixed_ips=subnet_id%3D{subnet}"), vec![0, 1]),
            (format!("{either}&fixed_ips=subnet_id%3D{net}"), vec![]),
            (format!("{either}&fixed_ips=ip_address_substr%3D{two}"), vec![1]),
            (format!("mac_address={mac}"), vec![2]),
            (format!("mac_address={}", mac.replace(':', "-")), vec![2]),
            ("mac_address=x".to_owned(), vec![]),
        ] {
            let list = api.ok("ann:red", &format!("GET /ports?{query}"), None).await;
            let ids: Vec<&Value> =
                list["ports"].as_array().unwrap().iter().map(|port| &port["id"]).collect();
            let found: Vec<&Value> = found.into_iter().map(|at: usize| &ports[at]["id"]).collect();
            assert_eq!(ids, found, "{query}");
        }
    }
}

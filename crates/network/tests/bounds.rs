//! Bounds on the work of one request, and limits under concurrent requests. Work that grows with the square of the size of
//! these requests exceeds the time limit of a test.

use kilonova_network::ledger;
use kilonova_store::params;
use kilonova_store::testing::Meter;
use serde_json::{Value, json};

use crate::kit::{Api, apis, metered_apis};

#[tokio::test]
async fn long_lists_are_refused() {
    for api in apis().await {
        let hints: Vec<String> = (0..60_000).map(|number| format!("zone{number}")).collect();
        for member in ["network", "router"] {
            let what = format!("POST /{member}s");
            let body = Some(json!({member: {"availability_zone_hints": hints}}));
            api.refused("ann:red", &what, body, 400, "HTTPBadRequest").await;
        }
        let twice = Some(json!({"network": {"availability_zone_hints": ["nova", "nova"]}}));
        let (status, answer) = api.call("ann:red", "POST /networks", twice).await;
        let message = answer["NeutronError"]["message"].as_str().unwrap();
        assert!(status == 400 && message.contains("Duplicate items in the list"), "{message}");

        let net = api.network("ann:red", &["10.1.0.0/24"]).await;
        let group = api.make("ann:red", "security_group", json!({"name": "g"})).await["id"].clone();
        let port =
            |groups: usize| json!({"network_id": net, "security_groups": vec![&group; groups]});
        let body = Some(json!({"port": port(1001)}));
        api.refused("ann:red", "POST /ports", body, 400, "HTTPBadRequest").await;
        let made = api.make("ann:red", "port", port(1000)).await;
        assert_eq!(made["security_groups"], json!([group]));

        let pool = |number: usize| {
            let address = format!("10.2.1.{number}");
            json!({"start": address, "end": address})
        };
        let subnet = |pools: usize| {
            json!({"network_id": net, "cidr": "10.2.0.0/16", "ip_version": 4,
                "allocation_pools": (0..pools).map(pool).collect::<Vec<_>>()})
        };
        let body = Some(json!({"subnet": subnet(101)}));
        api.refused("ann:red", "POST /subnets", body, 400, "HTTPBadRequest").await;
        let made = api.make("ann:red", "subnet", subnet(100)).await;
        assert_eq!(made["allocation_pools"].as_array().unwrap().len(), 100);
        let path = format!("PUT /subnets/{}", made["id"].as_str().unwrap());
        let pools: Vec<Value> = (0..101).map(pool).collect();
        let body = Some(json!({"subnet": {"allocation_pools": pools}}));
        api.refused("ann:red", &path, body, 400, "HTTPBadRequest").await;
    }
}

#[tokio::test]
async fn a_malformed_resource_takes_no_transaction() {
    let meter = Meter::counting();
    for api in metered_apis(&meter).await {
        meter.take();
        for (what, body) in [
            ("POST /networks", json!({"network": {"colour": "red"}})),
            ("POST /networks", json!({"networks": [{}, {"mtu": "x"}]})),
            ("POST /networks", json!({"network": {"project_id": "blue"}})),
            ("POST /ports", json!({"port": {}})),
            ("POST /security-group-rules", json!({"security_group_rule": {"ethertype": "x"}})),
        ] {
            api.refused("ann:red", what, Some(body), 400, "HTTPBadRequest").await;
            assert_eq!(meter.take(), 0, "{what}");
        }
    }
}

async fn names(api: &Api, query: &str) -> Vec<String> {
    let list = api.ok("ann:red", &format!("GET /networks?{query}"), None).await;
    let list = list["networks"].as_array().unwrap().iter();
    list.map(|net| net["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn repeated_filters_and_sort_keys_are_grouped() {
    for api in apis().await {
        for (name, tags) in [("c", json!(["x"])), ("a", json!(["x", "y"])), ("b", json!([]))] {
            api.make("ann:red", "network", json!({"name": name, "tags": tags})).await;
        }
        for (query, expected) in [
            ("tags=x&tags=y", vec!["a"]),
            ("tags-any=y&tags-any=x", vec!["c", "a"]),
            ("tags-any=y&tags-any=z", vec!["a"]),
            ("not-tags=x&not-tags=y", vec!["c", "b"]),
            ("not-tags-any=z&not-tags-any=y", vec!["c", "b"]),
            ("name=a&shared=False&name=b&shared=0", vec!["a", "b"]),
            ("name=a&name=b&shared=1", vec![]),
            ("sort_key=name&sort_dir=desc&sort_key=name&sort_dir=asc", vec!["c", "b", "a"]),
            ("sort_key=shared&sort_key=name", vec!["a", "b", "c"]),
        ] {
            assert_eq!(names(&api, query).await, expected, "{query}");
        }
        let several = (0..50).map(|_| json!({"name": "many"})).collect::<Vec<_>>();
        let (status, _) =
            api.call("ann:red", "POST /networks", Some(json!({"networks": several}))).await;
        assert_eq!(status, 201);
        let pairs = (0..990).map(|number| format!("name={number}&mtu={number}"));
        let query = format!("{}&name=many&mtu=1500", pairs.collect::<Vec<_>>().join("&"));
        let sorted = "&sort_key=mtu".repeat(1500);
        assert_eq!(names(&api, &query).await.len(), 50);
        assert_eq!(names(&api, &format!("name=many{sorted}")).await.len(), 50);
    }
}

#[tokio::test]
async fn concurrent_requests_do_not_exceed_a_quota() {
    for api in apis().await {
        let net = api.network("admin:ops", &["10.0.0.0/24"]).await;
        let shared = Some(json!({"network": {"shared": true}}));
        api.ok("admin:ops", &format!("PUT /networks/{net}"), shared).await;
        // The default group exists and counts.
        api.ok("ann:red", "GET /security-groups", None).await;
        let limits = json!({"network": 2, "router": 2, "security_group": 3, "port": 2});
        api.ok("admin:ops", "PUT /quotas/red", Some(json!({"quota": limits}))).await;
        for (member, body) in [
            ("network", json!({})),
            ("router", json!({})),
            ("security_group", json!({"name": "g"})),
            ("port", json!({"network_id": net})),
        ] {
            let one = |_: usize| {
                let (api, body) = (api.clone(), Some(json!({member: body})));
                let what = format!("POST /{}s", member.replace('_', "-"));
                async move { api.call("ann:red", &what, body).await.0 }
            };
            let all: Vec<_> = (0..6).map(one).map(tokio::spawn).collect();
            let mut statuses = Vec::new();
            for one in all {
                statuses.push(one.await.unwrap());
            }
            statuses.sort_unstable();
            assert_eq!(statuses, [201, 201, 409, 409, 409, 409], "{member}");
        }
        api.audit().await;
    }
}

#[tokio::test]
async fn concurrent_boots_do_not_exceed_the_quota_of_ports() {
    const PORT: &str =
        "INSERT INTO ports (id, project_id, network_id, mac, device_id, host, ordinal, body,
        revision, created_at, updated_at) VALUES (?1, 'red', ?2, ?1, '', '', 0, '{}', 0, 0, 0)";
    for api in apis().await {
        let net = api.network("ann:red", &[]).await;
        let limits = Some(json!({"quota": {"port": 3}}));
        api.ok("admin:ops", "PUT /quotas/red", limits).await;
        let boot = |number: usize| {
            let (store, net) = (api.store.clone(), net.clone());
            async move {
                let id = format!("port{number}");
                let written = store.write(move |tx| {
                    ledger::check_quota(tx, "red", 1)?;
                    tx.execute(PORT, params![&id, &net])?;
                    Ok::<_, kilonova_network::Error>(())
                });
                written.await.is_ok()
            }
        };
        let all: Vec<_> = (0..8).map(boot).map(tokio::spawn).collect();
        let mut done = 0;
        for one in all {
            done += usize::from(one.await.unwrap());
        }
        assert_eq!(done, 3);
    }
}

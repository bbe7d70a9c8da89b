//! Allocations, usages, candidates and reshapes over HTTP, on both stores.

use serde_json::{Value, json};

use crate::common::http::Api;
use crate::common::{audited, room, stores};

const ONE: &str = "77777777-0000-0000-0000-000000000001";
const TWO: &str = "77777777-0000-0000-0000-000000000002";

fn holding(provider: &str, resources: &Value, generation: Option<i64>) -> Value {
    json!({
        "allocations": {provider: {"resources": resources}},
        "project_id": "p", "user_id": "u",
        "consumer_generation": generation, "consumer_type": "INSTANCE",
    })
}

#[tokio::test]
async fn a_consumer_is_written_by_generation() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        let a = api.provider("a", None, &[("VCPU", 4)]).await;
        let path = format!("/allocations/{ONE}");
        assert_eq!(api.get(&path).await.is(200).body, json!({"allocations": {}}));
        api.put(&path, holding(&a, &json!({"VCPU": 2}), None)).await.is(204);
        let seen = api.get(&path).await.is(200).body;
        assert_eq!(
            seen,
            json!({
                "allocations": {&a: {"generation": 2, "resources": {"VCPU": 2}}},
                "project_id": "p", "user_id": "u",
                "consumer_generation": 1, "consumer_type": "INSTANCE",
            })
        );
        let again = api.put(&path, holding(&a, &json!({"VCPU": 1}), None)).await.is(409);
        assert_eq!(again.code(), "placement.concurrent_update");
        assert!(again.detail().contains("consumer generation conflict - expected 1 but got None"));
        api.put(&path, holding(&a, &json!({"VCPU": 4}), Some(1))).await.is(204);
        assert_eq!(room(&api.world, "VCPU", 1).len(), 0);
        audited(&store).await;
        let empty = json!({
            "allocations": {}, "project_id": "p", "user_id": "u",
            "consumer_generation": 2, "consumer_type": "INSTANCE",
        });
        api.put(&path, empty).await.is(204);
        let gone = api.put(&path, holding(&a, &json!({"VCPU": 1}), Some(3))).await.is(409);
        assert!(gone.detail().contains("expected null but got 3"));
        assert_eq!(room(&api.world, "VCPU", 4).len(), 1);
        api.ask("DELETE", &path, None).await.is(404);
        audited(&store).await;
    }
}

#[tokio::test]
async fn an_allocation_that_does_not_fit_is_a_conflict_without_the_retry_code() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        let a = api.provider("a", None, &[("VCPU", 4)]).await;
        let path = format!("/allocations/{ONE}");
        let full = api.put(&path, holding(&a, &json!({"VCPU": 5}), None)).await.is(409);
        assert_eq!(full.code(), "placement.undefined_code");
        assert!(full.detail().contains("The requested amount would exceed the capacity."));
        let none = api.put(&path, holding(&a, &json!({"DISK_GB": 5}), None)).await.is(409);
        assert!(none.detail().contains("Inventory for 'DISK_GB' on resource provider"));
        let class = api.put(&path, holding(&a, &json!({"CUSTOM_NO": 5}), None)).await.is(400);
        assert!(class.detail().contains("No such resource class CUSTOM_NO."));
        let absent = holding(TWO, &json!({"VCPU": 1}), None);
        let absent = api.put(&path, absent).await.is(400);
        assert!(absent.detail().contains("that does not exist."));
        api.put("/allocations/pony", holding(&a, &json!({"VCPU": 1}), None)).await.is(400);
        audited(&store).await;
        assert_eq!(room(&api.world, "VCPU", 4).len(), 1);
    }
}

#[tokio::test]
async fn an_overcommitted_providers_usage_may_only_shrink() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        let a = api.provider("a", None, &[("VCPU", 8)]).await;
        let path = format!("/allocations/{ONE}");
        api.put(&path, holding(&a, &json!({"VCPU": 8}), None)).await.is(204);
        let body = json!({"resource_provider_generation": 2, "total": 8, "reserved": 4});
        api.put(&format!("/resource_providers/{a}/inventories/VCPU"), body).await.is(200);
        api.put(&path, holding(&a, &json!({"VCPU": 6}), Some(1))).await.is(204);
        api.put(&path, holding(&a, &json!({"VCPU": 7}), Some(2))).await.is(409);
        audited(&store).await;
    }
}

#[tokio::test]
async fn several_consumers_are_written_in_one_commit() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        let a = api.provider("a", None, &[("VCPU", 4)]).await;
        let both = json!({
            ONE: holding(&a, &json!({"VCPU": 3}), None),
            TWO: holding(&a, &json!({"VCPU": 2}), None),
        });
        api.post("/allocations", both).await.is(409);
        assert_eq!(api.get(&format!("/allocations/{ONE}")).await.body["allocations"], json!({}));
        let first = json!({ONE: holding(&a, &json!({"VCPU": 4}), None)});
        api.post("/allocations", first).await.is(204);
        let mut moved = json!({
            ONE: holding(&a, &json!({}), Some(1)),
            TWO: holding(&a, &json!({"VCPU": 4}), None),
        });
        moved[ONE]["allocations"] = json!({});
        api.post("/allocations", moved).await.is(204);
        let on = api.get(&format!("/resource_providers/{a}/allocations")).await.is(200).body;
        assert_eq!(
            on["allocations"],
            json!({
                TWO: {"resources": {"VCPU": 4}, "consumer_generation": 1},
            })
        );
        api.at(12, "POST", "/allocations", Some(json!({}))).await.is(404);
        audited(&store).await;
    }
}

#[tokio::test]
async fn usages_are_reported_by_project_user_and_type() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        let a = api.provider("a", None, &[("VCPU", 8)]).await;
        api.put(&format!("/allocations/{ONE}"), holding(&a, &json!({"VCPU": 2}), None))
            .await
            .is(204);
        let old = json!({
            "allocations": [{"resource_provider": {"uuid": a}, "resources": {"VCPU": 3}}],
            "project_id": "p", "user_id": "v",
        });
        api.at(8, "PUT", &format!("/allocations/{TWO}"), Some(old)).await.is(204);
        let total = api.at(9, "GET", "/usages?project_id=p", None).await.is(200).body;
        assert_eq!(total["usages"], json!({"VCPU": 5}));
        for (query, usages) in [
            (
                "",
                json!({
                    "INSTANCE": {"VCPU": 2, "consumer_count": 1},
                    "unknown": {"VCPU": 3, "consumer_count": 1},
                }),
            ),
            ("&consumer_type=all", json!({"all": {"VCPU": 5, "consumer_count": 2}})),
            ("&consumer_type=unknown", json!({"unknown": {"VCPU": 3, "consumer_count": 1}})),
            ("&user_id=u", json!({"INSTANCE": {"VCPU": 2, "consumer_count": 1}})),
            ("&consumer_type=MIGRATION", json!({})),
        ] {
            let seen = api.get(&format!("/usages?project_id=p{query}")).await.is(200).body;
            assert_eq!(seen["usages"], usages, "{query}");
        }
        api.get("/usages").await.is(400);
        let reader = [
            ("x-auth-token", "joe:p"),
            ("x-roles", "reader"),
            ("openstack-api-version", "placement 1.9"),
        ];
        api.send("GET", "/usages?project_id=p", &reader, None).await.is(200);
        api.send("GET", "/usages?project_id=q", &reader, None).await.is(403);
    }
}

#[tokio::test]
async fn candidates_of_a_nested_tree_can_be_claimed_unchanged() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        let root = api.provider("host", None, &[("VCPU", 8)]).await;
        let gpu = api.provider("gpu", Some(&root), &[("VGPU", 2)]).await;
        let query = "/allocation_candidates?resources=VCPU:2&resources_GPU=VGPU:1&limit=5";
        let found = api.get(query).await.is(200).body;
        assert_eq!(
            found["allocation_requests"],
            json!([{
                "allocations": {
                    &root: {"resources": {"VCPU": 2}}, &gpu: {"resources": {"VGPU": 1}},
                },
                "mappings": {"": [root], "_GPU": [gpu]},
            }])
        );
        assert_eq!(
            found["provider_summaries"][&gpu],
            json!({
                "resources": {"VGPU": {"capacity": 2, "used": 0}},
                "traits": [], "parent_provider_uuid": root, "root_provider_uuid": root,
            })
        );
        let mut claim = found["allocation_requests"][0].clone();
        claim["project_id"] = "p".into();
        claim["user_id"] = "u".into();
        claim["consumer_generation"] = Value::Null;
        claim["consumer_type"] = "INSTANCE".into();
        for n in 1..=2 {
            let path = format!("/allocations/77777777-0000-0000-0000-00000000000{n}");
            api.put(&path, claim.clone()).await.is(204);
        }
        let none = api.get(query).await.is(200).body;
        assert_eq!(none, json!({"allocation_requests": [], "provider_summaries": {}}));
        let flat = "/allocation_candidates?resources=VCPU:2";
        let old = api.at(10, "GET", flat, None).await.is(200).body;
        assert_eq!(
            old["allocation_requests"],
            json!([{"allocations": [
                {"resource_provider": {"uuid": root}, "resources": {"VCPU": 2}},
            ]}])
        );
        assert_eq!(
            old["provider_summaries"],
            json!({
                &root: {"resources": {"VCPU": {"capacity": 8, "used": 4}}},
            })
        );
    }
}

#[tokio::test]
async fn invalid_candidate_queries_have_upstreams_messages() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        for (minor, query, part) in [
            (39, "resources1=VGPU:1&resources2=VGPU:1", "\"group_policy\" parameter is required"),
            (39, "required=HW_CPU_X86_AVX2", "There must be at least one resources"),
            (39, "resources=VCPU:1&required_A=HW_CPU_X86_AVX2", "bad group(s) - ['_A']"),
            (39, "resources=VCPU:1&same_subtree=_A", "Real suffixes should be specified"),
            (39, "resources=VCPU:1&same_subtree=", "Empty string (unsuffixed group)"),
            (39, "resources=VCPU:1&root_required=A&root_required=B", "only once"),
            (39, "resources=VCPU:1&root_required=A,!A", "Conflicting required and forbidden"),
            (39, "resources=VCPU:1&required=A,!A", "required: (A)"),
            (39, "resources=VCPU:1&limit=0", "Invalid query string parameters"),
            (39, "resources=VCPU:1&group_policy=pony", "Invalid query string parameters"),
            (39, "resources=VCPU:1&required=CUSTOM_NO", "No such trait(s): CUSTOM_NO."),
            (39, "resources=CUSTOM_NO:1", "Invalid resource class in resources parameter"),
            (39, "resources=VCPU:0", "requires amount >= 1"),
            (35, "required1=HW_CPU_X86_AVX2", "orphaned traits keys: required1"),
            (24, "resources1=VCPU:1", "Invalid query string parameters"),
            (32, "resources_A=VCPU:1", "Invalid query string parameters"),
            (10, "", "'resources' is a required property"),
        ] {
            let path = format!("/allocation_candidates?{query}");
            let answer = api.at(minor, "GET", &path, None).await.is(400);
            assert!(answer.detail().contains(part), "{query}: {}", answer.detail());
        }
        let path = "/allocation_candidates?resources=VCPU:1&required1=HW_CPU_X86_AVX2";
        assert_eq!(api.get(path).await.code(), "placement.query.bad_value");
        api.at(9, "GET", "/allocation_candidates?resources=VCPU:1", None).await.is(404);
    }
}

#[tokio::test]
async fn clients_before_nested_providers_get_flat_candidates_only() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        let root = api.provider("host", None, &[("VCPU", 8)]).await;
        api.provider("gpu", Some(&root), &[("VGPU", 2)]).await;
        let path = "/allocation_candidates?resources=VCPU:1,VGPU:1";
        let old = api.at(28, "GET", path, None).await.is(200).body;
        assert_eq!(old["allocation_requests"], json!([]));
        let new = api.at(29, "GET", path, None).await.is(200).body;
        assert_eq!(new["allocation_requests"].as_array().map(Vec::len), Some(1));
    }
}

#[tokio::test]
async fn a_reshape_moves_inventory_and_its_allocations() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        let root = api.provider("host", None, &[("VCPU", 8), ("VGPU", 2)]).await;
        let gpu = api.provider("gpu", Some(&root), &[]).await;
        let held = json!({"VCPU": 1, "VGPU": 2});
        api.put(&format!("/allocations/{ONE}"), holding(&root, &held, None)).await.is(204);
        let mut moved = holding(&root, &json!({"VCPU": 1}), Some(1));
        moved["allocations"][&gpu] = json!({"resources": {"VGPU": 2}});
        let body = json!({
            "inventories": {
                &root: {"resource_provider_generation": 2, "inventories": {"VCPU": {"total": 8}}},
                &gpu: {"resource_provider_generation": 0, "inventories": {"VGPU": {"total": 2}}},
            },
            "allocations": {ONE: moved},
        });
        let mut stale = body.clone();
        stale["inventories"][&gpu]["resource_provider_generation"] = json!(7);
        let stale = api.post("/reshaper", stale).await.is(409);
        assert_eq!(stale.code(), "placement.concurrent_update");
        let mut held = body.clone();
        held["allocations"] = json!({});
        let held = api.post("/reshaper", held).await.is(409);
        assert_eq!(held.code(), "placement.inventory.inuse");
        api.post("/reshaper", body).await.is(204);
        let have = api.get(&format!("/resource_providers/{gpu}/usages")).await.is(200).body;
        assert_eq!(have["usages"], json!({"VGPU": 2}));
        let have = api.get(&format!("/resource_providers/{root}/inventories")).await.is(200).body;
        assert_eq!(have["inventories"].as_object().map(|all| all.len()), Some(1));
        audited(&store).await;
        api.ask("DELETE", &format!("/allocations/{ONE}"), None).await.is(204);
        assert_eq!(room(&api.world, "VGPU", 2).len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_to_one_provider_never_see_a_false_conflict() {
    for (name, store, _guard) in stores().await {
        let api = Api::new(&store);
        let a = api.provider("a", None, &[("VCPU", 1000)]).await;
        let b = api.provider("b", None, &[("VCPU", 1000)]).await;
        let api = std::sync::Arc::new(api);
        let mut writers = Vec::new();
        for n in 0..24 {
            let (api, a, b) = (std::sync::Arc::clone(&api), a.clone(), b.clone());
            writers.push(tokio::spawn(async move {
                let mut body = holding(&a, &json!({"VCPU": 1}), None);
                body["allocations"][&b] = json!({"resources": {"VCPU": 1}});
                let path = format!("/allocations/77777777-0000-0000-0000-0000000001{n:02}");
                let put = api.put(&path, body).await.status.as_u16();
                let delete = api.ask("DELETE", &path, None).await.status.as_u16();
                (put, delete)
            }));
        }
        for writer in writers {
            assert_eq!(writer.await.expect("the writer does not panic"), (204, 204), "{name}");
        }
        audited(&store).await;
        assert_eq!(room(&api.world, "VCPU", 1000).len(), 2, "{name}");
    }
}

/// Placement accepts a negative allocation ratio if everything is reserved. An unused inventory of
/// that kind is not over-allocated.
#[tokio::test]
async fn a_negative_allocation_ratio_is_no_violation() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        let a = api.provider("a", None, &[]).await;
        let body = json!({
            "resource_provider_generation": 0,
            "inventories": {"VCPU": {"total": 4, "reserved": 4, "allocation_ratio": -1.0}},
        });
        api.put(&format!("/resource_providers/{a}/inventories"), body).await.is(200);
        audited(&store).await;
        let claim = holding(&a, &json!({"VCPU": 1}), None);
        api.put(&format!("/allocations/{ONE}"), claim).await.is(409);
    }
}

/// A UUID in two spellings would be written twice: the amounts in use would then be wrong.
#[tokio::test]
async fn two_spellings_of_one_uuid_in_a_body_are_refused() {
    const PROVIDER: &str = "bbbbbbbb-0000-4000-8000-000000000001";
    const CONSUMER: &str = "cccccccc-0000-4000-8000-000000000001";
    let upper = |uuid: &str| uuid.to_uppercase();
    let moved_dash = |uuid: &str| format!("{}-{}{}", &uuid[..7], &uuid[7..8], &uuid[9..]);
    let spellings: [&dyn Fn(&str) -> String; 2] = [&upper, &moved_dash];
    for (name, store, _guard) in stores().await {
        let api = Api::new(&store);
        api.post("/resource_providers", json!({"name": "a", "uuid": PROVIDER})).await.is(200);
        let inventories = json!({"VCPU": {"total": 8}});
        let body = json!({"resource_provider_generation": 0, "inventories": inventories});
        api.put(&format!("/resource_providers/{PROVIDER}/inventories"), body).await.is(200);
        let target = json!({"resource_provider_generation": 1, "inventories": inventories});
        let one = holding(PROVIDER, &json!({"VCPU": 1}), None);
        for respelt in spellings {
            let other = respelt(CONSUMER);
            let consumers = json!({CONSUMER: one, (other): one});
            let mut providers = one.clone();
            let amounts = json!({"resources": {"VCPU": 2}});
            providers["allocations"][respelt(PROVIDER)] = amounts;
            let targets = json!({PROVIDER: target, (respelt(PROVIDER)): target});
            let reshape = |inventories: &Value, allocations: &Value| json!({"inventories": inventories, "allocations": allocations});
            let allocation = format!("/allocations/{CONSUMER}");
            for (method, path, body) in [
                ("POST", "/allocations", consumers.clone()),
                ("POST", "/allocations", json!({CONSUMER: providers})),
                ("PUT", &*allocation, providers.clone()),
                ("POST", "/reshaper", reshape(&json!({PROVIDER: target}), &consumers)),
                ("POST", "/reshaper", reshape(&targets, &json!({}))),
            ] {
                let refused = api.ask(method, path, Some(body)).await.is(400);
                let why = refused.detail();
                assert!(why.contains("JSON does not validate: '"), "{name} {method} {path}: {why}");
                assert!(why.contains("are the same uuid"), "{name} {method} {path}: {why}");
            }
        }
        let entry = |uuid: &str, amount: i64| json!({"resource_provider": {"uuid": uuid}, "resources": {"VCPU": amount}});
        let old = |second: &str| {
            let list = [entry(PROVIDER, 1), entry(second, 2)];
            json!({"allocations": list, "project_id": "p", "user_id": "u"})
        };
        let path = format!("/allocations/{CONSUMER}");
        api.at(8, "PUT", &path, Some(old(&upper(PROVIDER)))).await.is(400);
        let usages = format!("/resource_providers/{PROVIDER}/usages");
        assert_eq!(api.get(&usages).await.is(200).body["usages"], json!({"VCPU": 0}), "{name}");
        // Of two entries with the same text, the last one counts, as upstream.
        api.at(8, "PUT", &path, Some(old(PROVIDER))).await.is(204);
        assert_eq!(api.get(&usages).await.is(200).body["usages"], json!({"VCPU": 2}), "{name}");
        audited(&store).await;
    }
}

//! Resource providers, inventories, traits, aggregates and classes over HTTP, on both stores.

use kilonova_ids::ResourceClass;
use kilonova_placement::{Error, ledger};
use kilonova_store::Tx;
use kilonova_store::testing::Meter;
use serde_json::{Value, json};

use crate::common::http::Api;
use crate::common::{audited, room, spec, stores};

#[tokio::test]
async fn the_version_document_requires_no_token() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        let answer = api.send("GET", "/", &[], None).await.is(200);
        assert_eq!(answer.body["versions"][0]["max_version"], "1.39");
        api.send("GET", "/resource_providers", &[], None).await.is(401);
    }
}

#[tokio::test]
async fn version_negotiation_has_upstreams_messages() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        let ask = |version: &'static str| {
            let headers = [("x-auth-token", "admin"), ("openstack-api-version", version)];
            let api = &api;
            async move { api.send("GET", "/traits", &headers, None).await }
        };
        let latest = ask("placement latest").await.is(200);
        assert_eq!(latest.headers["openstack-api-version"], "placement 1.39");
        assert!(latest.headers.contains_key("last-modified"));
        assert_eq!(latest.headers["cache-control"], "no-cache");
        let old = ask("placement 1.6").await.is(200);
        assert!(!old.headers.contains_key("last-modified"));
        ask("placement 1.5").await.is(404);
        ask("compute 2.1").await.is(404);
        let far = ask("placement 1.99").await.is(406);
        assert!(far.detail().contains("Invalid microversion: Unacceptable version header: 1.99"));
        let odd = ask("placement pony").await.is(400);
        assert!(odd.detail().contains("Invalid microversion: invalid version string: pony"));
    }
}

#[tokio::test]
async fn providers_are_created_found_renamed_moved_and_deleted() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        let a = api.provider("a", None, &[]).await;
        let b = api.provider("b", Some(&a), &[]).await;
        let c = api.provider("c", None, &[]).await;
        let shown = api.get(&format!("/resource_providers/{b}")).await.is(200).body;
        assert_eq!(shown["root_provider_uuid"], json!(a));
        assert_eq!(shown["links"][0]["href"], format!("/placement/resource_providers/{b}"));
        assert_eq!(shown["links"].as_array().map(Vec::len), Some(6));

        let body = json!({"name": "c", "parent_provider_uuid": b});
        api.at(36, "PUT", &format!("/resource_providers/{c}"), Some(body)).await.is(200);
        let tree = api.get(&format!("/resource_providers?in_tree={c}")).await.is(200).body;
        assert_eq!(tree["resource_providers"].as_array().map(Vec::len), Some(3));
        let body = json!({"name": "b", "parent_provider_uuid": c});
        let looped = api.put(&format!("/resource_providers/{b}"), body).await.is(400);
        assert!(looped.detail().contains("creating loop in the provider tree is not allowed."));
        let body = json!({"name": "b2", "parent_provider_uuid": null});
        let refused = api
            .at(36, "PUT", &format!("/resource_providers/{b}"), Some(body.clone()))
            .await
            .is(400);
        assert!(refused.detail().contains("un-parenting a provider is not currently allowed."));
        api.put(&format!("/resource_providers/{b}"), body).await.is(200);
        let moved = api.get("/resource_providers?name=c").await.is(200).body;
        assert_eq!(moved["resource_providers"][0]["root_provider_uuid"], json!(b));
        audited(&store).await;

        let taken = api.post("/resource_providers", json!({"name": "c"})).await.is(409);
        assert_eq!(taken.code(), "placement.duplicate_name");
        assert!(taken.detail().contains("Conflicting resource provider name: c already exists."));
        let parent = api.ask("DELETE", &format!("/resource_providers/{b}"), None).await.is(409);
        assert_eq!(parent.code(), "placement.resource_provider.cannot_delete_parent");
        api.ask("DELETE", &format!("/resource_providers/{c}"), None).await.is(204);
        api.get(&format!("/resource_providers/{c}")).await.is(404);
        assert_eq!(api.world.snapshot().roots().count(), 2);
    }
}

#[tokio::test]
async fn a_providers_view_depends_on_the_version() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        let body = json!({"name": "old", "uuid": "5294F72633D5472ABEF19E19BB41626D"});
        let made = api.at(0, "POST", "/resource_providers", Some(body)).await.is(201);
        assert_eq!(made.body, Value::Null);
        let place = "/placement/resource_providers/5294f726-33d5-472a-bef1-9e19bb41626d";
        assert_eq!(made.headers["location"], format!("http://here{place}"));
        let shown = api.at(0, "GET", "/resource_providers", None).await.is(200).body;
        let shown = &shown["resource_providers"][0];
        assert_eq!(shown["links"].as_array().map(Vec::len), Some(3));
        assert_eq!(shown.get("parent_provider_uuid"), None);
        api.at(17, "GET", "/resource_providers?required=HW_CPU_X86_AVX2", None).await.is(400);
        let code = api.at(22, "GET", "/resource_providers/nope", None).await.is(404);
        assert_eq!(code.body["errors"][0].get("code"), None);
        let code = api.get("/resource_providers/nope").await.is(404);
        assert_eq!(code.code(), "placement.undefined_code");
    }
}

#[tokio::test]
async fn inventory_writes_check_generation_and_usage() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        let a = api.provider("a", None, &[("VCPU", 4), ("DISK_GB", 10)]).await;
        let path = format!("/resource_providers/{a}/inventories");
        let stale = json!({"resource_provider_generation": 0, "inventories": {}});
        let conflict = api.put(&path, stale).await.is(409);
        assert_eq!(conflict.code(), "placement.concurrent_update");
        assert!(conflict.detail().contains("resource provider generation conflict"));
        let one = api
            .put(
                &format!("{path}/VCPU"),
                json!({"resource_provider_generation": 1, "total": 8, "reserved": 8}),
            )
            .await
            .is(200);
        assert_eq!(one.body["resource_provider_generation"], 2);
        let body = json!({"resource_provider_generation": 2, "total": 8, "reserved": 8});
        let full = api.at(25, "PUT", &format!("{path}/VCPU"), Some(body)).await.is(400);
        assert!(full.detail().contains("The reserved value is greater than or equal to total."));
        let body = json!({"resource_class": "CUSTOM_X", "total": 1});
        let unknown = api.post(&path, body.clone()).await.is(400);
        assert!(unknown.detail().contains("No such resource class CUSTOM_X."));
        api.ask("PUT", "/resource_classes/CUSTOM_X", None).await.is(201);
        let made = api.post(&path, body.clone()).await.is(201);
        assert!(
            made.headers["location"].to_str().expect("the header is text").ends_with("/CUSTOM_X")
        );
        api.post(&path, body).await.is(409);
        assert_eq!(room(&api.world, "CUSTOM_X", 1).len(), 1);
        assert_eq!(room(&api.world, "VCPU", 1).len(), 0);

        let consumer = "/allocations/77777777-0000-0000-0000-000000000001";
        let hold = json!({
            "allocations": {&a: {"resources": {"DISK_GB": 3}}}, "project_id": "p", "user_id": "u",
            "consumer_generation": null, "consumer_type": "INSTANCE",
        });
        api.put(consumer, hold).await.is(204);
        let held = api.ask("DELETE", &path, None).await.is(409);
        assert_eq!(held.code(), "placement.inventory.inuse");
        let held = api.ask("DELETE", &format!("{path}/DISK_GB"), None).await.is(409);
        assert_eq!(held.code(), "placement.concurrent_update");
        api.ask("DELETE", &format!("{path}/VCPU"), None).await.is(204);
        api.get(&format!("{path}/VCPU")).await.is(404);
        api.at(4, "DELETE", &path, None).await.is(405);
        let usages = api.get(&format!("/resource_providers/{a}/usages")).await.is(200).body;
        assert_eq!(usages["usages"], json!({"DISK_GB": 3, "CUSTOM_X": 0}));
        api.ask("DELETE", &format!("/resource_providers/{a}"), None).await.is(409);
        api.ask("DELETE", "/resource_classes/CUSTOM_X", None).await.is(409);
        audited(&store).await;
    }
}

#[tokio::test]
async fn traits_and_aggregates_of_a_provider() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        let a = api.provider("a", None, &[]).await;
        let path = format!("/resource_providers/{a}/traits");
        let body = json!({
            "resource_provider_generation": 0, "traits": ["CUSTOM_A", "HW_CPU_X86_AVX2"],
        });
        let unknown = api.put(&path, body.clone()).await.is(400);
        assert!(unknown.detail().contains("No such trait CUSTOM_A"));
        api.ask("PUT", "/traits/CUSTOM_A", None).await.is(201);
        api.ask("PUT", "/traits/CUSTOM_A", None).await.is(204);
        api.ask("PUT", "/traits/custom_a", None).await.is(400);
        let set = api.put(&path, body.clone()).await.is(200).body;
        assert_eq!(set["traits"], json!(["HW_CPU_X86_AVX2", "CUSTOM_A"]));
        assert_eq!(set["resource_provider_generation"], 1);
        api.put(&path, body).await.is(409);
        api.ask("DELETE", "/traits/CUSTOM_A", None).await.is(409);
        api.ask("DELETE", "/traits/HW_CPU_X86_AVX2", None).await.is(400);
        let listed = api.get("/traits?associated=true&name=startswith:CUSTOM").await.is(200).body;
        assert_eq!(listed["traits"], json!(["CUSTOM_A"]));
        api.ask("DELETE", &path, None).await.is(204);
        api.ask("DELETE", "/traits/CUSTOM_A", None).await.is(204);
        api.get("/traits/CUSTOM_A").await.is(404);

        let aggregate = "11111111-2222-3333-4444-555555555555";
        let path = format!("/resource_providers/{a}/aggregates");
        api.at(18, "PUT", &path, Some(json!([aggregate]))).await.is(200);
        let seen = api.get(&path).await.is(200).body;
        assert_eq!(seen, json!({"aggregates": [aggregate], "resource_provider_generation": 2}));
        let listed = api.get(&format!("/resource_providers?member_of={aggregate}")).await.is(200);
        assert_eq!(listed.body["resource_providers"].as_array().map(Vec::len), Some(1));
        let listed = api.get(&format!("/resource_providers?member_of=!{aggregate}")).await.is(200);
        assert_eq!(listed.body["resource_providers"].as_array().map(Vec::len), Some(0));
        let body = json!({"aggregates": [], "resource_provider_generation": 2});
        assert_eq!(api.put(&path, body).await.is(200).body["resource_provider_generation"], 3);
        for spelt in ["11111111222233334444555555555555", "AAAAAAAA-2222-3333-4444-555555555555"] {
            let generation =
                api.get(&path).await.is(200).body["resource_provider_generation"].clone();
            let body = json!({"aggregates": [spelt], "resource_provider_generation": generation});
            let put = api.put(&path, body).await.is(200).body;
            assert_eq!(put["aggregates"], json!([spelt]));
            let seen = api.get(&path).await.is(200).body;
            assert_eq!(seen["aggregates"], json!([spelt]), "the spelling is the client's");
            let listed = api.get(&format!("/resource_providers?member_of={spelt}")).await.is(200);
            assert_eq!(listed.body["resource_providers"].as_array().map(Vec::len), Some(1));
        }
    }
}

#[tokio::test]
async fn a_renamed_class_is_renamed_in_inventories_and_allocations() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        api.post("/resource_classes", json!({"name": "CUSTOM_OLD"})).await.is(201);
        api.post("/resource_classes", json!({"name": "CUSTOM_OLD"})).await.is(409);
        api.post("/resource_classes", json!({"name": "OLD"})).await.is(400);
        let a = api.provider("a", None, &[("CUSTOM_OLD", 4)]).await;
        let body = Some(json!({"name": "CUSTOM_NEW"}));
        let path = "/resource_classes/CUSTOM_OLD";
        api.at(6, "PUT", path, body.clone()).await.is(200);
        api.at(6, "PUT", path, body.clone()).await.is(404);
        api.at(6, "PUT", "/resource_classes/VCPU", body).await.is(400);
        let have = api.get(&format!("/resource_providers/{a}/inventories")).await.is(200).body;
        assert_eq!(have["inventories"]["CUSTOM_NEW"]["total"], 4);
        assert_eq!(room(&api.world, "CUSTOM_NEW", 4).len(), 1);
        let all = api.get("/resource_classes").await.is(200).body;
        assert_eq!(all["resource_classes"].as_array().map(Vec::len), Some(22));
        assert_eq!(all["resource_classes"][0]["name"], "VCPU");
    }
}

#[tokio::test]
async fn list_filters_consider_each_provider_by_itself() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        let a = api.provider("a", None, &[("VCPU", 4)]).await;
        api.provider("b", None, &[("VCPU", 8)]).await;
        let body = json!({"resource_provider_generation": 1, "traits": ["HW_CPU_X86_AVX2"]});
        api.put(&format!("/resource_providers/{a}/traits"), body).await.is(200);
        for (query, names) in [
            ("resources=VCPU:5", vec!["b"]),
            ("resources=VCPU:4&required=HW_CPU_X86_AVX2", vec!["a"]),
            ("required=!HW_CPU_X86_AVX2", vec!["b"]),
            ("required=in:HW_CPU_X86_AVX2,HW_CPU_X86_AVX", vec!["a"]),
            ("name=a", vec!["a"]),
            ("", vec!["a", "b"]),
        ] {
            let body = api.get(&format!("/resource_providers?{query}")).await.is(200).body;
            let found: Vec<&str> = body["resource_providers"]
                .as_array()
                .expect("the answer lists providers")
                .iter()
                .filter_map(|one| one["name"].as_str())
                .collect();
            assert_eq!(found, names, "{query}");
        }
        let wrong = api.get("/resource_providers?required=CUSTOM_NONE").await.is(400);
        assert!(wrong.detail().contains("No such trait(s): CUSTOM_NONE."));
        let wrong = api.get("/resource_providers?pony=1").await.is(400);
        assert!(wrong.detail().contains("Invalid query string parameters"));
        api.get("/resource_providers?resources=NOPE:1").await.is(400);
    }
}

#[tokio::test]
async fn policy_is_checked_before_the_body() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        let headers = [("x-auth-token", "joe"), ("openstack-api-version", "placement 1.39")];
        let denied = api
            .send("POST", "/resource_providers", &headers, Some(json!({"pony": 1})))
            .await
            .is(403);
        assert!(denied.detail().contains(
            "Policy does not allow placement:resource_providers:create to be performed."
        ));
        let headers = [("x-auth-token", "nova"), ("x-roles", "service")];
        api.send("GET", "/resource_providers", &headers, None).await.is(200);
        let wrong = api.post("/resource_providers", json!({"pony": 1})).await.is(400);
        assert!(wrong.detail().contains("JSON does not validate"));
        let headers = [("x-auth-token", "admin"), ("accept", "text/plain")];
        api.send("GET", "/resource_providers", &headers, None).await.is(406);
        let headers = [("x-auth-token", "admin")];
        api.send("POST", "/resource_providers", &headers, None).await.is(415);
        api.ask("PATCH", "/resource_providers", None).await.is(405);
        api.get("/nothing/here").await.is(404);
    }
}

#[tokio::test]
async fn a_host_report_preserves_the_operators_settings() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        let host = spec("h1", &[("VCPU", 8)], &["HW_CPU_X86_AVX2"]);
        let report = |host: &ledger::ProviderSpec| {
            let (world, host) = (api.world.clone(), host.clone());
            let store = store.clone();
            async move {
                store
                    .write(move |tx| -> Result<(), Error> {
                        ledger::report_host(tx, &world, &host, &[])
                    })
                    .await
                    .expect("the report is applied");
            }
        };
        report(&host).await;
        api.ask("PUT", "/traits/CUSTOM_GOLD", None).await.is(201);
        let base = format!("/resource_providers/{}", host.id);
        let body = json!({
            "resource_provider_generation": 1, "traits": ["HW_CPU_X86_AVX2", "CUSTOM_GOLD"],
        });
        api.put(&format!("{base}/traits"), body).await.is(200);
        let body = json!({"resource_provider_generation": 2, "total": 8, "reserved": 2});
        api.put(&format!("{base}/inventories/VCPU"), body).await.is(200);

        let mut more = host.clone();
        more.inventories[0].1.total = 16;
        more.traits = vec!["HW_CPU_X86_AVX".into()];
        report(&more).await;
        let shown = api.get(&format!("{base}/inventories/VCPU")).await.is(200).body;
        assert_eq!((&shown["total"], &shown["reserved"]), (&json!(16), &json!(2)));
        let traits = api.get(&format!("{base}/traits")).await.is(200).body;
        assert_eq!(traits["traits"], json!(["HW_CPU_X86_AVX", "CUSTOM_GOLD"]));
    }
}

/// The option `cpu_allocation_ratio` overrides a ratio set through Placement; `initial_cpu_allocation_ratio` does not.
#[tokio::test]
async fn a_report_preserves_a_ratio_unless_the_host_fixes_it() {
    for (name, store, _guard) in stores().await {
        let api = Api::new(&store);
        let mut host = spec("h1", &[("VCPU", 8), ("MEMORY_MB", 1024)], &[]);
        host.initial_ratios = vec![ResourceClass::verbatim("VCPU")];
        for (_, inventory) in &mut host.inventories {
            inventory.allocation_ratio = 4.0;
        }
        let report = async |host: &ledger::ProviderSpec| {
            let (world, host) = (api.world.clone(), host.clone());
            let report = move |tx: &mut Tx<'_>| ledger::report_host(tx, &world, &host, &[]);
            store.write(report).await.expect("the report is applied");
        };
        let ratios = async || {
            let path = format!("/resource_providers/{}/inventories", host.id);
            let shown = api.get(&path).await.is(200).body["inventories"].clone();
            ["VCPU", "MEMORY_MB"].map(|class| shown[class]["allocation_ratio"].as_f64())
        };
        report(&host).await;
        assert_eq!(ratios().await, [Some(4.0), Some(4.0)], "{name}: both are new");
        for (generation, class) in [(1, "VCPU"), (2, "MEMORY_MB")] {
            let body = json!({
                "resource_provider_generation": generation, "total": 8, "allocation_ratio": 2.0,
            });
            let path = format!("/resource_providers/{}/inventories/{class}", host.id);
            api.put(&path, body).await.is(200);
        }
        for total in [8, 16] {
            let mut host = host.clone();
            host.inventories[0].1.total = total;
            report(&host).await;
            assert_eq!(ratios().await, [Some(2.0), Some(4.0)], "{name}: {total}");
        }
    }
}

/// A filter for one provider must not read the inventories, traits and aggregates of the whole cloud.
#[tokio::test]
async fn filters_of_one_provider_read_only_its_tree() {
    for (name, store, _guard) in stores().await {
        let meter = Meter::listing();
        let api = Api::new(&store.with_meter(meter.clone()));
        let a = api.provider("a", None, &[("VCPU", 4)]).await;
        api.provider("b", None, &[("VCPU", 4)]).await;
        for filter in ["name=a".to_owned(), format!("uuid={a}"), format!("in_tree={a}")] {
            meter.take_transactions();
            let path = format!("/resource_providers?{filter}&resources=VCPU:1");
            let found = api.get(&path).await.is(200).body;
            assert_eq!(found["resource_providers"].as_array().map(Vec::len), Some(1), "{filter}");
            let reads = meter.take_transactions();
            let mut statements = reads.iter().flat_map(|read| &read.statements);
            let whole = statements
                .find(|one| one.sql.contains("FROM inventories") && !one.sql.contains("WHERE"));
            assert_eq!(whole, None, "{name} {filter}");
        }
    }
}

#[tokio::test]
async fn an_aggregate_with_some_of_the_dashes_is_kept() {
    const SPARSE: &str = "5e08ea53c4c6-448e-9334-ac4953de3cfa";
    for (name, store, _guard) in stores().await {
        let api = Api::new(&store);
        let a = api.provider("a", None, &[]).await;
        let path = format!("/resource_providers/{a}/aggregates");
        let body = json!({"resource_provider_generation": 0, "aggregates": [SPARSE]});
        api.put(&path, body).await.is(200);
        let shown = api.get(&path).await.is(200).body;
        assert_eq!(shown["aggregates"], json!([SPARSE]), "{name}");
        for spelling in [SPARSE, "5e08ea53-c4c6-448e-9334-ac4953de3cfa"] {
            let path = format!("/resource_providers?member_of={spelling}");
            let found = api.get(&path).await.is(200).body;
            let found = found["resource_providers"].as_array().map(Vec::len);
            assert_eq!(found, Some(1), "{name} {spelling}");
        }
    }
}

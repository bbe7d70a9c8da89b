//! `GET /allocation_candidates` and its explanation over HTTP, where the engine's own tests do not
//! cover them.

use std::collections::HashSet;

use serde_json::json;

use crate::common::http::{Answer, Api};
use crate::common::stores;

const PATH: &str = "/allocation_candidates";

/// Creates `hosts` hosts with `gpus` children of one PGPU each.
async fn gpu_hosts(api: &Api, hosts: usize, gpus: usize) -> Vec<String> {
    let mut roots = Vec::new();
    for host in 0..hosts {
        let root = api.provider(&format!("host-{host}"), None, &[("VCPU", 64)]).await;
        for gpu in 0..gpus {
            let name = format!("host-{host}-gpu-{gpu}");
            api.provider(&name, Some(&root), &[("PGPU", 1)]).await;
        }
        roots.push(root);
    }
    roots
}

fn groups(count: usize) -> String {
    let groups: String = (1..=count).map(|n| format!("&resources{n}=PGPU:1")).collect();
    format!("{PATH}?resources=VCPU:1&group_policy=none{groups}")
}

fn roots_of(answer: &Answer) -> Vec<String> {
    let requests = answer.body["allocation_requests"]
        .as_array()
        .expect("the answer lists allocation requests");
    requests
        .iter()
        .map(|one| {
            one["mappings"][""][0]
                .as_str()
                .expect("the root provider serves the unsuffixed group")
                .to_owned()
        })
        .collect()
}

#[tokio::test]
async fn hosts_with_wide_trees_take_turns_with_and_without_a_limit() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        gpu_hosts(&api, 3, 8).await;
        let some = api.get(&format!("{}&limit=9", groups(6))).await.is(200);
        let roots = roots_of(&some);
        assert_eq!(roots.len(), 9);
        for round in roots.chunks(3) {
            assert_eq!(round.iter().collect::<HashSet<_>>().len(), 3, "{roots:?}");
        }
        assert_eq!(some.body["provider_summaries"].as_object().map(|all| all.len()), Some(27));

        let all = api.get(&groups(6)).await.is(200);
        assert_eq!(
            roots_of(&all).len(),
            50_000,
            "20,160 for each of three hosts exceed the maximum"
        );
        let none = api.get(&format!("{}&limit=9", groups(9))).await.is(200);
        assert_eq!(none.body, json!({"allocation_requests": [], "provider_summaries": {}}));
    }
}

#[tokio::test]
async fn the_order_depends_on_the_request_id_and_spreads() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        gpu_hosts(&api, 12, 1).await;
        let first = async |id: Option<&str>| {
            let mut headers =
                vec![("x-auth-token", "admin"), ("openstack-api-version", "placement 1.39")];
            headers.extend(id.map(|id| ("x-openstack-request-id", id)));
            let path = format!("{PATH}?resources=VCPU:1&limit=1");
            roots_of(&api.send("GET", &path, &headers, None).await.is(200)).remove(0)
        };
        let id = "req-5294f726-33d5-472a-bef1-9e19bb41626d";
        let one = first(Some(id)).await;
        assert_eq!(first(Some(id)).await, one);
        let mut seen = HashSet::new();
        for _ in 0..40 {
            seen.insert(first(None).await);
        }
        assert!(seen.len() > 5, "{} first hosts for 40 requests", seen.len());
    }
}

#[tokio::test]
async fn summaries_show_the_trees_of_the_candidates() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        let host = api.provider("host", None, &[("VCPU", 8)]).await;
        let disk = api.provider("disk", None, &[("DISK_GB", 100)]).await;
        for (id, traits) in [(&host, json!([])), (&disk, json!(["MISC_SHARES_VIA_AGGREGATE"]))] {
            let traits = json!({"resource_provider_generation": 1, "traits": traits});
            let generation = api
                .put(&format!("/resource_providers/{id}/traits"), traits)
                .await
                .is(200)
                .body["resource_provider_generation"]
                .clone();
            let together = ["5294f726-33d5-472a-bef1-9e19bb41626d"];
            let body = json!({"resource_provider_generation": generation, "aggregates": together});
            api.put(&format!("/resource_providers/{id}/aggregates"), body).await.is(200);
        }
        let shown = async |query: &str| {
            let answer = api.get(&format!("{PATH}?{query}")).await.is(200);
            let summaries =
                answer.body["provider_summaries"].as_object().expect("the summaries are an object");
            summaries.keys().cloned().collect::<HashSet<String>>()
        };
        assert_eq!(shown("resources=DISK_GB:1").await, HashSet::from([disk.clone()]));
        assert_eq!(shown("resources=VCPU:1,DISK_GB:1").await, HashSet::from([host, disk]));
    }
}

#[tokio::test]
async fn an_explanation_counts_the_excluded_hosts() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        let roots = gpu_hosts(&api, 2, 2).await;
        api.provider("plain", None, &[("VCPU", 4)]).await;
        let disabled = json!({
            "resource_provider_generation": 1, "traits": ["COMPUTE_STATUS_DISABLED"],
        });
        let path = format!("/resource_providers/{}/traits", roots[0]);
        api.put(&path, disabled).await.is(200);
        let query = "resources=VCPU:1&resources1=PGPU:1&resources2=PGPU:1&resources3=PGPU:1\
                     &group_policy=none&root_required=!COMPUTE_STATUS_DISABLED";
        let answer = api.get(&format!("{PATH}/explain?{query}")).await.is(200).body;
        assert_eq!((&answer["hosts"], &answer["left"]), (&json!(3), &json!(0)));
        assert_eq!(
            answer["steps"],
            json!([
                {"constraint": "root_required=!COMPUTE_STATUS_DISABLED", "removed": 1, "left": 2,
                    "text": "1 of 3 hosts is disabled."},
                {"constraint": "resources1=PGPU:1", "removed": 1, "left": 1,
                    "text": "1 of the remaining 2 hosts does not offer PGPU."},
                {"constraint": "room for all groups at once", "removed": 1, "left": 0,
                    "text": "The remaining host does not have room for all requested resources \
                            at once."},
            ])
        );
        assert_eq!(
            answer["nearest"],
            json!({
                "root_provider_uuid": roots[1], "name": "host-1",
                "constraint": "room for all groups at once",
                "lacks": "does not have room for all requested resources at once",
            })
        );
        let text = answer["text"].as_str().expect("the explanation has a text");
        assert!(text.starts_with("1 of 3 hosts is disabled. 1 of the remaining 2"), "{text}");
        assert!(
            text.ends_with(
                "Nearest: host-1, which does not have room for all requested resources \
                                at once."
            ),
            "{text}"
        );
        let fits = api.get(&format!("{PATH}/explain?resources=VCPU:1")).await.is(200).body;
        assert_eq!(
            (&fits["left"], &fits["steps"], &fits["nearest"]),
            (&json!(3), &json!([]), &json!(null))
        );
    }
}

#[tokio::test]
async fn an_explanation_requires_an_admin_and_a_valid_query() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        let path = format!("{PATH}/explain?resources=VCPU:1");
        for (token, roles) in [("nova", "service"), ("joe", "member")] {
            let headers = [("x-auth-token", token), ("x-roles", roles)];
            let answer = api.send("GET", &path, &headers, None).await;
            assert!([403, 404].contains(&answer.status.as_u16()), "{roles}: {}", answer.status);
            let headers = [headers[0], headers[1], ("openstack-api-version", "placement 1.39")];
            api.send("GET", &path, &headers, None).await.is(403);
        }
        api.at(9, "GET", &path, None).await.is(404);
        api.get(&format!("{PATH}/explain?resources=CUSTOM_NO:1")).await.is(400);
        api.get(&format!("{PATH}/explain?resources=VCPU")).await.is(400);
        api.post(&format!("{PATH}/explain?resources=VCPU:1"), json!({})).await.is(405);
    }
}

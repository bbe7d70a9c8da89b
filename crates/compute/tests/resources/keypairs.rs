//! Key pairs.

use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Api, BOB, apis};

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMzndcA7TIh/GcN3SymR9QrlrfWCZOmWHUi/CxP2cNtm";
const FINGERPRINT: &str = "23:95:0f:0b:90:08:ee:2f:c2:df:5e:64:09:ad:6a:ab";

async fn add(api: &Api, version: &str, keypair: Value) -> crate::kit::Answer {
    let body = Some(json!({"keypair": keypair}));
    api.call(ANN, version, "POST /os-keypairs", body).await
}

#[tokio::test]
async fn a_key_pair_is_added_shown_and_removed() {
    for api in apis().await {
        let made = add(&api, "2.10", json!({"name": "k", "public_key": KEY})).await.expect(201);
        assert_eq!(
            made,
            json!({"keypair": {
                "name": "k", "type": "ssh", "public_key": KEY, "fingerprint": FINGERPRINT,
                "user_id": "ann",
            }})
        );
        let list = api.get(ANN, "2.10", "/os-keypairs").await.expect(200);
        assert_eq!(
            list,
            json!({"keypairs": [{"keypair": {
                "name": "k", "type": "ssh", "public_key": KEY, "fingerprint": FINGERPRINT,
            }}]})
        );
        let one = api.get(ANN, "2.10", "/os-keypairs/k").await.expect(200);
        assert_eq!(one["keypair"]["deleted"], false);
        assert!(one["keypair"]["id"].is_i64());
        assert!(one["keypair"]["created_at"].as_str().is_some_and(|at| at.ends_with(".000000")));
        api.get(BOB, "2.10", "/os-keypairs/k")
            .await
            .refused(404, "Keypair k not found for user bob");
        add(&api, "2.10", json!({"name": "k", "public_key": KEY}))
            .await
            .refused(409, "Key pair 'k' already exists.");
        api.call(ANN, "2.10", "DELETE /os-keypairs/k", None).await.expect(204);
        api.call(ANN, "2.10", "DELETE /os-keypairs/k", None).await.refused(404, "user ann");
    }
}

#[tokio::test]
async fn older_microversions_know_less() {
    for api in apis().await {
        let made = add(&api, "2.1", json!({"name": "k", "public_key": KEY})).await.expect(200);
        assert!(made["keypair"].get("type").is_none());
        let typed = json!({"name": "t", "public_key": KEY, "type": "ssh"});
        add(&api, "2.1", typed.clone()).await.refused(400, "type");
        add(&api, "2.2", typed).await.expect(201);
        add(&api, "2.9", json!({"name": "u", "public_key": KEY, "user_id": "ann"}))
            .await
            .refused(400, "user_id");
        api.call(ANN, "2.1", "DELETE /os-keypairs/k", None).await.expect(202);
    }
}

#[tokio::test]
async fn an_admin_may_act_for_others_from_2_10_on() {
    for api in apis().await {
        let body = json!({"keypair": {"name": "k", "public_key": KEY, "user_id": "ann"}});
        let path = "POST /os-keypairs";
        api.call(BOB, "2.10", path, Some(body.clone())).await.refused(403, "os-keypairs:create");
        api.call(ADMIN, "2.10", path, Some(body)).await.expect(201);
        let list = api.get(ADMIN, "2.10", "/os-keypairs?user_id=ann").await.expect(200);
        assert_eq!(list["keypairs"][0]["keypair"]["name"], "k");
        let list = api.get(ADMIN, "2.9", "/os-keypairs?user_id=ann").await.expect(200);
        assert_eq!(list, json!({"keypairs": []}));
        api.get(BOB, "2.10", "/os-keypairs?user_id=ann").await.refused(403, "os-keypairs:index");
        api.get(BOB, "2.10", "/os-keypairs/k?user_id=ann").await.refused(403, "os-keypairs:show");
        let path = "DELETE /os-keypairs/k?user_id=ann";
        api.call(BOB, "2.10", path, None).await.refused(403, "os-keypairs:delete");
        api.call(ADMIN, "2.10", path, None).await.expect(204);
    }
}

#[tokio::test]
async fn listings_page_from_2_35_on() {
    for api in apis().await {
        for name in ["b", "a", "c"] {
            add(&api, "2.92", json!({"name": name, "public_key": KEY})).await.expect(201);
        }
        let names = |list: &Value| -> String {
            let list = list["keypairs"].as_array().expect("a list");
            list.iter().filter_map(|pair| pair["keypair"]["name"].as_str()).collect()
        };
        let all = api.get(ANN, "2.34", "/os-keypairs?limit=1").await.expect(200);
        assert_eq!(names(&all), "abc");
        let page = api.get(ANN, "2.35", "/os-keypairs?limit=1&marker=a").await.expect(200);
        assert_eq!(names(&page), "b");
        assert_eq!(
            page["keypairs_links"][0]["href"],
            "http://cloud:1234/compute/v2.1/os-keypairs?limit=1&marker=b"
        );
        api.get(ANN, "2.35", "/os-keypairs?marker=z").await.refused(400, "Marker z");
        api.get(ANN, "2.75", "/os-keypairs?a=b").await.refused(400, "'a' was unexpected");
    }
}

#[tokio::test]
async fn wrong_input_is_refused() {
    for api in apis().await {
        for (keypair, part) in [
            (json!({"name": "k"}), "makes no private keys"),
            (json!({"public_key": KEY}), "name"),
            (json!({"name": "", "public_key": KEY}), "name"),
            (json!({"name": " k", "public_key": KEY}), "name"),
            (json!({"name": "a@b", "public_key": KEY}), "name"),
            (json!({"name": "x".repeat(256), "public_key": KEY}), "name"),
            (
                json!({"name": "k", "public_key": "ssh-rsa nonsense"}),
                "failed to generate fingerprint",
            ),
            (json!({"name": "k", "public_key": 5}), "public_key"),
            (json!({"name": "k", "public_key": KEY, "type": "pgp"}), "type"),
            (json!({"name": "k", "public_key": KEY, "type": "x509"}), "only ssh"),
            (json!({"name": "k", "public_key": KEY, "size": 1}), "size"),
        ] {
            add(&api, "2.10", keypair).await.refused(400, part);
        }
        add(&api, "2.92", json!({"name": "k"})).await.refused(400, "public_key");
        add(&api, "2.92", json!({"name": "a@b.c", "public_key": KEY})).await.expect(201);
    }
}

#[tokio::test]
async fn a_user_has_as_many_as_the_quota_allows() {
    for api in apis().await {
        let quota = json!({"quota_set": {"key_pairs": 1}});
        api.admin("2.57", "PUT /os-quota-sets/red", quota).await.expect(200);
        add(&api, "2.92", json!({"name": "a", "public_key": KEY})).await.expect(201);
        add(&api, "2.92", json!({"name": "b", "public_key": KEY}))
            .await
            .refused(403, "Quota exceeded, too many key pairs.");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_quota_holds_when_many_ask_at_once() {
    for api in apis().await {
        let quota = json!({"quota_set": {"key_pairs": 3}});
        api.admin("2.57", "PUT /os-quota-sets/red", quota).await.expect(200);
        let api = std::sync::Arc::new(api);
        let tasks: Vec<_> = (0..8)
            .map(|number| {
                let api = std::sync::Arc::clone(&api);
                tokio::spawn(async move {
                    let keypair = json!({"name": format!("k{number}"), "public_key": KEY});
                    add(&api, "2.92", keypair).await.status.as_u16()
                })
            })
            .collect();
        let mut statuses = Vec::new();
        for task in tasks {
            statuses.push(task.await.expect("no panic"));
        }
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 201, 201, 403, 403, 403, 403, 403]);
    }
}

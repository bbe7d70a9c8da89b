//! The list of migrations: its keys by microversion, its filters and its pages.

use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Cloud, GPU, RunningCloud, hosts};
use crate::servers::resize::{admin, confirm_resize};

async fn list(running: &RunningCloud, version: &str, query: &str) -> Vec<Value> {
    let answer = running.get(ADMIN, version, &format!("/os-migrations{query}")).await.expect(200);
    answer["migrations"].as_array().expect("the answer has a list").clone()
}

#[tokio::test]
async fn every_kind_of_migration_is_listed() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        admin(&running, "2.90", &id, json!({"migrate": null})).await.expect(202);
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        admin(&running, "2.90", &id, json!({"revertResize": null})).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        let live = json!({"os-migrateLive": {"host": "b", "block_migration": "auto"}});
        admin(&running, "2.90", &id, live).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        running.wait_for_host_cleanup(&cloud).await;
        admin(&running, "2.90", &id, json!({"resize": {"flavorRef": "vgpu4"}})).await.expect(202);
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        admin(&running, "2.90", &id, json!({"confirmResize": null})).await.expect(204);
        running.wait_for_status(&id, "ACTIVE").await;
        running.wait_for_host_cleanup(&cloud).await;
        let all = list(&running, "2.80", "").await;
        let message: Vec<_> = all
            .iter()
            .map(|one| {
                let text = |key: &str| one[key].as_str().expect("the value is a string").to_owned();
                [
                    text("migration_type"),
                    text("status"),
                    text("source_compute"),
                    text("dest_compute"),
                ]
            })
            .collect();
        assert_eq!(
            message,
            [
                ["resize", "confirmed", "b", "a"],
                ["live-migration", "completed", "a", "b"],
                ["migration", "reverted", "a", "b"],
            ]
        );
        assert_ne!(all[0]["old_instance_type_id"], all[0]["new_instance_type_id"]);
        assert_eq!(all[1]["old_instance_type_id"], all[1]["new_instance_type_id"]);
        let keys = |one: &Value| one.as_object().expect("the value is an object").len();
        assert_eq!(keys(&list(&running, "2.1", "").await[0]), 12);
        assert_eq!(
            list(&running, "2.58", "").await[0]["migration_type"],
            "migration",
            "oldest first"
        );
        assert_eq!(keys(&list(&running, "2.23", "").await[0]), 13);
        assert_eq!(keys(&list(&running, "2.59", "").await[0]), 14);
        assert_eq!(keys(&all[0]), 16);
        for (query, count) in [
            (format!("?instance_uuid={id}"), 3),
            ("?migration_type=resize".into(), 1),
            ("?status=reverted".into(), 1),
            ("?source_compute=a".into(), 2),
            ("?host=b".into(), 3),
            ("?host=c".into(), 0),
            ("?user_id=admin&migration_type=live-migration".into(), 1),
            ("?project_id=nobody".into(), 0),
            ("?changes-since=2000-01-01T00:00:00Z".into(), 3),
            ("?changes-before=2000-01-01T00:00:00Z".into(), 0),
        ] {
            assert_eq!(list(&running, "2.80", &query).await.len(), count, "{query}");
        }
        let page = running.get(ADMIN, "2.80", "/os-migrations?limit=2").await.expect(200);
        let next = page["migrations_links"][0]["href"]
            .as_str()
            .expect("the answer has a link to the next page");
        let (_, query) = next.split_once("/os-migrations").expect("the query succeeds");
        let last = list(&running, "2.80", query).await;
        assert_eq!((last.len(), &last[0]["status"]), (1, &json!("reverted")));
        for (version, query) in [
            ("2.80", "?nonsense=1"),
            ("2.65", "?changes-before=2000-01-01T00:00:00Z"),
            ("2.79", "?user_id=x"),
            ("2.80", "?changes-since=then"),
            ("2.80", "?limit=-1"),
            ("2.80", "?marker=17"),
            ("2.80", "?changes-since=2001-01-01T00:00:00Z&changes-before=2000-01-01T00:00:00Z"),
        ] {
            let answer = running.get(ADMIN, version, &format!("/os-migrations{query}")).await;
            assert_eq!(answer.status.as_u16(), 400, "{version} {query}: {}", answer.body);
        }
        running.get(ANN, "2.80", "/os-migrations").await.refused(403, "os-migrations:index");
        let one = format!("/servers/{id}/migrations/{}", all[0]["id"]);
        running.get(ADMIN, "2.80", &one).await.refused(404, "is not live-migration.");
        let none = format!("/servers/{id}/migrations/999");
        running.get(ADMIN, "2.80", &none).await.refused(404, "is not found for server");
        cloud.teardown(&running, "migrated").await;
        assert_eq!(list(&running, "2.80", "").await.len(), 3, "migrations outlive their server");
    }
}

#[tokio::test]
async fn a_confirmed_server_can_migrate_again_at_once() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        for _ in 0..2 {
            admin(&running, "2.90", &id, json!({"migrate": null})).await.expect(202);
            running.wait_for_status(&id, "VERIFY_RESIZE").await;
            let done = admin(&running, "2.90", &id, json!({"confirmResize": null})).await;
            done.expect(204);
            running.wait_for_host_cleanup(&cloud).await;
        }
        let server = running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(server["OS-EXT-SRV-ATTR:host"], "a");
        cloud.assert_consistent(&running, "migrated twice").await;
        cloud.teardown(&running, "migrated twice").await;
        let mine = running.active_server(&cloud, "mine", "vgpu").await;
        admin(&running, "2.90", &mine, json!({"migrate": null})).await.expect(202);
        running.wait_for_status(&mine, "VERIFY_RESIZE").await;
        confirm_resize(&running, &cloud, &mine).await;
        cloud.teardown(&running, "own").await;
    }
}

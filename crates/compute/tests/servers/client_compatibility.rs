//! Details of upstream's behaviour that clients depend on.

use kilonova_store::params;
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Cloud, hosts};

#[tokio::test]
async fn a_lock_takes_any_argument_before_2_73() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let path = format!("POST /servers/{id}/action");
        for argument in [json!({}), json!(null), json!({"any": ["thing"]}), json!("text")] {
            let lock = Some(json!({"lock": argument}));
            running.call(ANN, "2.72", &path, lock).await.expect(202);
            assert_eq!(running.server(&id).await["locked"], true);
            let unlock = Some(json!({"unlock": argument}));
            running.call(ANN, "2.90", &path, unlock).await.expect(202);
            assert_eq!(running.server(&id).await["locked"], false);
        }
        let wrong = Some(json!({"lock": {"any": "thing"}}));
        running.call(ANN, "2.73", &path, wrong).await.refused(400, "locked_reason");
        running.call(ANN, "2.73", &path, Some(json!({"lock": {}}))).await.expect(202);
    }
}

#[tokio::test]
async fn a_resize_keeps_the_disk_config_that_it_is_given() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[]), ("b", &[])])).await {
        running.flavor("large", json!({"vcpus": 2})).await;
        let id = running.active_server(&cloud, "one", "plain").await;
        let resize = json!({"resize": {"flavorRef": "large", "OS-DCF:diskConfig": "AUTO"}});
        running.act(&id, resize).await;
        let server = running.wait_for_status(&id, "VERIFY_RESIZE").await;
        assert_eq!(server["OS-DCF:diskConfig"], "AUTO");
        running.try_act(&id, json!({"confirmResize": null})).await.expect(204);
        assert_eq!(running.server(&id).await["OS-DCF:diskConfig"], "AUTO");
    }
}

/// Upstream sets it after each spawn, rescue, resize and revert, and not when a guest starts on its disk.
#[tokio::test]
async fn launched_at_is_the_time_of_the_last_spawn() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[]), ("b", &[])])).await {
        running.flavor("large", json!({"vcpus": 2})).await;
        let id = running.active_server(&cloud, "one", "plain").await;
        for (action, status, changes) in [
            (json!({"reboot": {"type": "HARD"}}), "ACTIVE", false),
            (json!({"os-stop": null}), "SHUTOFF", false),
            (json!({"rebuild": {"imageRef": cloud.image}}), "SHUTOFF", true),
            (json!({"os-start": null}), "ACTIVE", false),
            (json!({"rescue": {}}), "RESCUE", true),
            (json!({"unrescue": null}), "ACTIVE", false),
            (json!({"shelve": null}), "SHELVED_OFFLOADED", false),
            (json!({"unshelve": null}), "ACTIVE", true),
            (json!({"resize": {"flavorRef": "large"}}), "VERIFY_RESIZE", true),
            (json!({"revertResize": null}), "ACTIVE", true),
        ] {
            cloud.execute("UPDATE servers SET launched_at = 1").await;
            let answer = running.try_act(&id, action.clone()).await;
            assert!(answer.status.is_success(), "{action}: {}", answer.body);
            running.wait_for_status(&id, status).await;
            let launched = cloud.column("SELECT CAST(launched_at AS TEXT) FROM servers").await;
            assert_eq!(launched != ["1"], changes, "{action}");
        }
        cloud.teardown(&running, "reverted").await;
    }
}

#[tokio::test]
async fn access_addresses_are_normalized() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let more = json!({"accessIPv6": "2001:DB8:0:0::1"});
        let id = running.boot_with(&cloud, "one", "plain", more).await;
        assert_eq!(running.wait_for_status(&id, "ACTIVE").await["accessIPv6"], "2001:db8::1");
        let change = json!({"server": {"accessIPv6": "FE80:0::2", "accessIPv4": "192.0.2.1"}});
        running.call(ANN, "2.90", &format!("PUT /servers/{id}"), Some(change)).await.expect(200);
        let shown = running.server(&id).await;
        assert_eq!(
            (&shown["accessIPv6"], &shown["accessIPv4"]),
            (&json!("fe80::2"), &json!("192.0.2.1"))
        );
        let rebuild = json!({"rebuild": {"imageRef": cloud.image, "accessIPv6": "::0:3"}});
        running.act(&id, rebuild).await;
        assert_eq!(running.wait_for_status(&id, "ACTIVE").await["accessIPv6"], "::3");
    }
}

#[tokio::test]
async fn changes_since_and_updated_agree() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let sql = "UPDATE servers SET updated_at = 1700000000900000";
        cloud.store.write(move |tx| tx.execute(sql, params![])).await.expect("the row is written");
        let updated = running.server(&id).await["updated"]
            .as_str()
            .expect("the server has a time")
            .to_owned();
        assert_eq!(updated, "2023-11-14T22:13:20Z");
        let seen = async |before: &str| {
            let list = running.get(ANN, "2.66", &format!("/servers?changes-before={before}")).await;
            list.expect(200)["servers"].as_array().map(Vec::len)
        };
        assert_eq!(seen(&updated).await, Some(1));
        assert_eq!(seen("2023-11-14T22:13:19Z").await, Some(0));
    }
}

#[tokio::test]
async fn usage_echoes_the_span_with_fractions() {
    for (_, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let span = "start=2026-01-01T00:00:00.123456&end=2026-01-02T00:00:00";
        let path = format!("/os-simple-tenant-usage/red?{span}");
        let usage = running.get(ANN, "2.40", &path).await.expect(200);
        assert_eq!(usage["tenant_usage"], json!({}), "nothing was used");
        let aggregate = running.get(ADMIN, "2.40", "/os-aggregates/-1").await;
        aggregate.refused(404, "Aggregate -1 could not be found.");
        let text = running.get(ADMIN, "2.40", "/os-aggregates/x").await;
        text.refused(400, "id must be an integer");
    }
}

#[tokio::test]
async fn usage_covers_the_requested_span() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        running.active_server(&cloud, "one", "plain").await;
        let path = "/os-simple-tenant-usage/red?start=2026-01-01T00:00:00.123456";
        let usage: Value = running.get(ANN, "2.40", path).await.expect(200)["tenant_usage"].take();
        assert_eq!(usage["start"], "2026-01-01T00:00:00.123456");
        assert!(usage["stop"].as_str().is_some_and(|stop| stop.len() == 26), "{usage}");
    }
}

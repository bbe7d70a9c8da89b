//! Devices, deployables and attributes, as a manager reads them.

use http::StatusCode;
use kilonova_accelerator::ledger;
use serde_json::json;

use crate::common::{Api, fake, report, stores, vgpu};

const ABSENT: &str = "9f199406-cfac-4402-b5c3-b8b38d8929aa";

#[tokio::test]
async fn devices_are_listed_filtered_and_shown() {
    for (name, store, _guard) in stores().await {
        report(&store, vec![fake(16), vgpu("0000:84:00.0", 4)]).await.unwrap();
        let api = Api::admin(&store);
        let all = api.get("/v2/devices").await;
        assert_eq!(all.body["devices"].as_array().unwrap().len(), 2, "{name}");
        let device = &all.body["devices"][0];
        assert_eq!(device["type"], "FPGA");
        assert_eq!(device["vendor"], "10de");
        assert_eq!(device["model"], "Tesla T4");
        assert_eq!(device["hostname"], "cmp1");
        assert_eq!(device["updated_at"], serde_json::Value::Null);
        assert!(device["created_at"].as_str().unwrap().ends_with("+00:00"));
        assert!(device.get("status").is_none());
        let board: serde_json::Value =
            serde_json::from_str(device["std_board_info"].as_str().unwrap()).unwrap();
        assert_eq!(board["product_id"], "1eb8");
        let path = format!("/v2/devices/{}", device["uuid"].as_str().unwrap());
        assert_eq!(device["links"][0]["href"], format!("http://cloud:8780/accelerator{path}"));
        let shown = api.at("accelerator 2.3").get(&path).await;
        assert_eq!(shown.body["status"], "enabled", "{name}");
        assert_eq!(shown.body["uuid"], device["uuid"]);
        for (query, count) in [
            ("type=FPGA", 1),
            ("type=none", 0),
            ("vendor=10de", 2),
            ("hostname=cmp1&type=GPU", 1),
            ("hostname=cmp2", 0),
            ("type=&vendor=&hostname=", 2),
            ("type=FPGA&vendor=&hostname=", 1),
        ] {
            let some = api.get(&format!("/v2/devices?{query}")).await;
            assert_eq!(some.body["devices"].as_array().unwrap().len(), count, "{name} {query}");
        }
        let filtered = api.get("/v2/devices?hostname=cmp1").await;
        let newest_first: Vec<_> = all.body["devices"].as_array().unwrap().iter().rev().collect();
        let listed: Vec<_> = filtered.body["devices"].as_array().unwrap().iter().collect();
        assert_eq!(listed, newest_first, "{name}");
        for absent in [ABSENT, "abc"] {
            let answer = api.get(&format!("/v2/devices/{absent}")).await;
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{name}");
            assert_eq!(answer.fault(), format!("Device not found with uuid={absent}"));
        }
    }
}

#[tokio::test]
async fn a_row_with_an_unknown_kind_is_an_error() {
    for (name, store, _guard) in stores().await {
        report(&store, vec![vgpu("0000:84:00.0", 4)]).await.unwrap();
        let rename = "UPDATE devices SET kind = 'TPU'";
        store.write(move |tx| tx.execute(rename, &[])).await.unwrap();
        let answer = Api::admin(&store).get("/v2/devices").await;
        assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR, "{name}");
        let error = store.read(ledger::census).await.expect_err("the row is not readable");
        assert_eq!(
            error.to_string(),
            "unexpected row: column kind: unknown DeviceKind \"TPU\"",
            "{name}"
        );
    }
}

#[tokio::test]
async fn deployables_carry_their_provider_and_attributes() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![fake(16), vgpu("0000:84:00.0", 4)]).await.unwrap();
        let api = Api::admin(&store);
        let all = api.get("/v2/deployables").await;
        let first = &all.body["deployables"][0];
        assert_eq!(first["name"], "cmp1_FakeDevice", "{name}");
        assert_eq!(first["num_accelerators"], 16);
        assert_eq!(first["rp_uuid"], specs[0].id.to_string());
        assert_eq!(first["driver_name"], "fake");
        assert_eq!(first["attributes_list"], r#"[{"traits1": "CUSTOM_TEST"}, {"rc": "FPGA"}]"#);
        assert_eq!(first["links"][1]["rel"], "bookmark");
        let shown = api.get(&format!("/v2/deployables/{}", first["uuid"].as_str().unwrap())).await;
        assert_eq!(shown.body, *first, "{name}");
        let named = "/v2/deployables?filters.field=name&filters.value=";
        for (value, count) in [("cmp1_FakeDevice", 1), ("x", 0)] {
            let some = api.get(&format!("{named}{value}")).await;
            assert_eq!(some.body["deployables"].as_array().unwrap().len(), count, "{name}");
        }
        let rename = "UPDATE deployables SET name = 'twin'";
        store.write(move |tx| tx.execute(rename, &[])).await.unwrap();
        let twins = api.get(&format!("{named}twin")).await;
        let newest_first: Vec<_> =
            twins.body["deployables"].as_array().unwrap().iter().map(|one| &one["uuid"]).collect();
        assert_eq!(newest_first, [&all.body["deployables"][1]["uuid"], &first["uuid"]], "{name}");
        let absent = api.get(&format!("/v2/deployables/{ABSENT}")).await;
        assert_eq!(absent.status, StatusCode::NOT_FOUND);
        let wrong = api.get("/v2/deployables/abc").await;
        assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
        assert_eq!(
            wrong.fault(),
            "Invalid input for field/attribute uuid. Value: 'abc'. unable to convert to uuid. \
             Error: Expected a uuid but received abc."
        );
    }
}

#[tokio::test]
async fn attributes_are_filtered_by_deployable_and_key() {
    for (name, store, _guard) in stores().await {
        report(&store, vec![fake(1), vgpu("0000:84:00.0", 4)]).await.unwrap();
        let api = Api::admin(&store);
        let all = api.get("/v2/attributes").await;
        assert_eq!(all.body["attributes"].as_array().unwrap().len(), 4, "{name}");
        let unfiltered = api.get("/v2/attributes?key=").await;
        assert_eq!(unfiltered.body, all.body, "{name}: an empty key is no filter");
        let id = all.body["attributes"][0]["deployable_id"].as_i64().unwrap();
        let some = api.get(&format!("/v2/attributes?deployable_id={id}&key=rc")).await;
        assert_eq!(some.body["attributes"].as_array().unwrap().len(), 1, "{name}");
        assert_eq!(some.body["attributes"][0]["value"], "FPGA");
        let uuid = some.body["attributes"][0]["uuid"].as_str().unwrap();
        let shown = api.get(&format!("/v2/attributes/{uuid}")).await;
        assert_eq!(shown.body, some.body["attributes"][0]);
        let absent = api.get(&format!("/v2/attributes/{ABSENT}")).await;
        assert_eq!(absent.status, StatusCode::NOT_FOUND, "{name}");
        assert_eq!(absent.fault(), format!("Attribute not found with uuid={ABSENT}"));
        for (given, stored) in
            [(json!(""), ""), (json!(5), "5"), (json!(1.5), "1.5"), (json!(true), "True")]
        {
            let body = json!({"deployable_id": id, "key": given, "value": given});
            let made = api.post("/v2/attributes", body).await;
            assert_eq!(made.status, StatusCode::CREATED, "{name} {given}: {}", made.body);
            let (key, value) = (&made.body["key"], &made.body["value"]);
            assert_eq!((key, value), (&json!(stored), &json!(stored)), "{name} {given}");
        }
        let body = json!({"deployable_id": id, "key": "k", "value": null});
        let refused = api.post("/v2/attributes", body).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{name}");
    }
}

#[tokio::test]
async fn invalid_queries_are_refused() {
    for (name, store, _guard) in stores().await {
        let api = Api::admin(&store);
        for path in [
            "/v2/devices?bogus=1",
            "/v2/devices?limit=1",
            "/v2/devices?hostname=a%07b",
            "/v2/devices?type=a%0Ab",
            "/v2/deployables?limit=1",
            "/v2/deployables?filters.field=driver_name&filters.value=x",
            "/v2/deployables?filters.field=name",
            "/v2/deployables?filters.field=name&filters.value=%07",
            "/v2/attributes?deployable_id=x",
            "/v2/attributes?deployable_id=99999999999999999999",
            "/v2/attributes?key=%07",
            "/v2/attributes/1",
            "/v2/device_profiles?limit=1",
            "/v2/device_profiles?name=%07",
            "/v2/accelerator_requests?foo=1",
            "/v2/accelerator_requests?instance=abc",
            "/v2/accelerator_requests?instance=",
            "/v2/accelerator_requests?bind_state=bound",
            "/v2/accelerator_requests/abc",
        ] {
            let answer = api.get(path).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{name} {path}");
            assert!(!answer.fault().is_empty());
        }
        assert_eq!(api.get("/v2/devices?bogus=1").await.fault(), "Unknown argument: \"bogus\"");
        let none = api.get("/v2/devices/a%07b").await;
        assert_eq!(none.status, StatusCode::NOT_FOUND, "{name}");
    }
}

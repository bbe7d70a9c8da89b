//! Device profiles: the grammar, names and UUIDs, and refusals while in use.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::common::{Api, stores};

const PATH: &str = "/v2/device_profiles";

fn profile(name: &str) -> Value {
    json!([{"name": name, "groups": [{"resources:FPGA": "1", "trait:CUSTOM_A": "required"}]}])
}

#[tokio::test]
async fn a_profile_is_created_found_and_deleted() {
    for (name, store, _guard) in stores().await {
        let api = Api::admin(&store);
        let made = api
            .post(
                PATH,
                json!([{"name": "dp1", "description": "d", "groups": [
                    {"resources: FPGA ": 1, "trait:CUSTOM_A": "required"},
                    {"resources:CUSTOM_NIC": "2", "trait:CUSTOM_B": "forbidden", "accel:any": "x"},
                    {"resources:FPGA": "1", "accel:a": "", "accel:b": 5, "accel:c": 1.5, "accel:d": true},
                ]}]),
            )
            .await;
        assert_eq!(made.status, StatusCode::CREATED, "{name}");
        assert_eq!(
            made.body["groups"],
            json!([
                {"resources:FPGA": "1", "trait:CUSTOM_A": "required"},
                {"resources:CUSTOM_NIC": "2", "trait:CUSTOM_B": "forbidden", "accel:any": "x"},
                {"resources:FPGA": "1", "accel:a": "", "accel:b": "5", "accel:c": "1.5", "accel:d": "True"},
            ])
        );
        assert_eq!(made.body["description"], "d");
        assert_eq!(made.body["updated_at"], Value::Null);
        let uuid = made.body["uuid"].as_str().unwrap().to_owned();
        assert_eq!(
            made.body["links"][0]["href"],
            format!("http://cloud:8780/accelerator/v2/device_profiles/{uuid}")
        );
        let shown = api.get(&format!("{PATH}/{uuid}")).await;
        let shown = &shown.body["device_profile"];
        assert_eq!(shown["updated_at"], "None", "{name}");
        assert!(shown["created_at"].as_str().unwrap().contains(' '));
        assert_eq!(shown["groups"], made.body["groups"]);

        let by_name = api.get(&format!("{PATH}/dp1")).await;
        assert_eq!(by_name.status, StatusCode::NOT_ACCEPTABLE, "{name}");
        assert_eq!(
            by_name.fault(),
            "Request not acceptable. The minimal required API version should be 2.2"
        );
        let later = api.at("accelerator 2.2");
        assert_eq!(later.get(&format!("{PATH}/dp1")).await.status, StatusCode::OK, "{name}");
        let absent = later.get(&format!("{PATH}/none")).await;
        assert_eq!(absent.fault(), "Device Profile not found with name=none");
        assert_eq!(later.get(&format!("{PATH}/a%07b")).await.status, StatusCode::NOT_FOUND);

        for (query, count) in [("", 1), ("?name=dp1,none", 1), ("?name=none", 0)] {
            let list = api.get(&format!("{PATH}{query}")).await;
            let list = list.body["device_profiles"].as_array().unwrap().len();
            assert_eq!(list, count, "{name} {query}");
        }
        let gone = api.delete(&format!("{PATH}/{uuid}")).await;
        assert_eq!(gone.status, StatusCode::NO_CONTENT, "{name}");
        let gone = api.delete(&format!("{PATH}/{uuid}")).await;
        assert_eq!(gone.status, StatusCode::NOT_FOUND, "{name}");
        assert_eq!(gone.fault(), format!("Device Profile not found with uuid={uuid}"));
    }
}

#[tokio::test]
async fn names_and_uuids_are_unique() {
    for (name, store, _guard) in stores().await {
        let api = Api::admin(&store);
        let uuid = "9f199406-cfac-4402-b5c3-b8b38d8929aa";
        let mut own = profile("dpu");
        own[0]["uuid"] = uuid.into();
        assert_eq!(api.post(PATH, own.clone()).await.body["uuid"], uuid, "{name}");
        let taken = api.post(PATH, own.clone()).await;
        assert_eq!(taken.status, StatusCode::CONFLICT, "{name}");
        assert_eq!(taken.fault(), "A device_profile with name dpu already exists.");
        own[0]["name"] = "other".into();
        let taken = api.post(PATH, own).await;
        assert_eq!(taken.status, StatusCode::CONFLICT, "{name}");
        assert_eq!(taken.fault(), format!("DeviceProfile with uuid {uuid} already exists."));
    }
}

#[tokio::test]
async fn deleting_several_is_all_or_nothing() {
    for (name, store, _guard) in stores().await {
        let api = Api::admin(&store);
        for one in ["a", "b"] {
            api.post(PATH, profile(one)).await;
        }
        let absent = api.delete(&format!("{PATH}?value=a,none,b")).await;
        assert_eq!(absent.status, StatusCode::NOT_FOUND, "{name}");
        let list = api.get(PATH).await;
        assert_eq!(list.body["device_profiles"].as_array().unwrap().len(), 2, "{name}");
        let gone = api.delete(&format!("{PATH}?value=a,b,a")).await;
        assert_eq!(gone.status, StatusCode::NO_CONTENT, "{name}");
        for path in [PATH.to_owned(), format!("{PATH}?value=")] {
            let missing = api.delete(&path).await;
            assert_eq!(missing.status, StatusCode::BAD_REQUEST, "{name}");
            assert_eq!(missing.fault(), "Missing argument: \"value\"");
        }
    }
}

#[tokio::test]
async fn a_profile_in_use_is_not_deleted() {
    for (name, store, _guard) in stores().await {
        let api = Api::admin(&store);
        api.post(PATH, profile("dp1")).await;
        let arqs =
            api.post("/v2/accelerator_requests", json!({"device_profile_name": "dp1"})).await;
        let refused = api.delete(&format!("{PATH}/dp1")).await;
        assert_eq!(refused.status, StatusCode::CONFLICT, "{name}");
        assert!(refused.fault().contains("in use"), "{name}");
        let arq = arqs.body["arqs"][0]["uuid"].as_str().unwrap();
        api.delete(&format!("/v2/accelerator_requests/{arq}")).await;
        let gone = api.delete(&format!("{PATH}/dp1")).await;
        assert_eq!(gone.status, StatusCode::NO_CONTENT, "{name}");
    }
}

#[tokio::test]
async fn malformed_profiles_are_refused_with_the_reason() {
    let group = |group: Value| json!([{"name": "x", "groups": [group]}]);
    let with = |field: &str, value: Value| {
        let mut body = profile("x");
        body[0][field] = value;
        body
    };
    let only_one = "Only one device profile allowed per POST request for now.";
    let keys = "Device profile group keys must be of the form ^(resources:|trait:|accel:)";
    let form = "Device profile name must be of the form ^[a-zA-Z0-9-_]+$";
    let values = |v: &str| {
        format!(
            "Unsupported trait value {v}, the value must be one among ['required', 'forbidden']"
        )
    };
    let cases: Vec<(Value, String)> = vec![
        (json!([]), only_one.into()),
        (json!({"name": "x", "groups": []}), only_one.into()),
        (json!("x"), only_one.into()),
        (json!([1]), "must be an object".into()),
        (json!([{"groups": [{"resources:FPGA": "1"}]}]), "DeviceProfile name needed.".into()),
        (profile(""), "DeviceProfile name needed.".into()),
        (with("name", json!(5)), "must be a string".into()),
        (profile("a b"), form.into()),
        (profile("a.b"), form.into()),
        (profile("abc\n"), form.into()),
        (profile("a\u{7}b"), form.into()),
        (profile(&"n".repeat(256)), "longer than 255".into()),
        (json!([{"name": "x"}]), "DeviceProfile needs groups field.".into()),
        (json!([{"name": "x", "groups": []}]), "DeviceProfile needs groups field.".into()),
        (json!([{"name": "x", "groups": {"a": "b"}}]), "must be a list".into()),
        (json!([{"name": "x", "groups": ["a"]}]), "must be an object".into()),
        (group(json!({})), "asks for no resources".into()),
        (group(json!({"trait:CUSTOM_A": "required"})), "asks for no resources".into()),
        (group(json!({"foo:BAR": "1"})), keys.into()),
        (group(json!({"resources1:FPGA": "1"})), keys.into()),
        (group(json!({"resources:VCPU": "1"})), "Unsupported resource class VCPU".into()),
        (group(json!({"resources:CUSTOM_a": "1"})), "Unsupported resource class".into()),
        (group(json!({"resources:CUSTOM_": "1"})), "Unsupported resource class".into()),
        (group(json!({"resources:FPGA": "a"})), "Resources number a is invalid".into()),
        (group(json!({"resources:FPGA": "1.5"})), "Resources number 1.5 is invalid".into()),
        (group(json!({"resources:FPGA": null})), "Resources number null is invalid".into()),
        (group(json!({"resources:FPGA": "0"})), "Resources number 0 is invalid".into()),
        (group(json!({"resources:FPGA": "-1"})), "Resources number -1 is invalid".into()),
        (group(json!({"resources:FPGA": "+1"})), "Resources number +1 is invalid".into()),
        (group(json!({"resources:FPGA": [1]})), "Resources number [1] is invalid".into()),
        (group(json!({"resources:FPGA": "9".repeat(40)})), "is invalid".into()),
        (group(json!({"resources:FPGA": "1025"})), "at most 1024".into()),
        (group(json!({"resources:FPGA": "1", "resources: FPGA": "2"})), "is given twice".into()),
        (
            group(json!({"resources:FPGA": "1", "trait:OWNER_CYBORG": "required"})),
            "Unsupported trait name format OWNER_CYBORG, should start with CUSTOM_".into(),
        ),
        (
            group(json!({"resources:FPGA": "1", "trait:CUSTOM_lower": "required"})),
            "Unsupported trait name format CUSTOM_lower".into(),
        ),
        (group(json!({"resources:FPGA": "1", "trait:CUSTOM_A": "preferred"})), values("preferred")),
        (group(json!({"resources:FPGA": "1", "trait:CUSTOM_A": 1})), values("1")),
        (group(json!({"resources:FPGA": "1", "accel:x": "a\u{7}"})), "accel:x".into()),
        (group(json!({"resources:FPGA": "1", "accel:": "a"})), "accel:".into()),
        (group(json!({"resources:FPGA": "1", "accel:x": {}})), "accel:x".into()),
        (group(json!({"resources:FPGA": "1", "accel:x": null})), "accel:x".into()),
        (group(json!({"resources:FPGA": "1", "accel:x": "x".repeat(256)})), "accel:x".into()),
        (
            group(json!({"resources:PGPU": "1", "accel:topology": 5})),
            "Invalid value '5' of accel:topology".into(),
        ),
        (
            group(json!({"resources:PGPU": "1", "accel:topology": "exclusive"})),
            "Invalid value 'exclusive' of accel:topology. It must be one of 'any', 'same-numa', \
             'same-switch', 'nvlink', 'nvlink-full', 'exclusive-island'."
                .into(),
        ),
        (
            with(
                "groups",
                json!([
                    {"resources:PGPU": "1", "accel:topology": "nvlink"},
                    {"resources:PGPU": "1", "accel:topology": "same-numa"},
                ]),
            ),
            "The groups of a device profile must agree on accel:topology.".into(),
        ),
        (with("uuid", json!("zzz")), "Expected a uuid but received zzz.".into()),
        (with("uuid", json!(5)), "Expected a uuid but received 5.".into()),
        (with("description", json!(5)), "must be a string".into()),
        (with("description", json!("a\u{7}")), "control characters".into()),
        (with("description", json!("d".repeat(70_000))), "longer than".into()),
        (with("zz", json!(1)), "Unknown attribute".into()),
    ];
    for (name, store, _guard) in stores().await {
        let api = Api::admin(&store);
        for (body, text) in &cases {
            let answer = api.post(PATH, body.clone()).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{name} {body}");
            assert!(answer.fault().contains(text), "{name} {body}: {}", answer.fault());
        }
        for (raw, text) in [
            ("{nope", "Request is not in valid JSON format"),
            ("", "Missing argument: \"req_devprof_list\""),
        ] {
            let answer = api.raw(Method::POST, PATH, raw.into()).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{name}");
            assert_eq!(answer.fault(), text);
        }
        let list = api.get(PATH).await;
        assert_eq!(list.body["device_profiles"], json!([]), "{name}: nothing was stored");
    }
}

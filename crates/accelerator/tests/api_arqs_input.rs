//! Accelerator requests: the errors for invalid bodies.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::common::{Api, HOST, stores};

const PATH: &str = "/v2/accelerator_requests";
const ABSENT: &str = "9f199406-cfac-4402-b5c3-b8b38d8929aa";
const SERVER: &str = "284d8648-0c0a-42dd-a771-dfc12fa12f00";

#[tokio::test]
async fn malformed_bodies_are_refused_with_the_reason() {
    let good = |path: &str, value: Value| json!({"path": path, "op": "add", "value": value});
    let place = || {
        vec![
            good("/hostname", json!(HOST)),
            good("/device_rp_uuid", json!(ABSENT)),
            good("/instance_uuid", json!(SERVER)),
        ]
    };
    let with = |at: usize, step: Value| {
        let mut steps = place();
        steps[at] = step;
        json!({ABSENT: steps})
    };
    let reason = |text: &str| format!("Couldn't apply patch. Reason: {text}");
    let ops = reason("Every op must be add or remove");
    let patches = [
        (json!([]), reason("The body must be an object")),
        (json!({}), reason("No accelerator request is named")),
        (json!({ABSENT: []}), reason("An accelerator request without steps")),
        (json!({ABSENT: {}}), reason("The steps of an accelerator request must be a list")),
        (json!({ABSENT: ["x"]}), ops.clone()),
        (with(0, json!({"path": "/hostname", "op": "remove"})), ops.clone()),
        (with(0, json!({"path": "/hostname", "op": "replace"})), ops),
        (with(0, good("/foo", json!(1))), reason("Invalid path in patch /foo")),
        (with(0, json!({"op": "add"})), reason("Every step needs a path")),
        (with(0, good("/instance_uuid", json!(SERVER))), reason("Fields absent in patch hostname")),
        (with(0, good("/hostname", json!(5))), reason("The value of /hostname")),
        (with(0, good("/hostname", json!("a\u{7}"))), reason("The value of /hostname")),
        (with(1, good("/device_rp_uuid", json!("abc"))), reason("The value of /device_rp_uuid")),
        (with(2, json!({"path": "/instance_uuid", "op": "add"})), reason("The value of")),
        (
            with(0, json!({"path": "/hostname", "op": "add", "value": "h", "x": 1})),
            reason("Unknown field x in a step"),
        ),
        (json!({"abc": place()}), reason("abc is not the uuid")),
        (
            json!({(ABSENT.to_uppercase()): place(), ABSENT: place()}),
            reason(&format!("{ABSENT} names an accelerator request again")),
        ),
    ];
    let posts = [
        (json!([]), "must be an object"),
        (json!({}), "DeviceProfile name needed."),
        (json!({"device_profile_name": null}), "DeviceProfile name needed."),
        (json!({"device_profile_name": 5}), "must be a string"),
        (json!({"device_profile_name": "x", "zz": 1}), "Unknown or unsupported attribute: zz"),
        (
            json!({"device_profile_name": "x", "image_uuid": ABSENT}),
            "device_profile_group_id and image_uuid are not supported",
        ),
        (
            json!({"device_profile_name": "x", "device_profile_group_id": 0}),
            "device_profile_group_id and image_uuid are not supported",
        ),
    ];
    for (name, store, _guard) in stores().await {
        let api = Api::admin(&store).with_service();
        for (body, text) in &patches {
            let answer = api.patch(PATH, body.clone()).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{name} {body}");
            assert!(answer.fault().starts_with(text), "{name} {body}: {}", answer.fault());
        }
        for (body, text) in &posts {
            let answer = api.post(PATH, body.clone()).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{name} {body}");
            assert!(answer.fault().contains(text), "{name} {body}: {}", answer.fault());
        }
        for profile in ["", "none", "a\u{7}b", "@?"] {
            let answer = api.post(PATH, json!({"device_profile_name": profile})).await;
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{name} {profile:?}");
        }
        for method in [Method::POST, Method::PATCH] {
            let answer = api.raw(method.clone(), PATH, b"{nope".to_vec()).await;
            assert_eq!(answer.fault(), "Request is not in valid JSON format", "{name}");
            let answer = api.raw(method, PATH, Vec::new()).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{name}");
        }
    }
}

//! A microversion after the newest one: every route and every key stays.

use axum::http::Method;
use kilonova_access::Operation;
use kilonova_compute_app::microversions::MAX;
use kilonova_wire::Microversion;
use serde_json::{Value, json};

use crate::kit::{ADMIN, Cloud, GPU, RunningCloud, hosts};

const NEXT: Microversion = Microversion(MAX.0, MAX.1 + 1);
/// An id that does not exist.
const NOTHING: &str = "5a0c7b0e-0000-4000-8000-000000000000";

/// The keys of an answer, at every depth; of a list, those of its first element.
fn keys(value: &Value) -> Value {
    match value {
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), keys(value))).collect(),
        Value::Array(list) => list.first().map_or(json!([]), |first| json!([keys(first)])),
        _ => Value::Null,
    }
}

/// The path of an operation, with ids that exist or do not exist.
fn path(operation: &Operation, server: &str) -> Option<String> {
    let pattern = operation.path.strip_prefix("/v2.1")?;
    let first = pattern.split('/').nth(1).unwrap_or_default();
    let parts = pattern.split('/').enumerate().map(|(at, part)| match part {
        _ if !part.starts_with('{') => part,
        _ if at > 2 || operation.method != Method::GET => NOTHING,
        _ if first == "servers" => server,
        _ if first == "flavors" => "vgpu",
        "{project}" | "{class}" => "default",
        _ => NOTHING,
    });
    Some(parts.collect::<Vec<_>>().join("/"))
}

/// True if the answer refuses the method at this microversion.
fn is_gone(body: &Value) -> bool {
    body.to_string().contains("is not supported on this method")
}

async fn ask(
    running: &RunningCloud,
    version: Microversion,
    what: &str,
    body: Option<Value>,
) -> (u16, Value) {
    let answer = running.call(ADMIN, &version.to_string(), what, body).await;
    (answer.status.as_u16(), answer.body)
}

#[tokio::test]
async fn the_next_microversion_keeps_every_route_and_every_key() {
    for mut cloud in Cloud::all(hosts(&[("a", &[GPU])])).await {
        cloud.options.newest_microversion = NEXT;
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        let server = running.active_server(&cloud, "one", "vgpu").await;
        let document = running.get(ADMIN, "2.1", "").await.expect(200);
        assert_eq!(document["version"]["version"], NEXT.to_string());
        let mut asked = 0;
        for operation in kilonova_compute::operations() {
            let Some(path) = path(&operation, &server) else { continue };
            let what = format!("{} {path}", operation.method);
            if operation.method == Method::GET {
                let old = ask(&running, MAX, &what, None).await;
                if is_gone(&old.1) {
                    continue;
                }
                let new = ask(&running, NEXT, &what, None).await;
                assert_eq!((old.0, keys(&old.1)), (new.0, keys(&new.1)), "{what}");
                asked += 1;
                continue;
            }
            let actions = operation.rules().into_iter().filter_map(|(action, _)| action);
            let mut bodies: Vec<Value> = actions.map(|action| json!({action: null})).collect();
            bodies.push(json!({}));
            for body in bodies {
                let old = ask(&running, MAX, &what, Some(body.clone())).await;
                if is_gone(&old.1) {
                    continue;
                }
                let new = ask(&running, NEXT, &what, Some(body.clone())).await;
                assert_eq!(old, new, "{what} {body}");
                asked += 1;
            }
        }
        assert!(asked > 150, "only {asked} requests were compared");
        let limits = running.get(ADMIN, &NEXT.to_string(), "/limits").await.expect(200);
        assert_eq!(limits["limits"]["absolute"].as_object().map(serde_json::Map::len), Some(11));
        let body = json!({"server": {
            "name": "two", "flavorRef": "plain", "imageRef": cloud.image, "networks": "none",
            "description": "d", "tags": ["t"], "hostname": "a.b", "host": "a",
        }});
        let made = running.admin(&NEXT.to_string(), "POST /servers", body).await.expect(202);
        let made = made["server"]["id"].as_str().expect("the answer has an id").to_owned();
        running.wait_for_status(&made, "ACTIVE").await;
        let change = json!({"server": {"pinned_availability_zone": null}});
        running.admin(&NEXT.to_string(), &format!("PUT /servers/{made}"), change).await.expect(200);
        cloud.teardown(&running, "compared").await;
    }
}

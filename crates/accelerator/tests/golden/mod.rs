//! Replays requests whose responses were recorded from a real Cyborg 17.0.0, and compares the
//! responses: status, headers, the shape of bodies, and messages. [`deviations`] lists the intended
//! differences with the line of docs/compatibility.md that gives the reason. No other difference is
//! allowed, and every entry must be used.
//!
//! The record is not part of the repository. Without it the test is skipped.

mod compare;
mod deviations;
mod record;
mod translate;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use compare::compare;
use http::Request;
use http_body_util::BodyExt;
use kilonova_accelerator::{MIGRATIONS, State, ledger};
use kilonova_ids::ProviderId;
use kilonova_node_api::{DeviceKind, HandleSlot};
use kilonova_placement::World;
use kilonova_placement::ledger::{ProviderSpec, report_host};
use kilonova_store::{Store, params};
use kilonova_wire::{mount, noauth::NoAuth};
use record::{Answer, Exchange};
use serde_json::{Value, json};
use tower::ServiceExt;
use translate::Translation;

use crate::common;
use crate::common::audit;

/// A host like the recorded one: one fake card of 16 handles.
async fn set_up_host(store: &Store, world: &World) {
    let handles = (1..=16).map(|n| format!("0000:0c:{}.{}", n / 8, n % 8));
    let slots: Vec<HandleSlot> = handles.map(|address| HandleSlot::TestPci { address }).collect();
    let mut card =
        common::device("0000:0c:00.0", DeviceKind::Fpga, "FakeDevice", "FPGA", slots.clone());
    card.vendor_id = "0xABCD".into();
    card.product_id = "0xabcd".into();
    card.model = "miss model info".into();
    card.deployables[0].traits = vec!["CUSTOM_FAKE_DEVICE".into()];
    let other = common::device("0000:01:00.0", DeviceKind::Fpga, "Other", "FPGA", slots);
    let mut before = card.clone();
    before.model = "unknown".into();
    before.deployables[0].driver = "unknown".into();
    let root = ProviderSpec {
        id: ProviderId::new_v4(),
        name: common::HOST.into(),
        inventories: Vec::new(),
        initial_ratios: Vec::new(),
        traits: Vec::new(),
    };
    // The recorded card and its deployable have the id 2, and both were updated after their creation.
    for devices in [vec![other], vec![before], vec![card]] {
        let (world, root) = (world.clone(), root.clone());
        store
            .write(move |tx| {
                let children = ledger::report(tx, &common::host(), &devices)?;
                report_host(tx, &world, &root, &children)?;
                Ok::<_, kilonova_accelerator::Error>(())
            })
            .await
            .expect("the report is applied");
    }
}

/// The profiles that existed before the recording, including profiles that Kilonova would refuse.
async fn insert_profiles(store: &Store, profiles: Vec<Value>) {
    store
        .write(move |tx| {
            for profile in &profiles {
                let text = |key: &str| profile[key].as_str().map(str::to_owned);
                let sql = "INSERT INTO device_profiles (uuid, name, description, groups_json,
                    created_at) VALUES (?1, ?2, ?3, ?4, 0)";
                let groups = profile["groups"].to_string();
                let description = text("description");
                tx.execute(sql, params![text("uuid"), text("name"), description, groups])?;
            }
            Ok::<_, kilonova_store::Error>(())
        })
        .await
        .expect("the profiles are inserted");
}

async fn ask(router: &Router, exchange: &Exchange, translation: &Translation) -> Answer {
    let mut request = Request::builder()
        .method(exchange.method.as_str())
        .uri(translation.ours(&exchange.path))
        .header("host", translate::OURS);
    for (name, value) in &exchange.headers {
        request = request.header(name, value);
    }
    let body = translation.ours(&exchange.body);
    let response = router.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Answer {
        status: parts.status.as_u16(),
        headers: parts
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect(),
        body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
    }
}

#[tokio::test]
async fn answers_equal_those_of_cyborg_except_for_listed_deviations() {
    let Some(exchanges) = record::read() else { return };
    assert_eq!(exchanges.len(), 276, "requests in the record");
    let migrations = [kilonova_placement::MIGRATIONS, MIGRATIONS];
    for (name, store, _guard) in kilonova_testkit::stores(&migrations).await {
        let world = World::new();
        set_up_host(&store, &world).await;
        let before = exchanges[1].answer.body["device_profiles"].as_array().unwrap().clone();
        insert_profiles(&store, before).await;
        let router = mount(
            kilonova_accelerator::routes(State::new(store.clone(), world)),
            kilonova_accelerator::service(),
            "/accelerator",
            Arc::new(NoAuth),
        );
        let mut translation = Translation::default();
        let attribute = json!({"deployable_id": 2, "key": "k", "value": "v"});
        ask(&router, &Exchange::by_admin("POST", "/v2/attributes", &attribute), &translation).await;
        let mut differing = Vec::new();
        let mut used = vec![false; deviations::TABLE.len()];
        for exchange in &exchanges {
            let answer = ask(&router, exchange, &translation).await;
            translation.learn(&exchange.answer.body, &answer.body);
            let found = compare(&exchange.answer, &answer, &translation);
            let at = deviations::TABLE.iter().position(|deviation| deviation.covers(exchange));
            match at {
                Some(at) => {
                    used[at] = true;
                    differing.extend(deviations::TABLE[at].check(exchange, &answer, &found));
                }
                None => differing.extend(found.map(|why| format!("{exchange}: {why}"))),
            }
        }
        let idle = deviations::TABLE.iter().zip(&used).filter(|(_, used)| !**used);
        differing.extend(idle.map(|(deviation, _)| format!("never seen: {deviation:?}")));
        assert_eq!(differing, Vec::<String>::new(), "{name}:\n{}", differing.join("\n"));
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
    }
}

#[test]
fn every_deviation_has_its_reason_in_the_documentation() {
    let documentation = include_str!("../../../../docs/compatibility.md");
    for deviation in deviations::TABLE {
        assert!(documentation.contains(deviation.reason), "{deviation:?}");
    }
}

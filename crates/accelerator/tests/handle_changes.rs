//! The record of handle owners, and the cost of a bind.

use http::StatusCode;
use kilonova_accelerator::ledger::{self, Actor, BindRequest};
use kilonova_accelerator::reconcile;
use kilonova_ids::{ConsumerId, ServerId};
use kilonova_placement::World;
use kilonova_store::testing::Meter;
use serde_json::{Value, json};
use std::time::Duration;

use crate::common::arqs::{PATH, SERVER, bind, request, unbind};
use crate::common::{Api, HOST, fake, host, report, stores};

const CHANGES: &str = "/v2/kilonova/handle_changes";

#[tokio::test]
async fn every_change_of_an_owner_is_recorded() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![fake(3)]).await.unwrap();
        let nova = Api::admin(&store).with_service();
        let arqs = request(&nova, "FPGA", "2").await;
        let bound = nova.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
        let asked = bound.headers["x-openstack-request-id"].to_str().unwrap().to_owned();
        nova.patch(PATH, unbind(&arqs[0])).await;
        nova.delete(&format!("{PATH}?instance={SERVER}")).await;
        let (provider, consumer) = (specs[0].id, ConsumerId::new_v4());
        let server = ServerId::new_v4();
        store
            .write(move |tx| {
                let want = BindRequest { provider, count: 1, group: 0, profile: None };
                let actor = Actor { user_id: Some("u9".into()), request_id: Some("req-9".into()) };
                ledger::bind_as(
                    tx,
                    &World::new(),
                    &actor,
                    server,
                    consumer,
                    "p9",
                    &host(),
                    &[want],
                )?;
                ledger::release(tx, &World::new(), consumer)
            })
            .await
            .unwrap();
        let all = nova.get(CHANGES).await.body["handle_changes"].as_array().unwrap().clone();
        let changes: Vec<(&str, Value)> = all
            .iter()
            .map(|row| (row["change"].as_str().unwrap(), row["user_id"].clone()))
            .collect();
        let u1 = || json!("u1");
        assert_eq!(
            changes,
            [
                ("freed", json!(null)),
                ("taken", json!("u9")),
                ("freed", u1()),
                ("freed", u1()),
                ("taken", u1()),
                ("taken", u1()),
            ],
            "{name}"
        );
        let first = &all[5];
        assert_eq!(first["request_id"], asked, "{name}");
        assert_eq!(first["instance_uuid"], SERVER);
        assert_eq!(first["hostname"], HOST);
        assert_eq!(first["device_rp_uuid"], provider.to_string());
        assert_eq!(first["address"], "0000:0c:00.0");
        assert_eq!(all[1]["project_id"], "p9");
        let of_server = nova.get(&format!("{CHANGES}?instance={server}")).await;
        assert_eq!(of_server.body["handle_changes"].as_array().unwrap().len(), 2, "{name}");
    }
}

#[tokio::test]
async fn the_record_is_paged_and_expires() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![fake(3)]).await.unwrap();
        let nova = Api::admin(&store).with_service();
        let arqs = request(&nova, "FPGA", "3").await;
        nova.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
        let page = nova.get(&format!("{CHANGES}?limit=2&hostname={HOST}")).await;
        assert_eq!(page.body["handle_changes"].as_array().unwrap().len(), 2, "{name}");
        let next = page.body["links"][0]["href"].as_str().unwrap();
        let path = next.strip_prefix("http://cloud:8780/accelerator").unwrap();
        let rest = nova.get(path).await.body;
        assert_eq!(rest["handle_changes"].as_array().unwrap().len(), 1, "{name}");
        assert_eq!(rest["links"], Value::Null, "{name}");
        for wrong in ["limit=0", "limit=x", "marker=-1", "instance=x", "zz=1"] {
            let refused = nova.get(&format!("{CHANGES}?{wrong}")).await;
            assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{name} {wrong}");
        }
        let day = Duration::from_secs(86_400);
        assert_eq!(reconcile::expire(&store, day, Duration::ZERO).await.unwrap().changes, 3);
        assert_eq!(nova.get(CHANGES).await.body["handle_changes"], json!([]), "{name}");
    }
}

/// Number of statements of create, bind, list by instance, show, and delete by instance.
async fn costs(api: &Api, meter: &Meter, provider: kilonova_ids::ProviderId) -> [u64; 5] {
    meter.take();
    let made = api.post(PATH, json!({"device_profile_name": "dp-FPGA-1"})).await;
    let arq = made.body["arqs"][0]["uuid"].as_str().unwrap().to_owned();
    let create = meter.take();
    let bound = api.patch(PATH, bind(std::slice::from_ref(&arq), provider, SERVER)).await;
    assert_eq!(bound.status, StatusCode::ACCEPTED);
    let bind = meter.take();
    api.get(&format!("{PATH}?instance={SERVER}")).await;
    let list = meter.take();
    api.get(&format!("{PATH}/{arq}")).await;
    let show = meter.take();
    api.delete(&format!("{PATH}?instance={SERVER}")).await;
    [create, bind, list, show, meter.take()]
}

#[tokio::test]
async fn the_cost_of_a_bind_does_not_grow_with_the_number_of_requests() {
    for (name, store, _guard) in stores().await {
        let provider = report(&store, vec![fake(2)]).await.unwrap()[0].id;
        let meter = Meter::counting();
        let metered = store.with_meter(meter.clone());
        let api = Api { store: metered, ..Api::admin(&store).with_service() };
        request(&api, "FPGA", "1").await;
        let few = costs(&api, &meter, provider).await;
        for _ in 0..3 {
            request(&api, "FPGA", "100").await;
        }
        let many = costs(&api, &meter, provider).await;
        assert_eq!(few, many, "{name}");
        assert_eq!(few, [5, 9, 1, 1, 12], "{name}: create, bind, list, show, delete");
    }
}

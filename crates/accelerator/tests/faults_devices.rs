//! Faults of Cyborg's device reports, provoked here without effect: disabling drains exactly the named
//! device, and a device that disappears returns as the same device.

use http::StatusCode;
use kilonova_accelerator::Error;
use kilonova_ids::{ConsumerId, ProviderId};
use kilonova_node_api::{Device, DeviceKind, HandleSlot};
use kilonova_placement::World;
use kilonova_placement::ledger::{Allocation, Claim, claim, release};
use kilonova_store::{Store, params};
use serde_json::json;

use crate::common::arqs::{PATH, SERVER, bind, request};
use crate::common::{Api, audit, count, device, fake, report_host, stores, vgpu};

/// Total and reserved of a provider; `None` without an inventory.
async fn inventory(store: &Store, provider: ProviderId) -> Option<(i64, i64)> {
    store
        .read(move |tx| {
            let sql = "SELECT total, reserved FROM inventories WHERE provider_id = ?1";
            match tx.row(sql, params![provider])? {
                Some(row) => Ok::<_, Error>(Some((row.int(0)?, row.int(1)?))),
                None => Ok(None),
            }
        })
        .await
        .unwrap()
}

async fn allocate(store: &Store, world: &World, provider: ProviderId, class: &str) -> ConsumerId {
    let (world, consumer) = (world.clone(), ConsumerId::new_v4());
    let claimed = Claim {
        consumer,
        consumer_type: Some("INSTANCE".into()),
        project_id: "p1".into(),
        user_id: "u1".into(),
        allocations: vec![Allocation {
            provider,
            class: kilonova_ids::ResourceClass::verbatim(class),
            amount: 1,
        }],
    };
    store.write(move |tx| claim(tx, &world, &claimed)).await.expect("the claim succeeds");
    consumer
}

async fn device_at(api: &Api, address: &str) -> serde_json::Value {
    let listed = api.at("accelerator 2.3").get("/v2/devices").await;
    let devices = listed.body["devices"].as_array().unwrap().clone();
    let board = format!("\"address\":\"{address}\"");
    let found = devices
        .into_iter()
        .find(|d| d["std_board_info"].as_str().unwrap().replace(' ', "").contains(&board));
    found.unwrap_or_default()
}

async fn disable(api: &Api, address: &str, verb: &str) {
    let uuid = device_at(api, address).await["uuid"].as_str().unwrap().to_owned();
    let answer =
        api.raw(http::Method::POST, &format!("/v2/devices/{uuid}/{verb}"), Vec::new()).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT, "{verb} {address}");
}

/// One card with two deployables.
fn two_parts() -> Device {
    let mut card = fake(2);
    let mut second = card.deployables[0].clone();
    second.name = "FakeDevice2".into();
    second.slots = vec![HandleSlot::TestPci { address: "0000:0c:01.0".into() }];
    card.deployables.push(second);
    card
}

#[tokio::test]
async fn disabling_affects_only_the_named_device() {
    for (name, store, _guard) in stores().await {
        let (world, api) = (World::new(), Api::admin(&store));
        let specs = report_host(&store, &world, vec![two_parts(), vgpu("0000:84:00.0", 4)]).await;
        let [a1, a2, b] = [specs[0].id, specs[1].id, specs[2].id];
        disable(&api, "0000:84:00.0", "disable").await;
        assert_eq!(inventory(&store, b).await, Some((4, 4)), "{name}");
        assert_eq!(inventory(&store, a1).await, Some((2, 0)), "{name}");
        assert_eq!(inventory(&store, a2).await, Some((1, 0)), "{name}");
        disable(&api, "0000:84:00.0", "enable").await;
        disable(&api, "0000:0c:00.0", "disable").await;
        assert_eq!(inventory(&store, b).await, Some((4, 0)), "{name}");
        assert_eq!(inventory(&store, a1).await, Some((2, 2)), "{name}");
        assert_eq!(
            inventory(&store, a2).await,
            Some((1, 1)),
            "{name}: all deployables of the device"
        );
        assert_eq!(device_at(&api, "0000:0c:00.0").await["status"], "maintaining", "{name}");
        assert_eq!(device_at(&api, "0000:84:00.0").await["status"], "enabled", "{name}");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn a_drain_survives_reports_and_absence() {
    for (name, store, _guard) in stores().await {
        let (world, api) = (World::new(), Api::admin(&store));
        let specs = report_host(&store, &world, vec![vgpu("0000:84:00.0", 16)]).await;
        let gpu = specs[0].id;
        disable(&api, "0000:84:00.0", "disable").await;
        for count in [15, 16] {
            report_host(&store, &world, vec![vgpu("0000:84:00.0", count)]).await;
            let count = i64::from(count);
            assert_eq!(inventory(&store, gpu).await, Some((count, count)), "{name}");
        }
        // The driver is updated: for a while the host does not have the card.
        report_host(&store, &world, Vec::new()).await;
        assert_eq!(device_at(&api, "0000:84:00.0").await["status"], "maintaining", "{name}");
        let mut back = vgpu("0000:84:00.0", 16);
        let mut cut = back.deployables[0].clone();
        cut.name = "another_cut".into();
        back.deployables.push(cut);
        let specs = report_host(&store, &world, vec![back.clone()]).await;
        assert_eq!(inventory(&store, gpu).await, Some((16, 16)), "{name}");
        assert_eq!(
            inventory(&store, specs[1].id).await,
            Some((16, 16)),
            "{name}: a new deployable is drained too"
        );
        disable(&api, "0000:84:00.0", "enable").await;
        assert_eq!(inventory(&store, gpu).await, Some((16, 0)), "{name}");
        assert_eq!(inventory(&store, specs[1].id).await, Some((16, 0)), "{name}");
        report_host(&store, &world, vec![back]).await;
        assert_eq!(inventory(&store, gpu).await, Some((16, 0)), "{name}");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn a_device_enabled_while_absent_is_deleted_and_returns_enabled() {
    for (name, store, _guard) in stores().await {
        let (world, api) = (World::new(), Api::admin(&store));
        report_host(&store, &world, vec![fake(2)]).await;
        disable(&api, "0000:0c:00.0", "disable").await;
        report_host(&store, &world, Vec::new()).await;
        disable(&api, "0000:0c:00.0", "enable").await;
        report_host(&store, &world, Vec::new()).await;
        assert_eq!(count(&store, "SELECT COUNT(*) FROM devices").await, 0, "{name}");
        let specs = report_host(&store, &world, vec![fake(2)]).await;
        assert_eq!(inventory(&store, specs[0].id).await, Some((2, 0)), "{name}");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn an_absent_device_with_an_allocation_blocks_nothing() {
    for (name, store, _guard) in stores().await {
        let (world, api) = (World::new(), Api::admin(&store));
        let specs = report_host(&store, &world, vec![fake(2)]).await;
        let consumer = allocate(&store, &world, specs[0].id, "FPGA").await;
        let slots = vec![HandleSlot::Pci { address: "0000:05:00.0".into() }];
        let new = device("0000:05:00.0", DeviceKind::Gpu, "pgpu", "PGPU", slots);
        let now = report_host(&store, &world, vec![new.clone()]).await;
        assert_eq!(
            inventory(&store, now[0].id).await,
            Some((1, 0)),
            "{name}: the new device is registered"
        );
        assert_eq!(
            inventory(&store, specs[0].id).await,
            Some((2, 2)),
            "{name}: kept, but not offered"
        );
        assert_ne!(device_at(&api, "0000:05:00.0").await, json!(null), "{name}");
        let world_ = world.clone();
        store.write(move |tx| release(tx, &world_, consumer)).await.unwrap();
        report_host(&store, &world, vec![new]).await;
        assert_eq!(
            inventory(&store, specs[0].id).await,
            None,
            "{name}: the released device is deleted"
        );
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn an_absent_bound_device_returns_with_its_identity() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let nova = Api::admin(&store).with_service();
        let specs = report_host(&store, &world, vec![fake(4)]).await;
        let arqs = request(&nova, "FPGA", "1").await;
        nova.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
        let before = nova.get(&format!("{PATH}/{}", arqs[0])).await.body;
        let device = device_at(&nova, "0000:0c:00.0").await["uuid"].clone();
        report_host(&store, &world, Vec::new()).await;
        let away = nova.get(&format!("{PATH}?instance={SERVER}")).await;
        assert_eq!(away.body["arqs"][0], before, "{name}: it can still be listed");
        report_host(&store, &world, vec![fake(4)]).await;
        assert_eq!(device_at(&nova, "0000:0c:00.0").await["uuid"], device, "{name}");
        assert_eq!(inventory(&store, specs[0].id).await, Some((4, 0)), "{name}");
        assert_eq!(nova.get(&format!("{PATH}/{}", arqs[0])).await.body, before, "{name}");
        let free = "SELECT COUNT(*) FROM attach_handles WHERE state = 'free' AND present = 1";
        assert_eq!(count(&store, free).await, 3, "{name}");
        nova.delete(&format!("{PATH}?instance={SERVER}")).await;
        assert_eq!(count(&store, free).await, 4, "{name}");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn attributes_added_by_an_administrator_survive_reports() {
    for (name, store, _guard) in stores().await {
        let (world, api) = (World::new(), Api::admin(&store));
        report_host(&store, &world, vec![fake(2)]).await;
        let listed = api.get("/v2/attributes?key=rc").await;
        let reported = listed.body["attributes"][0].clone();
        let body = json!({"deployable_id": reported["deployable_id"], "key": "rack", "value": "7"});
        let made = api.post("/v2/attributes", json!({"attribute": body})).await;
        assert_eq!(made.status, StatusCode::CREATED, "{name}");
        report_host(&store, &world, vec![fake(3)]).await;
        let path = format!("/v2/attributes/{}", made.body["uuid"].as_str().unwrap());
        assert_eq!(api.get(&path).await.body, made.body, "{name}");
        let rc = format!("/v2/attributes/{}", reported["uuid"].as_str().unwrap());
        let refused = api.delete(&rc).await;
        assert_eq!(refused.status, StatusCode::CONFLICT, "{name}");
        assert!(refused.fault().contains("was reported by the host"), "{}", refused.fault());
        assert_eq!(api.delete(&path).await.status, StatusCode::NO_CONTENT, "{name}");
        assert_eq!(api.get(&path).await.status, StatusCode::NOT_FOUND, "{name}");
        report_host(&store, &world, Vec::new()).await;
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
    }
}

//! The health of devices: a failed device keeps its providers and guests, and gets no new guests.

use http::StatusCode;
use jiff::Timestamp;
use kilonova_accelerator::{Error, ledger};
use kilonova_ids::{ConsumerId, ProviderId, ServerId};
use kilonova_node_api::{Device, DeviceKind, HandleSlot, Health};
use kilonova_placement::{World, ledger as placement};
use kilonova_store::{Store, params};
use serde_json::{Value, json};

use crate::common::{Api, audit, device, everything, host, report_host, stores, vgpu};

const GPU: &str = "0000:84:00.0";
const HEALTH: &str = "/v2/kilonova/device_health";

fn with(health: Health) -> Vec<Device> {
    vec![Device { health, ..vgpu(GPU, 4) }, vgpu("0000:85:00.0", 4)]
}

fn xid(second: i64) -> Health {
    let since = Timestamp::from_second(second).ok();
    Health::Failed { reason: "Xid 79: the GPU fell off the bus".into(), since }
}

fn link_down() -> Health {
    Health::Failed { reason: "its PCIe link is down".into(), since: None }
}

async fn reserved(store: &Store, provider: ProviderId) -> i64 {
    let sql = "SELECT reserved FROM inventories WHERE provider_id = ?1";
    store
        .read(move |tx| Ok::<_, Error>(tx.row(sql, params![provider])?.unwrap().int(0)?))
        .await
        .unwrap()
}

async fn bind(store: &Store, provider: ProviderId) -> Result<(ServerId, ConsumerId), Error> {
    let (server, consumer) = (ServerId::new_v4(), ConsumerId::new_v4());
    let want = ledger::BindRequest { provider, count: 1, group: 0, profile: None };
    store
        .write(move |tx| {
            let want = std::slice::from_ref(&want);
            ledger::bind(tx, &World::new(), server, consumer, "p1", &host(), want)
        })
        .await?;
    Ok((server, consumer))
}

async fn operator_reserves(store: &Store, provider: ProviderId, amount: i64) {
    let sql = "UPDATE inventories SET operator_reserved = ?2, reserved = ?2 WHERE provider_id = ?1";
    store
        .write(move |tx| Ok::<_, Error>(tx.execute(sql, params![provider, amount])?))
        .await
        .unwrap();
}

async fn uuid_of(api: &Api, address: &str) -> String {
    let all = api.get("/v2/devices").await;
    let mut all = all.body["devices"].as_array().unwrap().iter();
    let of = |one: &&Value| one["std_board_info"].as_str().unwrap().contains(address);
    all.find(of).unwrap()["uuid"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_failed_device_is_reserved_until_it_is_healthy_again() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let specs = report_host(&store, &world, with(Health::Healthy)).await;
        let [bad, good] = [specs[0].id, specs[1].id];
        let (server, _) = bind(&store, bad).await.unwrap();
        operator_reserves(&store, bad, 1).await;
        report_host(&store, &world, with(link_down())).await;
        assert_eq!([reserved(&store, bad).await, reserved(&store, good).await], [4, 0], "{name}");
        let refused = bind(&store, bad).await;
        assert!(matches!(refused, Err(Error::NoHandle(id)) if id == bad), "{name} {refused:?}");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");

        let before = everything(&store).await;
        report_host(&store, &world, with(link_down())).await;
        assert_eq!(everything(&store).await, before, "{name}: the same report writes nothing");

        let api = Api::admin(&store);
        let listed = api.get(HEALTH).await.body["devices"].clone();
        assert_eq!(listed.as_array().unwrap().len(), 1, "{name}: {listed}");
        assert_eq!(listed[0]["health"], "failed");
        assert_eq!(listed[0]["reason"], "its PCIe link is down");
        assert_eq!(listed[0]["servers"], json!([server.to_string()]));
        assert!(listed[0]["since"].as_str().unwrap().ends_with("+00:00"));

        report_host(&store, &world, with(Health::Healthy)).await;
        assert_eq!(reserved(&store, bad).await, 1, "{name}: the operator's number applies again");
        assert_eq!(api.get(HEALTH).await.body, json!({"devices": []}), "{name}");
        bind(&store, bad).await.expect("the device is available again");
    }
}

#[tokio::test]
async fn draining_and_health_do_not_undo_each_other() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let specs = report_host(&store, &world, with(Health::Healthy)).await;
        let bad = specs[0].id;
        let api = Api::admin(&store);
        let path = format!("/v2/devices/{}", uuid_of(&api, GPU).await);
        api.post(&format!("{path}/disable"), json!({})).await;
        report_host(&store, &world, with(link_down())).await;
        report_host(&store, &world, with(Health::Healthy)).await;
        assert_eq!(reserved(&store, bad).await, 4, "{name}: the device is still drained");
        report_host(&store, &world, with(link_down())).await;
        api.post(&format!("{path}/enable"), json!({})).await;
        assert_eq!(reserved(&store, bad).await, 4, "{name}: the link is still down");
        report_host(&store, &world, with(Health::Healthy)).await;
        assert_eq!(reserved(&store, bad).await, 0, "{name}");
    }
}

#[tokio::test]
async fn a_health_event_counts_until_an_administrator_enables_the_device() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let specs = report_host(&store, &world, with(xid(1))).await;
        let bad = specs[0].id;
        assert_eq!(reserved(&store, bad).await, 4, "{name}");
        let api = Api::admin(&store);
        let uuid = uuid_of(&api, GPU).await;
        let shown = api.get(&format!("{HEALTH}/{uuid}")).await;
        assert_eq!(shown.body["since"], "1970-01-01T00:00:01+00:00", "{name}");
        let enable = format!("/v2/devices/{uuid}/enable");
        assert_eq!(api.post(&enable, json!({})).await.status, StatusCode::NO_CONTENT);
        assert_eq!(reserved(&store, bad).await, 0, "{name}");
        report_host(&store, &world, with(xid(1))).await;
        assert_eq!(reserved(&store, bad).await, 0, "{name}: the event is acknowledged");
        let shown = api.get(&format!("{HEALTH}/{uuid}")).await;
        assert_eq!(
            (&shown.body["health"], &shown.body["reason"]),
            (&json!("healthy"), &Value::Null)
        );
        report_host(&store, &world, with(xid(2))).await;
        assert_eq!(reserved(&store, bad).await, 4, "{name}: a new event");
    }
}

#[tokio::test]
async fn a_degraded_device_is_scheduled_and_reported() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let degraded = Health::Degraded {
            reason: "Xid 63: a row was remapped".into(),
            since: Timestamp::from_second(5).ok(),
        };
        let specs = report_host(&store, &world, with(degraded)).await;
        assert_eq!(reserved(&store, specs[0].id).await, 0, "{name}");
        bind(&store, specs[0].id).await.expect("the request is bound");
        let api = Api::admin(&store);
        for (query, count) in [
            ("", 1),
            ("?health=degraded", 1),
            ("?health=failed", 0),
            ("?health=healthy", 1),
            ("?hostname=cmp1", 1),
            ("?hostname=cmp2", 0),
        ] {
            let some = api.get(&format!("{HEALTH}{query}")).await;
            assert_eq!(some.body["devices"].as_array().unwrap().len(), count, "{name} {query}");
        }
        let wrong = api.get(&format!("{HEALTH}?health=sick")).await;
        assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
        let absent = api.get(&format!("{HEALTH}/{}", ServerId::new_v4())).await;
        assert_eq!(absent.status, StatusCode::NOT_FOUND);
        let asked = api.with_roles("manager").get(HEALTH).await;
        assert_eq!(asked.status, StatusCode::FORBIDDEN, "{name}");
    }
}

/// The version of a host's provider tree, from which other controllers detect a change.
async fn version(store: &Store) -> i64 {
    let sql = "SELECT version FROM resource_providers WHERE name = 'cmp1'";
    let read = store.read(move |tx| tx.row(sql, &[])?.map(|row| row.int("version")).transpose());
    read.await.expect("the version is read").expect("the host has a provider")
}

#[tokio::test]
async fn others_learn_that_a_degraded_device_is_enabled() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let reason = "Xid 63: a row was remapped".into();
        let degraded = Health::Degraded { reason, since: Timestamp::from_second(5).ok() };
        report_host(&store, &world, with(degraded)).await;
        let api = Api::admin(&store);
        let path = format!("/v2/devices/{}", uuid_of(&api, GPU).await);
        let before = version(&store).await;
        api.post(&format!("{path}/enable"), json!({})).await;
        assert!(version(&store).await > before, "{name}: although the amounts are unchanged");
    }
}

#[tokio::test]
async fn a_device_that_its_node_cannot_read_keeps_its_providers() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let specs = report_host(&store, &world, with(Health::Healthy)).await;
        let before = everything(&store).await;
        let health = Health::Failed { reason: "vendor holds \"\"".into(), since: None };
        let unread = Device {
            deployables: Vec::new(),
            ..device(GPU, DeviceKind::Gpu, "x", "VGPU", Vec::<HandleSlot>::new())
        };
        let reported = vec![Device { health, ..unread }, vgpu("0000:85:00.0", 4)];
        let kept = report_host(&store, &world, reported).await;
        assert_eq!(kept.len(), 2, "{name}");
        assert_eq!(
            kept.iter().find(|spec| spec.id == specs[0].id).unwrap().traits,
            ["CUSTOM_TEST", "CUSTOM_NUMA_NODE_0"]
        );
        assert_eq!(reserved(&store, specs[0].id).await, 4, "{name}");
        report_host(&store, &world, with(Health::Healthy)).await;
        assert_eq!(reserved(&store, specs[0].id).await, 0, "{name}");
        let rows = |all: &str| all.matches("nvidia-35").count();
        assert_eq!(
            rows(&everything(&store).await),
            rows(&before),
            "{name}: the handles are unchanged"
        );
    }
}

#[tokio::test]
async fn an_operator_cannot_release_the_reservation_of_dirty_handles() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let specs = report_host(&store, &world, with(Health::Healthy)).await;
        let gpu = specs[0].id;
        let (_, consumer) = bind(&store, gpu).await.unwrap();
        operator_reserves(&store, gpu, 0).await;
        let world_ = world.clone();
        store
            .write(move |tx| {
                for (provider, units) in ledger::abandon(tx, &ledger::Actor::default(), consumer)? {
                    placement::reserve(tx, &world_, provider, units)?;
                }
                Ok::<_, Error>(())
            })
            .await
            .unwrap();
        assert_eq!(reserved(&store, gpu).await, 1, "{name}");
        report_host(&store, &world, with(Health::Healthy)).await;
        assert_eq!(reserved(&store, gpu).await, 1, "{name}");
        store.write(move |tx| ledger::clean(tx, &host(), consumer)).await.unwrap();
        report_host(&store, &world, with(Health::Healthy)).await;
        assert_eq!(reserved(&store, gpu).await, 0, "{name}");
    }
}

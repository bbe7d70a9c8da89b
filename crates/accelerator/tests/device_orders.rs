//! Programming and cleaning: the orders, the requests that wait for them, and the effects of a
//! node's report.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use http::StatusCode;
use kilonova_accelerator::ledger::{self, BindRequest, orders};
use kilonova_accelerator::nova::{Delivery, Event, Nova, NovaError, PresenceQuery};
use kilonova_accelerator::reconcile::{deliver, process_pending};
use kilonova_accelerator::{Bitstream, Bitstreams, Error, HostNotifier, State};
use kilonova_ids::{ConsumerId, HostName, ImageId, OperationId, ProviderId, ServerId};
use kilonova_node_api::{
    CLEANED_BY_AGENT, CLEANED_BY_OPERATOR, Deployable, Device, DeviceKind, End, HandleSlot,
    ON_RELEASE, Order, OrderResult, Task,
};
use kilonova_placement::World;
use kilonova_store::{Store, Tx, params};
use serde_json::{Value, json};

use crate::common;
use crate::common::arqs::{PATH, SERVER, bind, unbind};
use crate::common::{Api, HOST, audit, count, device, host, report_host, stores};

const CARD: &str = "0000:5e:00.0";
const FUNCTION: &str = "d8424dc4a4a3c413f89e433683f9040b";

/// Counts generations as a host's row does.
#[derive(Default)]
struct Counter(AtomicI64);

impl HostNotifier for Counter {
    fn next(&self, _: &mut Tx<'_>, host: &HostName) -> Result<Option<i64>, kilonova_store::Error> {
        assert_eq!(host, HOST);
        Ok(Some(self.0.fetch_add(1, Ordering::Relaxed) + 1))
    }
}

/// No host has an agent.
struct NoAgents;

impl HostNotifier for NoAgents {
    fn next(&self, _: &mut Tx<'_>, _: &HostName) -> Result<Option<i64>, kilonova_store::Error> {
        Ok(None)
    }
}

/// The existing images.
#[derive(Clone, Default)]
struct Images(Vec<Bitstream>);

impl Bitstreams for Images {
    fn by_id(
        &self,
        _: &mut Tx<'_>,
        image: ImageId,
    ) -> Result<Option<Bitstream>, kilonova_store::Error> {
        Ok(self.0.iter().find(|one| one.image == image).cloned())
    }

    fn by_function(
        &self,
        _: &mut Tx<'_>,
        function: &str,
    ) -> Result<Vec<Bitstream>, kilonova_store::Error> {
        let of = |one: &&Bitstream| one.function.as_deref() == Some(function);
        Ok(self.0.iter().filter(of).cloned().collect())
    }
}

fn bitstream(function: Option<&str>) -> Bitstream {
    Bitstream { image: ImageId::new_v4(), ready: true, function: function.map(str::to_owned) }
}

fn api(store: &Store, shelf: &[Bitstream]) -> Api {
    let orders: (Arc<dyn HostNotifier>, Arc<dyn Bitstreams>) =
        (Arc::new(Counter::default()), Arc::new(Images(shelf.to_vec())));
    Api { orders: Some(orders), ..Api::admin(store).with_service() }
}

/// A card of `driver` with two functions; the kernel reports `function`, if any.
fn fpga(driver: &str, function: Option<&str>) -> Device {
    let slot = |n| HandleSlot::Pci { address: format!("0000:5e:00.{n}") };
    let mut card = device(CARD, DeviceKind::Fpga, CARD, "FPGA", vec![slot(1), slot(2)]);
    let part = &mut card.deployables[0];
    part.driver = driver.into();
    part.facts.extend(function.map(|id| ("function_id".to_owned(), id.to_owned())));
    card
}

/// A disk that `who` cleans.
fn disk(who: &str) -> Device {
    let slots = vec![HandleSlot::Pci { address: "0000:01:00.0".into() }];
    let mut disk = device("0000:01:00.0", DeviceKind::Ssd, "0000:01:00.0", "CUSTOM_NVME", slots);
    disk.deployables[0].facts.insert(ON_RELEASE.into(), who.into());
    disk
}

async fn open_orders(store: &Store) -> Vec<Order> {
    store.read(|tx| orders::since(tx, &host(), 0)).await.unwrap()
}

fn done() -> End {
    End::Done { output: "the tool succeeded".into() }
}

fn failed() -> End {
    End::Failed { message: "no such card".into(), output: "ERROR 7".into() }
}

async fn completed(store: &Store, order: OperationId, end: End) -> bool {
    let completed = OrderResult { order, end };
    store
        .write(move |tx| orders::complete_order(tx, &World::new(), &host(), &completed))
        .await
        .unwrap()
}

async fn deployable(api: &Api) -> Value {
    api.get("/v2/deployables").await.body["deployables"][0].clone()
}

async fn reserved(store: &Store, provider: ProviderId) -> i64 {
    let sql = "SELECT reserved FROM inventories WHERE provider_id = ?1";
    store.read(move |tx| tx.row(sql, params![provider])?.unwrap().int(0)).await.unwrap()
}

async fn traits(store: &Store, provider: ProviderId) -> Vec<String> {
    let sql = "SELECT trait FROM provider_traits WHERE provider_id = ?1 ORDER BY trait";
    let read = move |tx: &mut Tx<'_>| {
        tx.rows(sql, params![provider])?.iter().map(|row| row.string(0)).collect()
    };
    store.read(read).await.unwrap()
}

async fn program(api: &Api, image: ImageId) -> common::Answer {
    let uuid = deployable(api).await["uuid"].as_str().unwrap().to_owned();
    let step = json!({"path": "/program", "op": "replace", "value": [{"image_uuid": image}]});
    api.patch(&format!("/v2/deployables/{uuid}/program"), json!([step])).await
}

/// Reports the result of the host's next order, as its node does.
async fn node(store: Store, end: End) -> Order {
    loop {
        if let Some(order) = open_orders(&store).await.pop() {
            assert!(completed(&store, order.id, end).await);
            return order;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

async fn requests(api: &Api, accel: Value, count: usize) -> Vec<String> {
    let mut group = json!({"resources:FPGA": count.to_string()});
    group.as_object_mut().unwrap().extend(accel.as_object().unwrap().clone());
    let name = format!("dp-{}", uuid::Uuid::new_v4());
    let made = api.post("/v2/device_profiles", json!([{"name": name, "groups": [group]}])).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    let made = api.post(PATH, json!({"device_profile_name": name})).await;
    let arqs = made.body["arqs"].as_array().unwrap();
    arqs.iter().map(|arq| arq["uuid"].as_str().unwrap().to_owned()).collect()
}

async fn state_of(api: &Api, arq: &str) -> String {
    let shown = api.get(&format!("{PATH}/{arq}")).await;
    shown.body["state"].as_str().unwrap().to_owned()
}

async fn assert_consistent(store: &Store, name: &str) {
    assert_eq!(audit(store).await, Vec::<String>::new(), "{name}");
}

#[tokio::test]
async fn an_administrator_programs_a_card() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let specs = report_host(&store, &world, vec![fpga("xilinx", None)]).await;
        let image = bitstream(Some("fast-fourier"));
        let api = api(&store, std::slice::from_ref(&image));
        let (answer, order) = tokio::join!(program(&api, image.image), node(store.clone(), done()));
        assert_eq!(answer.status, StatusCode::OK, "{name}: {}", answer.body);
        assert_eq!(answer.body["bitstream_id"], json!(image.image), "{name}");
        assert_eq!(order.device, CARD);
        let task = Task::Program { driver: "xilinx".into(), image: image.image };
        assert_eq!((order.task, order.server), (task, None));
        let shown = "CUSTOM_FPGA_FUNCTION_ID_XILINX_FASTFOURIER".to_owned();
        assert!(traits(&store, specs[0].id).await.contains(&shown), "{name}");
        report_host(&store, &world, vec![fpga("xilinx", None)]).await;
        assert!(
            traits(&store, specs[0].id).await.contains(&shown),
            "{name}: the trait survives a report"
        );
        assert!(
            !completed(&store, order.id, failed()).await,
            "{name}: a repeated report changes nothing"
        );
        assert_eq!(deployable(&api).await["bitstream_id"], json!(image.image), "{name}");

        let (answer, _) = tokio::join!(program(&api, image.image), node(store.clone(), failed()));
        assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR, "{name}");
        assert_eq!(answer.fault(), "FPGA programming failed: no such card", "{name}");
        assert_eq!(deployable(&api).await["bitstream_id"], Value::Null, "{name}: unknown content");
        assert!(!traits(&store, specs[0].id).await.contains(&shown), "{name}");
        let listed = api.get("/v2/kilonova/device_orders?state=failed").await.body;
        let listed = listed["device_orders"].as_array().unwrap();
        assert_eq!(listed.len(), 1, "{name}");
        assert_eq!(listed[0]["output"], "ERROR 7", "{name}");
        assert_eq!(listed[0]["message"], "no such card", "{name}");
        assert_eq!(listed[0]["user_id"], "u1", "{name}");
        assert_consistent(&store, name).await;
    }
}

#[tokio::test]
async fn a_card_in_use_is_not_programmed() {
    for (name, store, _guard) in stores().await {
        let specs = report_host(&store, &World::new(), vec![fpga("intel", None)]).await;
        let image = bitstream(None);
        let late = Bitstream { ready: false, ..bitstream(None) };
        let api = api(&store, &[image.clone(), late.clone()]);
        for wrong in [late.image, ImageId::new_v4()] {
            assert_eq!(program(&api, wrong).await.status, StatusCode::BAD_REQUEST, "{name}");
        }
        let arqs = requests(&api, json!({}), 1).await;
        let answer = api.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{name}");
        let answer = program(&api, image.image).await;
        assert_eq!(answer.status, StatusCode::CONFLICT, "{name}: {}", answer.body);
        assert!(answer.fault().contains("is in use"), "{name}");
        api.patch(PATH, unbind(&arqs[0])).await;

        // While the card is being programmed, none of its handles is assigned.
        let asking = tokio::spawn({
            let (api, image) = (api.clone(), image.image);
            async move { program(&api, image).await }
        });
        while open_orders(&store).await.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let answer = api.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{name}");
        assert_eq!(program(&api, image.image).await.status, StatusCode::CONFLICT, "{name}");
        assert_eq!(reserved(&store, specs[0].id).await, 2, "{name}: none is offered");
        report_host(&store, &World::new(), vec![fpga("intel", None)]).await;
        assert_eq!(reserved(&store, specs[0].id).await, 2, "{name}: a report changes nothing");
        node(store.clone(), done()).await;
        assert_eq!(asking.await.unwrap().status, StatusCode::OK, "{name}");
        assert_eq!(reserved(&store, specs[0].id).await, 0, "{name}: all are offered again");
        let answer = api.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{name}");
        assert_consistent(&store, name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_concurrent_bind_and_program_order_exclude_each_other() {
    for (name, store, _guard) in stores().await {
        let specs = report_host(&store, &World::new(), vec![fpga("intel", None)]).await;
        let image = bitstream(None);
        let api = api(&store, std::slice::from_ref(&image));
        for round in 0..10 {
            let arqs = requests(&api, json!({}), 1).await;
            let asking = tokio::spawn({
                let (api, image) = (api.clone(), image.image);
                async move { program(&api, image).await.status }
            });
            let bound = api.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await.status;
            let mut ordered = false;
            while !ordered && !asking.is_finished() {
                ordered = !open_orders(&store).await.is_empty();
            }
            assert_consistent(&store, name).await;
            assert_eq!(ordered, bound == StatusCode::NOT_FOUND, "{name} {round}: {bound}");
            if ordered {
                node(store.clone(), done()).await;
                assert_eq!(asking.await.unwrap(), StatusCode::OK, "{name} {round}");
            } else {
                assert_eq!(bound, StatusCode::ACCEPTED, "{name} {round}");
                assert_eq!(asking.await.unwrap(), StatusCode::CONFLICT, "{name} {round}");
            }
            api.delete(&format!("{PATH}?instance={SERVER}")).await;
            api.delete(&format!("{PATH}?arqs={}", arqs[0])).await;
        }
        assert_consistent(&store, name).await;
    }
}

/// A Nova that records its events.
#[derive(Clone, Default)]
struct FakeNova(Arc<std::sync::Mutex<Vec<(String, String)>>>);

impl Nova for FakeNova {
    fn has(&self, _: ServerId) -> PresenceQuery<'_> {
        Box::pin(async { Err(NovaError::Temporary("not asked here".into())) })
    }

    fn deliver<'a>(&'a self, events: &'a [Event]) -> Delivery<'a> {
        let sent = events.iter().map(|event| (event.arq.to_string(), event.status.to_string()));
        self.0.lock().unwrap().extend(sent);
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test]
async fn a_bind_waits_for_its_bitstream() {
    for (name, store, _guard) in stores().await {
        let specs = report_host(&store, &World::new(), vec![fpga("intel", None)]).await;
        let image = bitstream(None);
        let nova = FakeNova::default();
        let api =
            Api { nova: Some(Arc::new(nova.clone())), ..api(&store, std::slice::from_ref(&image)) };
        let accel = json!({"accel:bitstream_id": image.image});
        for (end, state, status) in
            [(failed(), "BindFailed", "failed"), (done(), "Bound", "completed")]
        {
            let arqs = requests(&api, accel.clone(), 2).await;
            let answer = api.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
            assert_eq!(answer.status, StatusCode::ACCEPTED, "{name}: {}", answer.body);
            assert_eq!(state_of(&api, &arqs[0]).await, "BindStarted", "{name}");
            let shown = api.get(&format!("{PATH}/{}", arqs[0])).await.body;
            assert_eq!(shown["attach_handle_type"], "", "{name}: only a bound request shows it");
            assert_eq!(shown["attach_handle_uuid"], Value::Null, "{name}");
            assert_eq!(shown["attach_handle_info"], json!({}), "{name}");
            let resolved = format!("{PATH}?instance={SERVER}&bind_state=resolved");
            let answer = api.get(&resolved).await;
            assert_eq!(answer.status, StatusCode::LOCKED, "{name}");
            assert_eq!(answer.body, json!({"error_message": "null"}), "{name}");
            deliver(&store, &nova).await.unwrap();
            assert_eq!(nova.0.lock().unwrap().len(), 0, "{name}: no event before the order ends");
            assert_consistent(&store, name).await;

            let order = open_orders(&store).await;
            assert_eq!(order.len(), 1, "{name}: one order for the card");
            assert_eq!(order[0].server, Some(SERVER.parse().unwrap()), "{name}");
            assert!(completed(&store, order[0].id, end).await);
            for arq in &arqs {
                assert_eq!(state_of(&api, arq).await, state, "{name}");
            }
            let answer = api.get(&resolved).await;
            assert_eq!(answer.body["arqs"].as_array().unwrap().len(), 2, "{name}");
            deliver(&store, &nova).await.unwrap();
            deliver(&store, &nova).await.unwrap();
            let mut delivered = std::mem::take(&mut *nova.0.lock().unwrap());
            delivered.sort();
            let mut expected: Vec<_> =
                arqs.iter().map(|arq| (arq.clone(), status.to_owned())).collect();
            expected.sort();
            assert_eq!(delivered, expected, "{name}");
            assert_consistent(&store, name).await;
            api.delete(&format!("{PATH}?instance={SERVER}")).await;
        }
        assert_eq!(count(&store, "SELECT COUNT(*) FROM arqs").await, 0, "{name}");
        // The bitstream is loaded now: the next bind does not wait.
        let arqs = requests(&api, accel, 1).await;
        api.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
        assert_eq!(state_of(&api, &arqs[0]).await, "Bound", "{name}");
        assert_consistent(&store, name).await;
    }
}

#[tokio::test]
async fn a_function_is_found_by_the_property_of_its_image() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let specs = report_host(&store, &world, vec![fpga("intel", Some("aa"))]).await;
        let (one, twin) = (bitstream(Some(FUNCTION)), bitstream(Some("twice")));
        let other = Bitstream { image: ImageId::new_v4(), ..twin.clone() };
        let api = api(&store, &[one.clone(), twin, other]);
        for (accel, part) in [
            (json!({"accel:function_id": "unheard-of"}), "0 public images"),
            (json!({"accel:function_id": "twice"}), "2 public images"),
            (json!({"accel:bitstream_id": "no-uuid"}), "is not the uuid of an image"),
            (json!({"accel:bitstream_id": ImageId::new_v4()}), "could not be found"),
            (json!({"accel:bitstream_id": one.image, "accel:function_id": FUNCTION}), "not both"),
        ] {
            let arqs = requests(&api, accel, 1).await;
            let answer = api.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{name}: {}", answer.body);
            assert!(answer.fault().contains(part), "{name}: {}", answer.fault());
            assert_eq!(
                state_of(&api, &arqs[0]).await,
                "Initial",
                "{name}: the request is unchanged"
            );
        }
        let empty = json!({"accel:bitstream_id": "", "accel:function_id": ""});
        let arqs = requests(&api, empty, 1).await;
        api.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
        assert_eq!(state_of(&api, &arqs[0]).await, "Bound", "{name}: nothing is requested");
        api.delete(&format!("{PATH}?instance={SERVER}")).await;
        let accel = json!({"accel:function_id": FUNCTION});
        let arqs = requests(&api, accel.clone(), 1).await;
        api.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
        let order = open_orders(&store).await.remove(0);
        report_host(&store, &world, vec![fpga("intel", Some(FUNCTION))]).await;
        assert!(completed(&store, order.id, done()).await);
        assert_eq!(state_of(&api, &arqs[0]).await, "Bound", "{name}");
        assert_eq!(deployable(&api).await["bitstream_id"], json!(one.image), "{name}");
        api.delete(&format!("{PATH}?instance={SERVER}")).await;

        // Other content appears without an order: the card is programmed again.
        report_host(&store, &world, vec![fpga("intel", Some("bb"))]).await;
        assert_eq!(deployable(&api).await["bitstream_id"], Value::Null, "{name}");
        let arqs = requests(&api, accel, 1).await;
        api.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
        assert_eq!(state_of(&api, &arqs[0]).await, "BindStarted", "{name}");
        // Its owner releases the card in the meantime; it is not assigned before the node's report.
        api.delete(&format!("{PATH}?instance={SERVER}")).await;
        let next = requests(&api, json!({}), 1).await;
        let answer = api.patch(PATH, bind(&next, specs[0].id, SERVER)).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{name}");
        node(store.clone(), done()).await;
        let answer = api.patch(PATH, bind(&next, specs[0].id, SERVER)).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{name}");
        assert_consistent(&store, name).await;
    }
}

async fn claim(store: &Store, provider: ProviderId) -> Result<ConsumerId, Error> {
    let consumer = ConsumerId::new_v4();
    let want = BindRequest { provider, count: 1, group: 0, profile: None };
    let wants = [want];
    let bound = store
        .write(move |tx| {
            ledger::bind(tx, &World::new(), ServerId::new_v4(), consumer, "p1", &host(), &wants)
        })
        .await;
    bound.map(|_| consumer)
}

async fn release(store: &Store, consumer: ConsumerId) {
    store
        .write(move |tx| {
            ledger::release(tx, &World::new(), consumer)?;
            orders::announce(tx, &Counter::default())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_released_handle_is_parked_until_its_node_has_cleaned_it() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let specs = report_host(&store, &world, vec![disk(CLEANED_BY_AGENT)]).await;
        let provider = specs[0].id;
        release(&store, claim(&store, provider).await.unwrap()).await;
        assert_eq!(reserved(&store, provider).await, 1, "{name}");
        assert!(matches!(claim(&store, provider).await, Err(Error::NoHandle(_))), "{name}");
        let order = open_orders(&store).await.remove(0);
        let task = Task::Clean {
            address: "0000:01:00.0".into(),
            resource_class: kilonova_ids::ResourceClass::verbatim("CUSTOM_NVME"),
        };
        assert_eq!(order.task, task, "{name}");
        assert_consistent(&store, name).await;

        // A report, an absence and a return do not clean it.
        report_host(&store, &world, vec![disk(CLEANED_BY_AGENT)]).await;
        report_host(&store, &world, vec![]).await;
        assert_consistent(&store, name).await;
        report_host(&store, &world, vec![disk(CLEANED_BY_AGENT)]).await;
        assert_eq!(reserved(&store, provider).await, 1, "{name}");
        assert!(matches!(claim(&store, provider).await, Err(Error::NoHandle(_))), "{name}");

        assert!(completed(&store, order.id, failed()).await, "{name}");
        let state =
            State::new(store.clone(), world.clone()).with_nodes(Arc::new(Counter::default()));
        assert_eq!(
            process_pending(&state).await.unwrap().again,
            0,
            "{name}: no retry right after an attempt"
        );
        assert_eq!(open_orders(&store).await, Vec::<Order>::new(), "{name}");
        let long_ago = "UPDATE device_orders SET updated_at = updated_at - 601000000";
        store.write(move |tx| tx.execute(long_ago, &[])).await.unwrap();
        assert_eq!(process_pending(&state).await.unwrap().again, 1, "{name}");
        let again = open_orders(&store).await.remove(0);
        assert_ne!(again.id, order.id, "{name}");
        assert_eq!(
            process_pending(&state).await.unwrap().again,
            0,
            "{name}: no retry during an attempt"
        );
        assert!(completed(&store, again.id, done()).await, "{name}");
        assert_eq!(reserved(&store, provider).await, 0, "{name}");
        assert_consistent(&store, name).await;
        claim(&store, provider).await.unwrap();
        assert_consistent(&store, name).await;
    }
}

/// A handle that waits to be cleaned excludes what it excluded in use; a clean one excludes nothing.
#[tokio::test]
async fn the_other_types_of_a_card_are_available_once_it_is_clean() {
    for (name, store, _guard) in stores().await {
        let slots = |number: u8, count| {
            vec![HandleSlot::Mdev { mdev_type: format!("nvidia-{number}"), count }]
        };
        let mut card = device("0000:29:00.0", DeviceKind::Gpu, "large", "VGPU", slots(35, 2));
        card.one_type = true;
        card.deployables[0].facts.insert(ON_RELEASE.into(), CLEANED_BY_AGENT.into());
        let large = card.deployables[0].clone();
        card.deployables.push(Deployable { name: "small".into(), slots: slots(36, 3), ..large });
        let specs = report_host(&store, &World::new(), vec![card]).await;
        let [large, small] = [specs[0].id, specs[1].id];
        let both = async || [reserved(&store, large).await, reserved(&store, small).await];
        let consumer = claim(&store, large).await.unwrap();
        assert_eq!(both().await, [0, 3], "{name}");
        release(&store, consumer).await;
        assert_eq!(both().await, [1, 3], "{name}: it waits to be cleaned");
        node(store.clone(), done()).await;
        assert_eq!(both().await, [0, 0], "{name}: it is clean");
        claim(&store, small).await.unwrap();
        assert_eq!(both().await, [2, 0], "{name}");
        assert_consistent(&store, name).await;
    }
}

#[tokio::test]
async fn the_handle_of_an_external_request_is_parked_too() {
    for (name, store, _guard) in stores().await {
        let specs = report_host(&store, &World::new(), vec![disk(CLEANED_BY_AGENT)]).await;
        let api = api(&store, &[]);
        let arqs = common::arqs::request(&api, "CUSTOM_NVME", "1").await;
        api.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
        api.delete(&format!("{PATH}?instance={SERVER}")).await;
        assert_eq!(reserved(&store, specs[0].id).await, 1, "{name}");
        assert_consistent(&store, name).await;
        node(store.clone(), done()).await;
        assert_eq!(reserved(&store, specs[0].id).await, 0, "{name}");
        let listed = api.get("/v2/kilonova/device_orders").await.body;
        assert_eq!(listed["device_orders"][0]["output"], "the tool succeeded", "{name}");
        assert_eq!(api.with_roles("member").get("/v2/kilonova/device_orders").await.status, 403);
        assert_consistent(&store, name).await;
    }
}

#[tokio::test]
async fn a_dirty_handle_is_cleaned_after_its_host_has_dropped_it() {
    for (name, store, _guard) in stores().await {
        let specs = report_host(&store, &World::new(), vec![disk(CLEANED_BY_AGENT)]).await;
        let provider = specs[0].id;
        let consumer = claim(&store, provider).await.unwrap();
        let abandon = move |tx: &mut Tx<'_>| ledger::abandon(tx, &Default::default(), consumer);
        assert_eq!(store.write(abandon).await.unwrap(), [(provider, 1)].into(), "{name}");
        assert_eq!(count(&store, "SELECT COUNT(*) FROM device_orders").await, 0, "{name}");
        let clean = move |tx: &mut Tx<'_>| {
            let dirty = ledger::clean(tx, &host(), consumer)?;
            orders::announce(tx, &Counter::default())?;
            Ok::<_, Error>(dirty)
        };
        assert_eq!(
            store.write(clean).await.unwrap(),
            [(provider, 1)].into(),
            "{name}: the handle is still reserved"
        );
        assert_consistent(&store, name).await;
        node(store.clone(), done()).await;
        claim(&store, provider).await.unwrap();
        assert_consistent(&store, name).await;
    }
}

#[tokio::test]
async fn an_operator_declares_a_handle_clean() {
    for (name, store, _guard) in stores().await {
        let world = World::new();
        let specs = report_host(&store, &world, vec![disk(CLEANED_BY_OPERATOR)]).await;
        let provider = specs[0].id;
        let state =
            State::new(store.clone(), world.clone()).with_nodes(Arc::new(Counter::default()));
        for round in 0..2 {
            release(&store, claim(&store, provider).await.unwrap()).await;
            assert_eq!(open_orders(&store).await, Vec::<Order>::new(), "{name}: there is no order");
            assert_eq!(
                process_pending(&state).await.unwrap(),
                Default::default(),
                "{name} {round}"
            );
            assert!(matches!(claim(&store, provider).await, Err(Error::NoHandle(_))), "{name}");
            // As `openstack resource provider inventory set --amend --resource CUSTOM_NVME:reserved=0`.
            let text = "UPDATE inventories SET operator_reserved = 0 WHERE provider_id = ?1";
            store.write(move |tx| tx.execute(text, params![provider])).await.unwrap();
            assert_eq!(process_pending(&state).await.unwrap().cleaned, 1, "{name} {round}");
            assert_eq!(reserved(&store, provider).await, 0, "{name} {round}");
            assert_consistent(&store, name).await;
        }
        claim(&store, provider).await.unwrap();
    }
}

#[tokio::test]
async fn a_card_that_is_released_while_it_is_programmed_is_not_offered() {
    for (name, store, _guard) in stores().await {
        let specs = report_host(&store, &World::new(), vec![fpga("xilinx", None)]).await;
        let (image, provider) = (bitstream(None), specs[0].id);
        let api = api(&store, std::slice::from_ref(&image));
        requests(&api, json!({"accel:bitstream_id": image.image}), 1).await;
        let consumer = ConsumerId::new_v4();
        claim_to_program(&store, &image, provider, consumer).await;
        assert_eq!(reserved(&store, provider).await, 1, "{name}: the other function");
        assert_consistent(&store, name).await;
        release(&store, consumer).await;
        assert_eq!(reserved(&store, provider).await, 2, "{name}: both functions");
        claim(&store, provider).await.expect_err("the card is being programmed");
        assert_consistent(&store, name).await;
        node(store.clone(), done()).await;
        assert_eq!(reserved(&store, provider).await, 0, "{name}: none");
        claim(&store, provider).await.expect("it is offered again");
        assert_consistent(&store, name).await;
    }
}

#[tokio::test]
async fn a_card_without_an_agent_that_is_released_while_it_is_programmed_is_not_offered() {
    for (name, store, _guard) in stores().await {
        let specs = report_host(&store, &World::new(), vec![fpga("intel", None)]).await;
        let image = bitstream(None);
        let images = Images(vec![image.clone()]);
        let api = Api { orders: Some((Arc::new(NoAgents), Arc::new(images))), ..api(&store, &[]) };
        let arqs = requests(&api, json!({"accel:bitstream_id": image.image}), 1).await;
        let answer = api.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{name}: {}", answer.body);
        assert_eq!(reserved(&store, specs[0].id).await, 1, "{name}: the other function");
        api.delete(&format!("{PATH}?instance={SERVER}")).await;
        assert_eq!(reserved(&store, specs[0].id).await, 2, "{name}: both functions");
        assert_consistent(&store, name).await;
        // Its agent registers.
        store.write(|tx| orders::announce(tx, &Counter::default())).await.unwrap();
        node(store.clone(), done()).await;
        assert_eq!(reserved(&store, specs[0].id).await, 0, "{name}: none");
        assert_consistent(&store, name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_and_the_end_of_an_order_leave_nothing_reserved() {
    for (name, store, _guard) in stores().await {
        // With one function, the end of the order writes none of the rows that the release writes.
        let mut card = fpga("xilinx", None);
        card.deployables[0].slots.truncate(1);
        let specs = report_host(&store, &World::new(), vec![card]).await;
        let (image, provider) = (bitstream(None), specs[0].id);
        let api = api(&store, std::slice::from_ref(&image));
        requests(&api, json!({"accel:bitstream_id": image.image}), 1).await;
        for round in 0..20 {
            let consumer = ConsumerId::new_v4();
            claim_to_program(&store, &image, provider, consumer).await;
            let order = open_orders(&store).await.pop().expect("the order is open").id;
            let (report, other) = (store.clone(), store.clone());
            let ended = tokio::spawn(async move { completed(&report, order, failed()).await });
            let released = tokio::spawn(async move { release(&other, consumer).await });
            assert!(ended.await.unwrap(), "{name} {round}");
            released.await.unwrap();
            assert_eq!(reserved(&store, provider).await, 0, "{name} {round}");
            assert_consistent(&store, name).await;
        }
    }
}

/// Assigns a function of a card to a consumer, with an order to program the card.
async fn claim_to_program(
    store: &Store,
    image: &Bitstream,
    provider: ProviderId,
    consumer: ConsumerId,
) {
    let profile = "SELECT uuid FROM device_profiles ORDER BY id DESC LIMIT 1";
    let shelf = Images(vec![image.clone()]);
    store
        .write(move |tx| {
            let profile = tx.row(profile, params![])?.map(|row| row.id("uuid")).transpose()?;
            let wants = [BindRequest { provider, count: 1, group: 0, profile }];
            let (world, server) = (World::new(), ServerId::new_v4());
            ledger::bind(tx, &world, server, consumer, "p1", &host(), &wants)?;
            let actor = ledger::Actor::default();
            assert!(orders::prepare(tx, &world, Some(&shelf), &actor, consumer)?);
            orders::announce(tx, &Counter::default())
        })
        .await
        .unwrap();
}

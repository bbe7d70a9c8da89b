//! Instances of an external Nova: the project of their requests, when their devices become
//! available again, and requests whose instance no longer exists.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use http::StatusCode;
use kilonova_accelerator::ledger;
use kilonova_accelerator::nova::{Delivery, Event, Nova, NovaError, Presence, PresenceQuery};
use kilonova_accelerator::reconcile::lost;
use kilonova_accelerator::{Bitstream, Bitstreams, Error, HostNotifier, State};
use kilonova_ids::{ConsumerId, HostName, ImageId, ProviderId, ServerId};
use kilonova_placement::World;
use kilonova_placement::ledger::{Allocation, Claim, ProviderSpec};
use kilonova_store::{Store, Tx, params};
use newtype_uuid::GenericUuid;

use crate::common::arqs::{ABSENT, PATH, SERVER, bind, request, unbind};
use crate::common::{Api, HOST, audit, count, fake, host, report_host, stores, vgpu};

const DIRTY: &str = "SELECT COUNT(*) FROM attach_handles WHERE state = 'dirty'";
const FREE: &str = "SELECT COUNT(*) FROM attach_handles WHERE state = 'free'";
const RESERVED: &str = "SELECT CAST(SUM(reserved) AS BIGINT) FROM inventories";

/// Counts generations as a host's row does.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicI64>);

impl HostNotifier for Counter {
    fn next(&self, _: &mut Tx<'_>, host: &HostName) -> Result<Option<i64>, kilonova_store::Error> {
        assert_eq!(host, HOST);
        Ok(Some(self.0.fetch_add(1, Ordering::Relaxed) + 1))
    }
}

struct NoImages;

impl Bitstreams for NoImages {
    fn by_id(
        &self,
        _: &mut Tx<'_>,
        _: ImageId,
    ) -> Result<Option<Bitstream>, kilonova_store::Error> {
        Ok(None)
    }

    fn by_function(
        &self,
        _: &mut Tx<'_>,
        _: &str,
    ) -> Result<Vec<Bitstream>, kilonova_store::Error> {
        Ok(Vec::new())
    }
}

/// An external Nova with agents on its hosts.
fn nova(store: &Store, nodes: &Counter) -> Api {
    let orders: (Arc<dyn HostNotifier>, Arc<dyn Bitstreams>) =
        (Arc::new(nodes.clone()), Arc::new(NoImages));
    Api { orders: Some(orders), silent: true, ..Api::admin(store).with_service() }
}

/// Allocates units of the provider to the instance in Placement, for a project.
async fn allocate(store: &Store, provider: ProviderId, server: &str, class: &str, project: &str) {
    let consumer: ServerId = server.parse().unwrap();
    let claim = Claim {
        consumer: ConsumerId::from_untyped_uuid(consumer.into_untyped_uuid()),
        consumer_type: Some("INSTANCE".into()),
        project_id: project.into(),
        user_id: "u9".into(),
        allocations: vec![Allocation {
            provider,
            class: kilonova_ids::ResourceClass::verbatim(class),
            amount: 1,
        }],
    };
    let claimed =
        store.write(move |tx| kilonova_placement::ledger::claim(tx, &World::new(), &claim)).await;
    claimed.unwrap();
}

async fn acknowledge(store: &Store, generation: i64) {
    let work = move |tx: &mut Tx<'_>| ledger::acknowledge(tx, &World::new(), &host(), generation);
    store.write(work).await.unwrap();
}

async fn setup(store: &Store, handles: u32) -> Vec<ProviderSpec> {
    report_host(store, &World::new(), vec![fake(handles)]).await
}

#[tokio::test]
async fn a_bound_request_belongs_to_the_project_of_its_instance() {
    for (name, store, _guard) in stores().await {
        let specs = setup(&store, 2).await;
        allocate(&store, specs[0].id, SERVER, "FPGA", "p-owner").await;
        let admin = Api::admin(&store).with_service().of_project("p-admin");
        let arqs = request(&admin, "FPGA", "1").await;
        let bound = admin.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
        assert_eq!(bound.status, StatusCode::ACCEPTED, "{name}: {}", bound.body);
        let path = format!("{PATH}?instance={SERVER}");
        let owner = Api::admin(&store).with_roles("member").of_project("p-owner");
        let seen = owner.get(&path).await.body;
        assert_eq!(seen["arqs"][0]["project_id"], "p-owner", "{name}: {seen}");
        let stranger = owner.of_project("p-other").get(&path).await.body;
        assert_eq!(stranger["arqs"].as_array().map(Vec::len), Some(0), "{name}");
        // Without allocations only the creator's project is possible.
        let arqs = request(&admin, "FPGA", "1").await;
        admin.patch(PATH, bind(&arqs, specs[0].id, ABSENT)).await;
        let seen = admin.get(&format!("{PATH}/{}", arqs[0])).await.body;
        assert_eq!(seen["project_id"], "p-admin", "{name}");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn a_released_handle_is_not_assigned_before_its_host_acknowledges() {
    for (name, store, _guard) in stores().await {
        let specs = setup(&store, 1).await;
        let nodes = Counter::default();
        let api = nova(&store, &nodes);
        for way in ["delete by instance", "delete", "unbind"] {
            let arqs = request(&api, "FPGA", "1").await;
            let bound = api.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
            assert_eq!(bound.status, StatusCode::ACCEPTED, "{name} {way}: {}", bound.body);
            let done = match way {
                "delete by instance" => api.delete(&format!("{PATH}?instance={SERVER}")).await,
                "delete" => api.delete(&format!("{PATH}?arqs={}", arqs[0])).await,
                _ => api.patch(PATH, unbind(&arqs[0])).await,
            };
            assert!(done.status.is_success(), "{name} {way}: {}", done.body);
            assert_eq!(count(&store, DIRTY).await, 1, "{name} {way}");
            assert_eq!(count(&store, RESERVED).await, 1, "{name} {way}");
            let next = request(&api, "FPGA", "1").await;
            let refused = api.patch(PATH, bind(&next, specs[0].id, ABSENT)).await;
            assert_eq!(
                refused.status,
                StatusCode::NOT_FOUND,
                "{name} {way}: the host has not acknowledged"
            );
            assert_eq!(audit(&store).await, Vec::<String>::new(), "{name} {way}");
            let generation = nodes.0.load(Ordering::Relaxed);
            acknowledge(&store, generation - 1).await;
            assert_eq!(count(&store, DIRTY).await, 1, "{name} {way}: an earlier generation");
            acknowledge(&store, generation).await;
            assert_eq!(count(&store, DIRTY).await, 0, "{name} {way}");
            assert_eq!(count(&store, RESERVED).await, 0, "{name} {way}");
            assert_eq!(audit(&store).await, Vec::<String>::new(), "{name} {way}");
        }
    }
}

#[tokio::test]
async fn handles_of_a_silent_host_are_listed_and_an_administrator_may_free_them() {
    for (name, store, _guard) in stores().await {
        let specs = report_host(&store, &World::new(), vec![vgpu("0000:84:00.0", 2)]).await;
        let api = nova(&store, &Counter::default());
        let arqs = request(&api, "VGPU", "1").await;
        api.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
        assert_eq!(store.read(ledger::pending_releases).await.unwrap(), [], "{name}");
        api.delete(&format!("{PATH}?instance={SERVER}")).await;
        let silent = store.read(ledger::pending_releases).await.unwrap();
        assert_eq!(silent.len(), 1, "{name}");
        assert_eq!((silent[0].host.as_str(), silent[0].handles), (HOST, 1), "{name}");
        assert_eq!(silent[0].address, "0000:84:00.0", "{name}");
        // A report of the same devices, possibly by another agent, does not free it.
        report_host(&store, &World::new(), vec![vgpu("0000:84:00.0", 2)]).await;
        assert_eq!(count(&store, DIRTY).await, 1, "{name}");
        let path = format!("/v2/devices/{}/enable", silent[0].device);
        let answer = api.raw(http::Method::POST, &path, Vec::new()).await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT, "{name}: {}", answer.body);
        assert_eq!(count(&store, DIRTY).await, 0, "{name}");
        assert_eq!(count(&store, RESERVED).await, 0, "{name}");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn an_absent_device_is_deleted_when_its_host_acknowledges() {
    for (name, store, _guard) in stores().await {
        let specs = setup(&store, 1).await;
        let api = nova(&store, &Counter::default());
        let arqs = request(&api, "FPGA", "1").await;
        api.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
        api.delete(&format!("{PATH}?instance={SERVER}")).await;
        report_host(&store, &World::new(), Vec::new()).await;
        assert_eq!(count(&store, DIRTY).await, 1, "{name}");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
        acknowledge(&store, ledger::EVERYTHING).await;
        assert_eq!(count(&store, "SELECT COUNT(*) FROM attach_handles").await, 0, "{name}");
        setup(&store, 1).await;
        assert_eq!(count(&store, FREE).await, 1, "{name}");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn the_unbound_requests_of_a_project_are_limited() {
    for (name, store, _guard) in stores().await {
        let specs = setup(&store, 8).await;
        let api = Api { unbound: Some(4), ..Api::admin(&store).with_service() };
        let first = request(&api, "FPGA", "2").await;
        request(&api, "FPGA", "2").await;
        let member = api.with_roles("member");
        let body = serde_json::json!({"device_profile_name": "dp-FPGA-2"});
        let refused = member.post(PATH, body.clone()).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{name}");
        assert!(refused.fault().contains("has 4 unbound accelerator requests"), "{name}");
        let other = member.of_project("p2").post(PATH, body.clone()).await;
        assert_eq!(other.status, StatusCode::CREATED, "{name}: each project has its own limit");
        let bound = api.patch(PATH, bind(&first, specs[0].id, SERVER)).await;
        assert_eq!(bound.status, StatusCode::ACCEPTED, "{name}");
        let made = member.post(PATH, body.clone()).await;
        assert_eq!(made.status, StatusCode::CREATED, "{name}: bound requests do not count");
        let none = Api { unbound: Some(-1), ..member.clone() };
        assert_eq!(none.post(PATH, body).await.status, StatusCode::CREATED, "{name}: no limit");
    }
}

#[tokio::test]
async fn concurrent_calls_do_not_exceed_the_limit() {
    for (name, store, _guard) in stores().await {
        let api = Api { unbound: Some(3), ..Api::admin(&store) };
        request(&api, "FPGA", "1").await;
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let api = api.clone();
            calls.spawn(async move {
                let body = serde_json::json!({"device_profile_name": "dp-FPGA-1"});
                api.post(PATH, body).await.status
            });
        }
        let answers = calls.join_all().await;
        let made = answers.iter().filter(|status| **status == StatusCode::CREATED).count();
        assert_eq!(made, 2, "{name}: {answers:?}");
    }
}

/// A Nova that gives every query the same answer, and records them.
#[derive(Clone)]
struct FakeNova {
    answer: Arc<Mutex<Result<Presence, NovaError>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl FakeNova {
    fn saying(answer: Result<Presence, NovaError>) -> Self {
        Self { answer: Arc::new(Mutex::new(answer)), asked: Arc::default() }
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

impl Nova for FakeNova {
    fn has(&self, server: ServerId) -> PresenceQuery<'_> {
        self.asked.lock().unwrap().push(server.to_string());
        let answer = self.answer.lock().unwrap().clone();
        Box::pin(async move { answer })
    }

    fn deliver<'a>(&'a self, _: &'a [Event]) -> Delivery<'a> {
        Box::pin(async { Ok(()) })
    }
}

/// Moves the times of all requests back by an hour.
async fn time_passes(store: &Store) {
    let sql = "UPDATE arqs SET updated_at = updated_at - 3600000000,
        asked_at = asked_at - 3600000000";
    store.write(move |tx| tx.execute(sql, params![])).await.unwrap();
}

async fn search(store: &Store, nova: &FakeNova) -> (usize, usize) {
    let state = State::new(store.clone(), World::new()).with_nodes(Arc::new(Counter::default()));
    let done = lost(&state, nova, 0).await.unwrap_or_else(|error: Error| panic!("{error}"));
    (done.asked, done.unbound)
}

#[tokio::test]
async fn a_request_of_a_deleted_instance_is_unbound() {
    for (name, store, _guard) in stores().await {
        let specs = setup(&store, 4).await;
        let api = nova(&store, &Counter::default());
        let arqs = request(&api, "FPGA", "2").await;
        api.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
        let gone = FakeNova::saying(Ok(Presence::Absent));
        assert_eq!(search(&store, &gone).await, (0, 0), "{name}: the binding is too recent");
        time_passes(&store).await;
        for other in [
            Ok(Presence::Exists),
            Err(NovaError::Temporary("away".into())),
            Err(NovaError::Permanent("you may not see it".into())),
        ] {
            let nova = FakeNova::saying(other.clone());
            assert_eq!(search(&store, &nova).await, (1, 0), "{name} {other:?}");
            assert_eq!(
                search(&store, &nova).await,
                (0, 0),
                "{name}: no second query within the interval"
            );
            let shown = api.get(&format!("{PATH}?instance={SERVER}")).await.body;
            assert_eq!(shown["arqs"].as_array().map(Vec::len), Some(2), "{name} {other:?}");
            time_passes(&store).await;
        }
        assert_eq!(search(&store, &gone).await, (1, 2), "{name}");
        assert_eq!(gone.asked(), 1, "{name}");
        for arq in &arqs {
            let shown = api.get(&format!("{PATH}/{arq}")).await.body;
            assert_eq!(shown["state"], "Unbound", "{name}");
            assert!(shown["instance_uuid"].is_null(), "{name}");
        }
        assert_eq!(count(&store, DIRTY).await, 2, "{name}: the guest may still run");
        let noted = "SELECT COUNT(*) FROM handle_changes WHERE change = 'freed'
            AND request_id LIKE 'req-%'";
        assert_eq!(count(&store, noted).await, 2, "{name}");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn nova_is_not_asked_about_an_instance_that_has_its_allocation() {
    for (name, store, _guard) in stores().await {
        let specs = setup(&store, 2).await;
        allocate(&store, specs[0].id, SERVER, "FPGA", "p1").await;
        let api = Api::admin(&store).with_service();
        let arqs = request(&api, "FPGA", "1").await;
        api.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
        time_passes(&store).await;
        let gone = FakeNova::saying(Ok(Presence::Absent));
        assert_eq!(search(&store, &gone).await, (0, 0), "{name}");
        assert_eq!(gone.asked(), 0, "{name}");
        let shown = api.get(&format!("{PATH}/{}", arqs[0])).await.body;
        assert_eq!(shown["state"], "Bound", "{name}");
    }
}

#[tokio::test]
async fn only_one_of_two_controllers_queries_nova() {
    for (name, store, _guard) in stores().await {
        let specs = setup(&store, 2).await;
        let api = Api::admin(&store).with_service();
        let arqs = request(&api, "FPGA", "1").await;
        api.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
        time_passes(&store).await;
        let nova = FakeNova::saying(Ok(Presence::Exists));
        let (one, two) = tokio::join!(search(&store, &nova), search(&store, &nova));
        assert_eq!(one.0 + two.0, 1, "{name}");
        assert_eq!(nova.asked(), 1, "{name}");
    }
}

//! Machine ids, and the host names under which machines register.

use kilonova_accelerator::ledger;
use kilonova_compute_app::{Compute, attention, retire};
use kilonova_compute_db::{cells, hosts};
use kilonova_compute_nodes::Link;
use kilonova_ids::{ConsumerId, HostName, ProviderId, ServerId};
use kilonova_node_api::{
    CLEANED_BY_AGENT, ControlPlane, Deployable, Desired, Device, DeviceKind, End, HandleSlot,
    Health, NumaCell, ON_RELEASE, Observation, OrderResult, Outcome, Refusal, Registration,
};
use kilonova_placement::World;
use kilonova_store::testing::Meter;
use kilonova_store::{Store, params};
use kilonova_testkit::Guard;

struct Cloud {
    name: &'static str,
    store: Store,
    link: Link,
    _guard: Guard,
}

async fn clouds() -> Vec<Cloud> {
    let mut migrations = vec![
        kilonova_flow::MIGRATIONS,
        kilonova_placement::MIGRATIONS,
        kilonova_accelerator::MIGRATIONS,
        kilonova_network::MIGRATIONS,
    ];
    migrations.extend(kilonova_compute_db::MIGRATIONS);
    let mut clouds = Vec::new();
    for (name, store, _guard) in kilonova_testkit::stores(&migrations).await {
        let compute = Compute::open(store.clone(), World::new()).await.expect("the service opens");
        clouds.push(Cloud { name, store, link: Link(compute), _guard });
    }
    clouds
}

fn gpu() -> Device {
    Device {
        address: "0000:84:00.0".into(),
        card: None,
        one_type: false,
        switch: None,
        peers: Vec::new(),
        mig: None,
        kind: DeviceKind::Gpu,
        vendor_id: "10de".into(),
        product_id: "13bd".into(),
        model: String::new(),
        numa_node: 0,
        health: Health::Healthy,
        deployables: vec![Deployable {
            name: "pci_0000_84_00_0".into(),
            resource_class: kilonova_ids::ResourceClass::verbatim("VGPU"),
            traits: Vec::new(),
            driver: "nvidia".into(),
            facts: Default::default(),
            slots: vec![HandleSlot::Mdev { mdev_type: "nvidia-35".into(), count: 4 }],
        }],
    }
}

/// An NVMe function, which the host's agent erases after each guest.
fn disk() -> Device {
    let clean = (ON_RELEASE.to_owned(), CLEANED_BY_AGENT.to_owned());
    let gpu = gpu();
    let deployable = Deployable {
        name: "pci_0000_01_00_0".into(),
        resource_class: kilonova_ids::ResourceClass::verbatim("CUSTOM_NVME"),
        driver: "nvme".into(),
        facts: [clean].into(),
        slots: vec![HandleSlot::Pci { address: "0000:01:00.0".into() }],
        ..gpu.deployables[0].clone()
    };
    let address = "0000:01:00.0".into();
    Device { address, kind: DeviceKind::Ssd, deployables: vec![deployable], ..gpu }
}

impl Cloud {
    async fn register(&self, host: &str, machine_id: &str) -> Result<i64, Refusal> {
        self.register_cells(host, machine_id, None).await
    }

    async fn register_cells(
        &self,
        host: &str,
        machine_id: &str,
        cells: Option<Vec<NumaCell>>,
    ) -> Result<i64, Refusal> {
        let registration = Registration {
            host: HostName::verbatim(host),
            machine_id: machine_id.into(),
            hypervisor_type: "simulated".into(),
            hypervisor_version: 1000,
            host_ip: "127.0.0.1".into(),
            vcpus: 4,
            memory_mb: 4096,
            disk_gb: 10,
            ratios: [1.0; 3],
            initial_ratios: [false; 3],
            reserved_memory_mb: 0,
            reserved_cpus: 0,
            reserved_disk_gb: 0,
            traits: Vec::new(),
            devices: vec![gpu(), disk()],
            agent_version: None,
            attempt: None,
            connector: None,
            routes: None,
            cells,
            numa_in_placement: false,
        };
        self.link.register(registration).await.map(|session| session.epoch)
    }

    /// The provider of a host's GPU, and how much of it is reserved.
    async fn gpu_of(&self, host: &str) -> (ProviderId, i64) {
        let name = format!("{host}_pci_0000_84_00_0");
        let sql = "SELECT p.id, i.reserved FROM resource_providers p
            JOIN inventories i ON i.provider_id = p.id WHERE p.name = ?1";
        self.store
            .read(move |tx| {
                let row = tx.row(sql, params![name.as_str()])?.expect("the provider exists");
                Ok::<_, kilonova_store::Error>((row.id(0)?, row.int(1)?))
            })
            .await
            .expect("the data can be read")
    }

    /// Deletes the service of a host that is down and has a guest to remove. Returns the guest's server.
    async fn delete_with_a_guest(
        &self,
        host: &'static str,
        before: impl AsyncFnOnce(),
    ) -> ServerId {
        const ABSENT: &str = "INSERT INTO documents (host, server_id, generation, body, held)
            VALUES (?1, ?2, 1, '{\"state\":\"absent\"}', 0)";
        const DOWN: &str = "UPDATE hosts SET forced_down = 1 WHERE host = ?1";
        let (server, compute) = (ServerId::new_v4(), self.link.0.clone());
        let down = self.store.write(move |tx| {
            tx.execute(ABSENT, params![host, server])?;
            tx.execute(DOWN, params![host])
        });
        down.await.expect("the rows are written");
        before().await;
        let deleted = self.store.write(move |tx| {
            let row = hosts::by_name(tx, &HostName::verbatim(host))?.expect("the host has a row");
            retire::retire(tx, &compute, &row)
        });
        deleted.await.expect("the service is deleted");
        server
    }

    /// The states of a host's NVMe functions, and the states of its orders.
    async fn disks(&self, host: &'static str) -> (Vec<String>, Vec<String>) {
        let handles =
            "SELECT h.state FROM attach_handles h JOIN deployables p ON p.id = h.deployable_id
            JOIN devices d ON d.id = p.device_id WHERE d.host = ?1 AND h.address = '0000:01:00.0'";
        let orders = "SELECT state FROM device_orders WHERE host = ?1 ORDER BY id";
        let read = self.store.read(move |tx| {
            let mut column = |sql: &'static str| {
                let rows = tx.rows(sql, params![host])?;
                rows.iter().map(|row| row.string(0)).collect::<Result<_, kilonova_store::Error>>()
            };
            Ok::<_, kilonova_store::Error>((column(handles)?, column(orders)?))
        });
        read.await.expect("the data can be read")
    }

    /// Deletes the service of a host that has given its NVMe function to a server that is gone, and has not cleaned it.
    async fn delete_with_a_dirty_disk(&self, host: &'static str, guest: bool) -> ServerId {
        let (consumer, server) = (ConsumerId::new_v4(), ServerId::new_v4());
        let provider = "SELECT provider_id FROM deployables WHERE name = ?1";
        let name = format!("{host}_pci_0000_01_00_0");
        let nodes = self.link.0.clone();
        let claim = self.store.write(move |tx| {
            let row = tx.row(provider, params![name.as_str()])?.expect("the disk exists");
            let want =
                ledger::BindRequest { provider: row.id(0)?, count: 1, group: 0, profile: None };
            let (world, host) = (World::new(), HostName::verbatim(host));
            ledger::bind(tx, &world, server, consumer, "p1", &host, &[want])?;
            ledger::release(tx, &world, consumer)?;
            ledger::orders::announce(tx, &nodes)
        });
        claim.await.expect("the handle is bound");
        assert_eq!(self.disks(host).await.0, ["dirty"], "{}", self.name);
        if guest {
            return self.delete_with_a_guest(host, async || {}).await;
        }
        let compute = self.link.0.clone();
        let deleted = self.store.write(move |tx| {
            tx.execute("UPDATE hosts SET forced_down = 1 WHERE host = ?1", params![host])?;
            let row = hosts::by_name(tx, &HostName::verbatim(host))?.expect("the host has a row");
            retire::retire(tx, &compute, &row)
        });
        deleted.await.expect("the service is deleted");
        server
    }

    /// Reports the end of a host's order.
    async fn clean(&self, host: &'static str, epoch: i64) {
        let name = HostName::verbatim(host);
        let batch = self.link.desired(&name, epoch, 0).await.expect("the session is valid");
        assert_eq!(batch.orders.len(), 1, "{}: {batch:?}", self.name);
        let end = End::Done { output: String::new() };
        let result = OrderResult { order: batch.orders[0].id, end };
        self.link.report_orders(&name, epoch, vec![result]).await.expect("the report is accepted");
    }

    /// Checks the rules of the ledger.
    async fn audit(&self) {
        for (rule, sql) in ledger::AUDIT {
            let broken = self.store.read(move |tx| tx.rows(sql, params![])).await;
            assert_eq!(broken.expect("the rule is checked").len(), 0, "{}: {rule}", self.name);
        }
    }

    /// The health of a host's devices.
    async fn health(&self, host: &'static str) -> Vec<String> {
        let sql = "SELECT DISTINCT health FROM devices WHERE host = ?1 ORDER BY health";
        let read = self.store.read(move |tx| {
            let rows = tx.rows(sql, params![host])?;
            rows.iter().map(|row| row.string(0)).collect::<Result<_, kilonova_store::Error>>()
        });
        read.await.expect("the data can be read")
    }

    async fn findings(&self) -> String {
        let all = attention::collect(&self.store, &attention::Bounds::default())
            .await
            .expect("the data can be read");
        all.iter().map(|one| format!("{}\n{}\n", one.what, one.remedy)).collect()
    }
}

#[tokio::test]
async fn guests_that_no_row_names_are_reported_until_their_host_has_them_no_more() {
    for cloud in clouds().await {
        let epoch = cloud.register("a", "m1").await.expect("the controller accepts the report");
        let servers: Vec<ServerId> = (0..12).map(|_| ServerId::new_v4()).collect();
        let seen = |server: &ServerId| Observation::new(*server, 0, Outcome::Running);
        let host = HostName::verbatim("a");
        let report = servers.iter().map(seen).collect();
        cloud.link.observed(&host, epoch, report).await.expect("the report is accepted");
        let text = cloud.findings().await;
        assert!(text.contains("host a has 12 guests of servers that"), "{}: {text}", cloud.name);
        assert!(text.contains("and 2 more") && text.contains("virsh"), "{}: {text}", cloud.name);
        let epoch = cloud.register("a", "m1").await.expect("the controller accepts the report");
        let age = "UPDATE unknown_guests SET seen_at = seen_at - 1900000000";
        let aged = cloud.store.write(move |tx| tx.execute(age, params![]).map(drop)).await;
        aged.expect("the rows are updated");
        let report = vec![seen(&servers[3])];
        cloud.link.observed(&host, epoch, report).await.expect("the report is accepted");
        let text = cloud.findings().await;
        assert!(text.contains("host a has 1 guest"), "{}: {text}", cloud.name);
        assert!(text.contains(&servers[3].to_string()), "{}: {text}", cloud.name);
    }
}

#[tokio::test]
async fn a_second_machine_of_a_name_is_refused_while_the_first_is_up() {
    for cloud in clouds().await {
        assert_eq!(cloud.register("a", "m1").await, Ok(1), "{}", cloud.name);
        let refused = cloud.register("a", "m2").await;
        let Err(Refusal::Rejected(why)) = refused else { panic!("{refused:?}") };
        for part in ["Host a is another machine", "machine id m1", "this one has m2", "force"] {
            assert!(why.contains(part), "{part}: {why}");
        }
        assert_eq!(cloud.register("a", "m1").await, Ok(2), "{}: it is not fenced", cloud.name);
        assert_eq!(cloud.register("b", "").await, Ok(1), "{}: no id, no check", cloud.name);
        assert_eq!(cloud.register("b", "m3").await, Ok(2), "{}: the first id", cloud.name);
    }
}

/// The guests that a machine has when its service is deleted are its own: another machine that takes the name has none of
/// them and a later session, and the machine removes them under any name before its devices are offered.
#[tokio::test]
async fn a_deleted_machine_removes_its_guests_under_any_name_and_its_replacement_has_none() {
    for cloud in clouds().await {
        let first = cloud.register("a", "m1").await.expect("the controller accepts the report");
        let (a, b) = (HostName::verbatim("a"), HostName::verbatim("b"));
        let server = cloud.delete_with_a_guest("a", async || {}).await;

        let replacement = cloud.register("a", "m2").await.expect("the name is free");
        assert!(replacement > first, "{}: no session of the old machine is valid", cloud.name);
        assert_eq!(cloud.health("a").await, ["healthy"], "{}", cloud.name);
        let batch = cloud.link.desired(&a, replacement, 0).await.expect("the session is valid");
        assert!(batch.documents.is_empty(), "{}: {batch:?}", cloud.name);

        let epoch = cloud.register("b", "m1").await.expect("the controller accepts the report");
        assert_eq!(cloud.health("b").await, ["failed"], "{}", cloud.name);
        let batch = cloud.link.desired(&b, epoch, 0).await.expect("the session is valid");
        let [document] = &batch.documents[..] else { panic!("{}: {batch:?}", cloud.name) };
        assert_eq!((document.server, &document.desired), (server, &Desired::Absent));
        // It registers again before it has removed the guest.
        let epoch = cloud.register("b", "m1").await.expect("the controller accepts the report");
        assert_eq!(cloud.health("b").await, ["failed"], "{}", cloud.name);
        let report = vec![Observation::new(server, document.generation, Outcome::Absent)];
        cloud.link.observed(&b, epoch, report).await.expect("the report is accepted");
        let batch = cloud.link.desired(&b, epoch, batch.generation).await;
        assert!(batch.expect("the session is valid").register, "{}", cloud.name);
        cloud.register("b", "m1").await.expect("the controller accepts the report");
        assert_eq!(cloud.health("b").await, ["healthy"], "{}", cloud.name);
    }
}

/// A machine that is up under a new name learns of the guests of its old name when that name's service is deleted.
#[tokio::test]
async fn a_renamed_machine_registers_again_when_its_old_name_is_deleted() {
    for cloud in clouds().await {
        cloud.register("a", "m1").await.expect("the controller accepts the report");
        let server = cloud.delete_with_a_guest("a", async || {
            cloud.register("b", "m1").await.expect("the controller accepts the report");
        });
        let server = server.await;
        let b = HostName::verbatim("b");
        let batch = cloud.link.desired(&b, 1, 0).await.expect("the session is valid");
        assert!(batch.register && batch.documents.is_empty(), "{}: {batch:?}", cloud.name);
        let epoch = cloud.register("b", "m1").await.expect("the controller accepts the report");
        assert_eq!(cloud.health("b").await, ["failed"], "{}", cloud.name);
        let batch = cloud.link.desired(&b, epoch, 0).await.expect("the session is valid");
        let [document] = &batch.documents[..] else { panic!("{}: {batch:?}", cloud.name) };
        assert_eq!((document.server, &document.desired), (server, &Desired::Absent));
        // An agent that does not report its machine is no other machine.
        let epoch = cloud.register("b", "").await.expect("the controller accepts the report");
        assert_eq!(cloud.health("b").await, ["failed"], "{}", cloud.name);
        let report = vec![Observation::new(server, document.generation, Outcome::Absent)];
        cloud.link.observed(&b, epoch, report).await.expect("the report is accepted");
        cloud.register("b", "").await.expect("the controller accepts the report");
        assert_eq!(cloud.health("b").await, ["healthy"], "{}", cloud.name);
    }
}

/// A function that its host had not cleaned when its service was deleted is cleaned under the host's name only: by the
/// same machine, with a new system too, or by another one. Under another name the machine does not offer it.
#[tokio::test]
async fn a_function_that_a_deleted_host_has_not_cleaned_is_offered_to_nobody() {
    for cloud in clouds().await {
        let register = async |host: &'static str, machine: &'static str| {
            cloud.register(host, machine).await.expect("the controller accepts the report")
        };
        register("a", "m1").await;
        cloud.delete_with_a_dirty_disk("a", false).await;
        let epoch = register("a", "m2").await;
        assert_eq!(cloud.disks("a").await.0, ["dirty"], "{}", cloud.name);
        cloud.clean("a", epoch).await;
        register("a", "m2").await;
        assert_eq!(cloud.disks("a").await.0, ["free"], "{}", cloud.name);

        let server = cloud.delete_with_a_dirty_disk("a", true).await;
        let epoch = register("c", "m2").await;
        assert_eq!(cloud.health("c").await, ["failed"], "{}", cloud.name);
        let c = HostName::verbatim("c");
        let batch = cloud.link.desired(&c, epoch, 0).await.expect("the session is valid");
        assert!(batch.orders.is_empty(), "{}: a guest may use the function", cloud.name);
        let generation = batch.documents[0].generation;
        let report = vec![Observation::new(server, generation, Outcome::Absent)];
        cloud.link.observed(&c, epoch, report).await.expect("the report is accepted");
        register("c", "m2").await;
        assert_eq!(cloud.health("c").await, ["failed", "healthy"], "{}: the GPU is", cloud.name);
        let text = cloud.findings().await;
        for part in [
            "registered as host a, whose service was deleted",
            "before device 0000:01:00.0 was clean",
        ] {
            assert!(text.contains(part), "{}: {part}: {text}", cloud.name);
        }
        // Another host has neither the address nor the reason.
        register("d", "m3").await;
        assert_eq!(cloud.health("d").await, ["healthy"], "{}", cloud.name);

        let epoch = register("a", "m2").await;
        cloud.clean("a", epoch).await;
        register("c", "m2").await;
        assert_eq!(cloud.health("c").await, ["healthy"], "{}", cloud.name);
        cloud.audit().await;
    }
}

#[tokio::test]
async fn a_renamed_machine_offers_nothing_that_its_old_name_holds() {
    for cloud in clouds().await {
        cloud.register("old", "m1").await.expect("the controller accepts the report");
        let (provider, _) = cloud.gpu_of("old").await;
        let consumer = ConsumerId::new_v4();
        let want = ledger::BindRequest { provider, count: 1, group: 0, profile: None };
        cloud
            .store
            .write(move |tx| {
                let want = std::slice::from_ref(&want);
                let server = ServerId::new_v4();
                ledger::bind(
                    tx,
                    &World::new(),
                    server,
                    consumer,
                    "p1",
                    &HostName::verbatim("old"),
                    want,
                )
            })
            .await
            .expect("the handle is bound");
        cloud.register("new", "m1").await.expect("the controller accepts the report");
        assert_eq!(cloud.gpu_of("new").await.1, 4, "{}: nothing of it", cloud.name);
        let text = cloud.findings().await;
        for part in [
            "host new is the machine that had the name old (machine id m1)",
            "of host new",
            "whose servers hold accelerators (1)",
        ] {
            assert!(text.contains(part), "{}: {part}: {text}", cloud.name);
        }
        // The previous name has no claims, but the name before it does.
        cloud.register("third", "m1").await.expect("the controller accepts the report");
        assert_eq!(cloud.gpu_of("third").await.1, 4, "{}: nothing of it", cloud.name);
        let world = World::new();
        cloud
            .store
            .write(move |tx| ledger::release(tx, &world, consumer))
            .await
            .expect("the claims are released");
        for host in ["new", "third"] {
            cloud.register(host, "m1").await.expect("the controller accepts the report");
            assert_eq!(cloud.gpu_of(host).await.1, 0, "{}: {host}", cloud.name);
        }
    }
}

/// A handle without an owner is not counted among those of servers: moving servers does not free it.
#[tokio::test]
async fn a_dirty_handle_of_an_old_name_is_no_servers() {
    for cloud in clouds().await {
        cloud.register("old", "m1").await.expect("the controller accepts the report");
        let (provider, _) = cloud.gpu_of("old").await;
        let (dirty, owned) = (ConsumerId::new_v4(), ConsumerId::new_v4());
        let write = move |tx: &mut kilonova_store::Tx<'_>| {
            for consumer in [dirty, owned] {
                let want = ledger::BindRequest { provider, count: 1, group: 0, profile: None };
                let (world, host) = (World::new(), HostName::verbatim("old"));
                let server = ServerId::new_v4();
                ledger::bind(tx, &world, server, consumer, "p1", &host, &[want])?;
                if consumer == dirty {
                    let sql = "UPDATE attach_handles SET state = 'dirty', arq_id = NULL, \
                        dirty_of = ?1 WHERE state = 'owned'";
                    tx.execute(sql, params![dirty])?;
                }
            }
            Ok::<_, kilonova_accelerator::Error>(())
        };
        cloud.store.write(write).await.expect("the handles are bound");
        let registered = async || {
            cloud.register("new", "m1").await.expect("the controller accepts the report");
            assert_eq!(cloud.gpu_of("new").await.1, 4, "{}: nothing of it", cloud.name);
            cloud.findings().await
        };
        let text = registered().await;
        assert!(text.contains("whose servers hold accelerators (1)"), "{}: {text}", cloud.name);
        let world = World::new();
        let write =
            move |tx: &mut kilonova_store::Tx<'_>| ledger::release(tx, &world, owned).map(drop);
        cloud.store.write(write).await.expect("the claims are released");
        let text = registered().await;
        assert!(!text.contains("whose servers"), "{}: {text}", cloud.name);
        for part in ["no server holds and that are not clean (1)", "restore the machine's old name"]
        {
            assert!(text.contains(part), "{}: {part}: {text}", cloud.name);
        }
    }
}

/// Machines that were installed from one image may share its machine id.
#[tokio::test]
async fn the_names_of_a_machine_cost_no_statement_each() {
    for mut cloud in clouds().await {
        let meter = Meter::counting();
        let store = cloud.store.with_meter(meter.clone());
        let compute = Compute::open(store, World::new()).await.expect("the service opens");
        cloud.link = Link(compute);
        let mut statements = Vec::new();
        for number in 0..9 {
            meter.take();
            let registered = cloud.register(&format!("host{number}"), "m1").await;
            registered.expect("the controller accepts the report");
            statements.push(meter.take());
        }
        assert_eq!(statements[1], statements[8], "{}: {statements:?}", cloud.name);
    }
}

#[tokio::test]
async fn a_renamed_machine_offers_no_cells_while_guests_of_its_old_name_have_cpus() {
    let cells = || {
        let cell = NumaCell {
            id: 0,
            shared: "0".into(),
            dedicated: "1-3".into(),
            cores: Vec::new(),
            socket: None,
            memory_mb: 4096,
            pages: Vec::new(),
            distances: Vec::new(),
        };
        Some(vec![cell])
    };
    for cloud in clouds().await {
        let offers = async |host: &str| {
            let host = HostName::verbatim(host);
            let read = cloud.store.read(move |tx| cells::of_host(tx, &host)).await;
            read.expect("the data can be read").text.is_some()
        };
        cloud.register_cells("old", "m1", cells()).await.expect("the report is accepted");
        cloud.register_cells("new", "m1", cells()).await.expect("the report is accepted");
        assert!(offers("new").await, "{}: no guest has CPUs", cloud.name);
        let consumer = ConsumerId::new_v4();
        let write = move |tx: &mut kilonova_store::Tx<'_>| {
            for sql in [
                "INSERT INTO consumers (id, generation, project_id, user_id, updated_at)
                 VALUES (?1, 0, 'p', 'u', 0)",
                "INSERT INTO fits (consumer_id, host, pinned, fitted, guest) VALUES (?1, 'old', 1, '', '')",
                "INSERT INTO pins (host, cpu, consumer_id) VALUES ('old', 2, ?1)",
            ] {
                tx.execute(sql, params![consumer])?;
            }
            Ok::<_, kilonova_store::Error>(())
        };
        cloud.store.write(write).await.expect("the fit is recorded");
        cloud.register_cells("new", "m1", cells()).await.expect("the report is accepted");
        assert!(!offers("new").await, "{}: a guest has a CPU", cloud.name);
        // The previous name has no guests, but the name before it does.
        cloud.register_cells("third", "m1", cells()).await.expect("the report is accepted");
        assert!(!offers("third").await, "{}: a guest has a CPU", cloud.name);
        let write = move |tx: &mut kilonova_store::Tx<'_>| {
            tx.execute("DELETE FROM consumers WHERE id = ?1", params![consumer]).map(drop)
        };
        cloud.store.write(write).await.expect("the claim is released");
        for host in ["new", "third"] {
            cloud.register_cells(host, "m1", cells()).await.expect("the report is accepted");
            assert!(offers(host).await, "{}: {host}: the CPU is free", cloud.name);
        }
    }
}

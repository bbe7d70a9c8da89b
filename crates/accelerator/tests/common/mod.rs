//! Shared by the tests of this crate: a host with many devices, stores, an HTTP caller, the audit.

pub mod arqs;

use axum::body::Body;
use http::{Method, Request};
use kilonova_accelerator::nova::Nova;
use kilonova_accelerator::{Bitstreams, Error, HostNotifier, MIGRATIONS, State, ledger};
use kilonova_ids::{HostName, ProviderId};
use kilonova_node_api::{Deployable, Device, DeviceKind, HandleSlot, Health};
use kilonova_placement::World;
use kilonova_placement::ledger::ProviderSpec;
use kilonova_store::{Store, params};
use kilonova_testkit::Guard;
pub use kilonova_testkit::http::Answer;
use kilonova_wire::{mount, noauth::NoAuth};
use newtype_uuid::GenericUuid;
use serde_json::Value;
use std::sync::Arc;

pub const HOST: &str = "cmp1";

/// [`HOST`] as a host's name.
pub fn host() -> HostName {
    HostName::verbatim(HOST)
}

pub async fn stores() -> Vec<(&'static str, Store, Guard)> {
    kilonova_testkit::stores(&[kilonova_placement::MIGRATIONS, MIGRATIONS]).await
}

/// A fake card with `count` handles for tests.
pub fn fake(count: u32) -> Device {
    let slot = |n| HandleSlot::TestPci { address: format!("0000:0c:00.{n}") };
    device("0000:0c:00.0", DeviceKind::Fpga, "FakeDevice", "FPGA", (0..count).map(slot).collect())
}

/// A GPU with room for `count` mediated devices.
pub fn vgpu(address: &str, count: u32) -> Device {
    let name = format!("pci_{}", address.replace([':', '.'], "_"));
    let slots = vec![HandleSlot::Mdev { mdev_type: "nvidia-35".into(), count }];
    device(address, DeviceKind::Gpu, &name, "VGPU", slots)
}

pub fn device(
    address: &str,
    kind: DeviceKind,
    name: &str,
    class: &str,
    slots: Vec<HandleSlot>,
) -> Device {
    Device {
        address: address.into(),
        card: None,
        one_type: false,
        switch: None,
        peers: Vec::new(),
        mig: None,
        kind,
        vendor_id: "10de".into(),
        product_id: "1eb8".into(),
        model: "Tesla T4".into(),
        numa_node: 0,
        health: Health::Healthy,
        deployables: vec![Deployable {
            name: name.into(),
            resource_class: kilonova_ids::ResourceClass::verbatim(class),
            traits: vec!["CUSTOM_TEST".into()],
            driver: "fake".into(),
            facts: Default::default(),
            slots,
        }],
    }
}

pub async fn report(store: &Store, devices: Vec<Device>) -> Result<Vec<ProviderSpec>, Error> {
    store.write(move |tx| ledger::report(tx, &host(), &devices)).await
}

/// Applies a report to both ledgers: the devices, and their providers below the host's.
pub async fn report_host(store: &Store, world: &World, devices: Vec<Device>) -> Vec<ProviderSpec> {
    let world = world.clone();
    let root = ProviderSpec {
        id: ProviderId::from_untyped_uuid(uuid::Uuid::new_v3(
            &uuid::Uuid::NAMESPACE_DNS,
            HOST.as_bytes(),
        )),
        name: HOST.into(),
        inventories: Vec::new(),
        initial_ratios: Vec::new(),
        traits: Vec::new(),
    };
    store
        .write(move |tx| {
            let children = ledger::report(tx, &host(), &devices)?;
            kilonova_placement::ledger::report_host(tx, &world, &root, &children)?;
            Ok::<_, Error>(children)
        })
        .await
        .expect("the report is applied")
}

/// The violations of the ledger's rules.
pub async fn audit(store: &Store) -> Vec<String> {
    kilonova_testkit::audit::broken(store, &[ledger::AUDIT, kilonova_placement::AUDIT]).await
}

/// Every row of the tables that a report writes, for before-and-after comparisons.
pub async fn everything(store: &Store) -> String {
    store
        .read(|tx| {
            let mut all = String::new();
            for table in ["devices", "deployables", "attributes", "attach_handles"] {
                let rows = tx.rows(&format!("SELECT * FROM {table} ORDER BY id"), params![])?;
                all.push_str(&format!("{rows:?}\n"));
            }
            Ok::<_, Error>(all)
        })
        .await
        .unwrap()
}

pub async fn count(store: &Store, sql: &'static str) -> i64 {
    store.read(move |tx| tx.row(sql, params![])?.unwrap().int(0)).await.unwrap()
}

/// A caller of the API in process.
#[derive(Clone)]
pub struct Api {
    pub store: Store,
    pub roles: &'static str,
    pub project: &'static str,
    pub service: bool,
    pub version: Option<&'static str>,
    /// Receives the events of binds.
    pub nova: Option<Arc<dyn Nova>>,
    /// The notifier of nodes, and the source of bitstreams.
    pub orders: Option<(Arc<dyn HostNotifier>, Arc<dyn Bitstreams>)>,
    /// True if the host's agent is dead; otherwise it acknowledges after each call.
    pub silent: bool,
    /// Limit of unbound requests of a project.
    pub unbound: Option<i64>,
}

impl Api {
    pub fn admin(store: &Store) -> Self {
        Self {
            store: store.clone(),
            roles: "admin",
            project: "p1",
            service: false,
            version: None,
            nova: None,
            orders: None,
            silent: false,
            unbound: None,
        }
    }

    pub fn with_roles(&self, roles: &'static str) -> Self {
        Self { roles, ..self.clone() }
    }

    pub fn of_project(&self, project: &'static str) -> Self {
        Self { project, ..self.clone() }
    }

    pub fn with_service(&self) -> Self {
        Self { service: true, ..self.clone() }
    }

    pub fn at(&self, version: &'static str) -> Self {
        Self { version: Some(version), ..self.clone() }
    }

    pub async fn raw(&self, method: Method, path: &str, body: Vec<u8>) -> Answer {
        let mut state = State::new(self.store.clone(), World::new());
        if let Some(limit) = self.unbound {
            state = state.with_unbound_limit(limit);
        }
        if let Some(nova) = &self.nova {
            state = state.telling(Arc::clone(nova));
        }
        if let Some((nodes, bitstreams)) = &self.orders {
            let (nodes, bitstreams) = (Arc::clone(nodes), Arc::clone(bitstreams));
            state = state.with_nodes(nodes).with_bitstreams(bitstreams);
        }
        let router = mount(
            kilonova_accelerator::routes(state),
            kilonova_accelerator::service(),
            "/accelerator",
            Arc::new(NoAuth),
        );
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "cloud:8780")
            .header("x-user-id", "u1")
            .header("x-project-id", self.project)
            .header("x-roles", self.roles);
        if self.service {
            request = request.header("x-service-roles", "service");
        }
        if let Some(version) = self.version {
            request = request.header("openstack-api-version", version);
        }
        let answer =
            kilonova_testkit::http::send(&router, request.body(Body::from(body)).unwrap()).await;
        if self.orders.is_some() && !self.silent {
            let spoken = |tx: &mut kilonova_store::Tx<'_>| {
                ledger::acknowledge(tx, &World::new(), &host(), ledger::EVERYTHING)
            };
            self.store.write(spoken).await.unwrap();
        }
        answer
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.raw(Method::GET, path, Vec::new()).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.raw(Method::POST, path, body.to_string().into_bytes()).await
    }

    pub async fn patch(&self, path: &str, body: Value) -> Answer {
        self.raw(Method::PATCH, path, body.to_string().into_bytes()).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.raw(Method::DELETE, path, Vec::new()).await
    }
}

//! The service on each store, with hosts and servers as plain rows.

use std::ops::Deref;
use std::sync::Arc;

use jiff::Timestamp;
use kilonova_compute_app::usage::ProjectUsage;
use kilonova_compute_app::{Compute, Error};
use kilonova_compute_db::counted;
use kilonova_ids::{HostId, HostName, ProviderId};
use kilonova_image::Images;
use kilonova_placement::World;
use kilonova_store::testing::Meter;
use kilonova_store::{Store, Tx, params};
use kilonova_testkit::Guard;
use kilonova_wire::noauth::NoAuth;
use serde_json::json;

use crate::common::Client;
pub use crate::common::{ADMIN, ANN, Answer, BOB};

pub struct Api {
    pub store: Store,
    pub compute: Compute,
    /// Counts the work of the service.
    pub meter: Meter,
    client: Client,
    _folder: tempfile::TempDir,
    _guard: Guard,
}

impl Deref for Api {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// The service on each store.
pub async fn apis() -> Vec<Api> {
    let mut apis = Vec::new();
    let mut migrations = vec![
        kilonova_accelerator::MIGRATIONS,
        kilonova_flow::MIGRATIONS,
        kilonova_image::MIGRATIONS,
        kilonova_network::MIGRATIONS,
        kilonova_placement::MIGRATIONS,
    ];
    migrations.extend(kilonova_compute_db::MIGRATIONS);
    for (_, store, guard) in kilonova_testkit::stores(&migrations).await {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let images = Images::open(store.clone(), folder.path()).await.expect("the service opens");
        let meter = Meter::counting();
        let store = store.with_meter(meter.clone());
        let compute = Compute::open(store.clone(), World::new()).await.expect("the service opens");
        let compute = compute.with_images(images);
        let routes = kilonova_compute::routes(compute.clone());
        let router =
            kilonova_wire::mount(routes, kilonova_compute::service(), "/compute", Arc::new(NoAuth));
        let client = Client { router: kilonova_compute::reached_in_project(router) };
        apis.push(Api { store, compute, meter, client, _folder: folder, _guard: guard });
    }
    apis
}

impl Api {
    /// A registered host, last seen at `seen`.
    pub async fn host(&self, name: &str, seen: Timestamp) -> i64 {
        let new = kilonova_compute_db::hosts::NewHost {
            id: HostId::new_v4(),
            host: HostName::verbatim(name),
            root_provider: ProviderId::new_v4(),
            hypervisor_type: "simulated".into(),
            hypervisor_version: 1000,
            host_ip: "127.0.0.1".into(),
            vcpus: 8,
            memory_mb: 8192,
            disk_gb: 100,
            agent_version: None,
            attempt: None,
        };
        self.store
            .write(move |tx| kilonova_compute_db::hosts::register(tx, &new, seen))
            .await
            .expect("the host registers")
            .version
            .epoch
    }

    /// A server's row with the columns that quotas and usage read.
    pub async fn server(&self, project: &str, user: &str, host: &str, vcpus: i64, memory_mb: i64) {
        let (project, user, host) = (project.to_owned(), user.to_owned(), host.to_owned());
        self.store
            .write(move |tx| {
                let more = ProjectUsage { instances: 1, cores: vcpus, ram: memory_mb };
                counted::count(tx, &project, more)?;
                insert_on(tx, &project, &user, Some(&host), vcpus, memory_mb)
            })
            .await
            .expect("the row is inserted");
    }
}

/// A server's row without a host, counted in the quota.
pub fn insert(
    tx: &mut Tx<'_>,
    project: &str,
    user: &str,
    vcpus: i64,
    memory_mb: i64,
) -> Result<(), Error> {
    insert_on(tx, project, user, None, vcpus, memory_mb)
}

fn insert_on(
    tx: &mut Tx<'_>,
    project: &str,
    user: &str,
    host: Option<&str>,
    vcpus: i64,
    memory_mb: i64,
) -> Result<(), Error> {
    let spec = json!({
        "flavor": {"id": "f", "name": "f", "vcpus": vcpus, "ram": memory_mb, "disk": 5,
            "ephemeral": 1, "swap": 1, "extra_specs": {}},
        "image": null, "image_properties": {}, "key_name": null, "hostname": "s",
        "config_drive": false, "user_data": null, "availability_zone": null,
        "wanted_host": null, "hints": {}, "reservation_id": "r-1", "launch_index": 0,
        "access": ["", ""], "disk_config": "MANUAL",
    });
    let id = kilonova_ids::ServerId::new_v4();
    tx.execute(
        "INSERT INTO servers (id, project_id, user_id, name, host, vm_state,
            power_state, vcpus, memory_mb, spec, metadata, tags, created_at, updated_at)
         VALUES (?1, ?2, ?3, 's', ?4, 'active', 1, ?5, ?6, ?7, '{}', '[]', 0, 0)",
        params![id, project, user, host, vcpus, memory_mb, spec.to_string()],
    )?;
    Ok(())
}

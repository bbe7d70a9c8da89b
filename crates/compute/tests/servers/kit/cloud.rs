//! A cloud whose processes can be stopped and started: its database, the state directories of its
//! hosts, and the flavors, images and device profiles that every test uses.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use kilonova_cinder::Cinder;
use kilonova_compute_app::images::glance::{CloudGlance, CloudGlanceOptions};
use kilonova_compute_app::reconcile::glance as glance_loop;
use kilonova_compute_app::vendordata::DynamicVendordata;
use kilonova_compute_app::volumes::{self, VolumeOptions, Volumes};
use kilonova_compute_app::{Compute, Options};
use kilonova_glance::{Glance, GlanceOptions};
use kilonova_ids::ImageId;
use kilonova_image::{ImageRecord, Images, Status, Visibility};
use kilonova_keystone::{Endpoint, Http, Login, Retries, Service, Session};
use kilonova_node::topology::{Host, Topology};
use kilonova_placement::World;
use kilonova_store::testing::CrashPlan;
use kilonova_store::{DatabaseUrl, Store};
use kilonova_testkit::Guard;
use kilonova_testkit::cinder::FakeCinder;
use kilonova_testkit::glance::FakeGlance;
use kilonova_wire::noauth::NoAuth;
use kilonova_wire::time;
use serde_json::{Value, json};

use super::external::CloudNetwork;
use super::running::RunningCloud;
use super::topology::aliases;
use crate::common::Client;

/// Flavors that every cloud has, with their extra specs. Those of bitstreams need [`Cloud::add_bitstreams`].
const FLAVORS: &[(&str, &[(&str, &str)])] = &[
    ("plain", &[]),
    ("vgpu", &[("resources:VGPU", "1")]),
    ("vgpu4", &[("resources:VGPU", "4")]),
    (
        "vgpu-pair",
        &[("resources1:VGPU", "1"), ("resources2:VGPU", "1"), ("group_policy", "isolate")],
    ),
    ("fpga", &[("accel:device_profile", "fpga")]),
    ("profile", &[("accel:device_profile", "vgpu")]),
    ("both", &[("resources:VGPU", "1"), ("accel:device_profile", "fpga")]),
    ("loaded", &[("accel:device_profile", "loaded")]),
    ("spoilt", &[("accel:device_profile", "spoilt")]),
    ("disk", &[("resources:CUSTOM_NVME", "1")]),
    ("once", &[("resources:CUSTOM_ONCE", "1")]),
    ("dedicated", &[("hw:cpu_policy", "dedicated")]),
];

/// The PCI alias that every cloud has: a whole network card.
const X710_ALIAS: &str = r#"{"name": "x710", "resource_class": "X710", "device_type": "type-PF"}"#;

pub struct Cloud {
    /// The store's name, for messages.
    pub name: &'static str,
    /// A handle that no crash plan affects.
    pub store: Store,
    pub image: ImageId,
    pub topology: Topology,
    /// The operator's options; they apply to services that start from now on.
    pub options: Options,
    /// The Glance of the cloud, for services that start from now on. Without one, they use our own image service.
    pub glance: Option<FakeGlance>,
    /// The dynamic vendordata of the operator, for services that start from now on.
    pub vendordata: Option<Arc<DynamicVendordata>>,
    /// The Cinder of the cloud, for services that start from now on. Without one, there are no volumes.
    pub cinder: Option<FakeCinder>,
    /// False if a server and its volumes must be in one zone.
    pub cross_az_attach: bool,
    /// The Neutron of the cloud with its options, for services that start from now on.
    pub neutron: Option<CloudNetwork>,
    folder: tempfile::TempDir,
    guard: Guard,
}

impl Cloud {
    /// One cloud on each store, with no process running.
    pub async fn all(topology: Topology) -> Vec<Self> {
        let migrations = [
            kilonova_image::MIGRATIONS,
            kilonova_network::MIGRATIONS,
            kilonova_placement::MIGRATIONS,
            kilonova_accelerator::MIGRATIONS,
            kilonova_flow::MIGRATIONS,
            kilonova_compute_db::MIGRATIONS[0],
            kilonova_compute_db::MIGRATIONS[1],
        ];
        let stores = kilonova_testkit::seeded_stores(&migrations, seed).await;
        let cloud = |(name, store, guard)| Self {
            name,
            store,
            image: cirros(),
            topology: topology.clone(),
            glance: None,
            vendordata: None,
            cinder: None,
            cross_az_attach: true,
            neutron: None,
            options: Options { pci_aliases: aliases(&[X710_ALIAS]), ..Options::default() },
            folder: tempfile::tempdir().expect("a temporary directory is created"),
            guard,
        };
        stores.into_iter().map(cloud).collect()
    }

    /// [`Cloud::all`], with services and hosts started.
    pub async fn all_running(topology: Topology) -> Vec<(Self, RunningCloud)> {
        let mut all = Vec::new();
        for cloud in Self::all(topology).await {
            let running = cloud.start().await;
            running.wait_for_hosts().await;
            all.push((cloud, running));
        }
        all
    }

    /// Starts services and hosts.
    pub async fn start(&self) -> RunningCloud {
        self.start_with_plan(CrashPlan::default()).await
    }

    /// Starts services and hosts that crash as the plan says.
    pub async fn start_with_plan(&self, plan: CrashPlan) -> RunningCloud {
        let mut running = RunningCloud::new(self, plan).await;
        for host in &self.topology.hosts {
            running.nodes.start(host);
        }
        running
    }

    /// Starts a Glance, with the image that every cloud has. Services that start from now on use it.
    pub async fn start_glance(&mut self) -> FakeGlance {
        let fake = FakeGlance::start().await;
        let more = json!({"visibility": "public", "name": "cirros"});
        fake.add(&self.image.to_string(), "admin", more, b"the bytes of cirros");
        self.glance = Some(fake.clone());
        fake
    }

    /// Starts a Cinder. Services that start from now on use it.
    pub async fn start_cinder(&mut self) -> FakeCinder {
        let fake = FakeCinder::start().await;
        self.cinder = Some(fake.clone());
        fake
    }

    /// Processes the volumes of all servers until no work is left, regardless of due times and of the claims
    /// of dead workers.
    pub async fn finish_volume_work(&self, running: &RunningCloud) {
        self.execute("UPDATE volume_servers SET taken_until = 0").await;
        for _ in 0..200 {
            if self
                .column("SELECT server_id FROM volume_servers WHERE due_at IS NOT NULL")
                .await
                .is_empty()
            {
                return;
            }
            // The times of the changes stay distinct, because a worker recognizes a change by its time.
            self.execute(
                "UPDATE volume_servers SET due_at = due_at - 3600000000 WHERE due_at IS NOT NULL",
            )
            .await;
            volumes::run(running.compute.clone()).await.expect("the loop runs");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let left = self.column("SELECT state FROM volume_attachments").await;
        panic!("attachments do not settle: {left:?}");
    }

    /// Does all pending work in Glance, regardless of due times.
    pub async fn sweep_glance(&self, running: &RunningCloud) {
        for _ in 0..20 {
            self.execute("UPDATE glance_images SET due_at = 0 WHERE due_at IS NOT NULL").await;
            glance_loop::run(running.compute.clone()).await.expect("the sweep runs");
            if self.column("SELECT id FROM glance_images").await.is_empty() {
                return;
            }
        }
        let left = self.column("SELECT state FROM glance_images").await;
        panic!("images are left: {left:?}");
    }

    /// A host of the topology.
    pub fn host(&self, name: &str) -> &Host {
        self.topology.hosts.iter().find(|host| host.name == name).expect("the host is known")
    }

    /// The services without hosts.
    pub async fn services(&self, plan: CrashPlan) -> Compute {
        let store = self.store.with_crash_plan(plan);
        let world = World::new();
        world.load(&store).await.expect("the providers are loaded");
        let compute = Compute::open(store, world).await.expect("the service opens");
        let compute =
            compute.with_options(self.options.clone()).with_vendordata(self.vendordata.clone());
        let compute = match &self.neutron {
            Some(cloud) => compute.with_neutron(cloud.service()),
            None => compute,
        };
        let compute = match &self.cinder {
            Some(fake) => compute.with_cinder(cloud_cinder(fake, self.cross_az_attach)),
            None => compute,
        };
        match &self.glance {
            Some(fake) => compute.with_glance(cloud_glance(fake)),
            None => compute.with_images(self.images().await),
        }
    }

    /// A copy of the current database, which can replace it later; `None` on PostgreSQL.
    pub async fn copy(&self) -> Option<Store> {
        let from = self.guard.file()?;
        let to = self.folder.path().join("copy.db");
        let path = to.clone();
        // No other task writes the files during a write transaction.
        let copied = self.store.write(move |_| -> Result<(), kilonova_store::Error> {
            for suffix in ["", "-wal"] {
                let [from, to] = [&from, &path].map(|path| format!("{}{suffix}", path.display()));
                std::fs::copy(from, to).expect("the file is copied");
            }
            Ok(())
        });
        copied.await.expect("the database is copied");
        Some(Store::open(&DatabaseUrl::Sqlite(to)).await.expect("the copy opens"))
    }

    /// The folder in which each host keeps its state.
    pub fn nodes(&self) -> PathBuf {
        self.folder.path().join("nodes")
    }

    /// Names of the files in a folder of a host's state, sorted.
    pub fn files(&self, host: &str, folder: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.nodes().join(host).join(folder)) else {
            return Vec::new();
        };
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            entry.expect("the data can be read").file_name().to_string_lossy().into_owned()
        };
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }

    /// The bitstreams of the flavors `loaded` and `spoilt`, with their profiles.
    pub async fn add_bitstreams(&self) {
        for (name, bytes) in [("loaded", intel_bitstream()), ("spoilt", b"anything".to_vec())] {
            let image = self.bitstream(name, bytes).await;
            let groups = json!([{"resources:FPGA": "1", "accel:bitstream_id": image}]);
            self.profile(name, &groups).await;
        }
    }

    async fn images(&self) -> Images {
        let folder = self.folder.path().join("images");
        Images::open(self.store.clone(), &folder).await.expect("the service opens")
    }

    /// A public image with these bytes, whose property `accel:function_id` is its name.
    async fn bitstream(&self, name: &str, bytes: Vec<u8>) -> ImageId {
        self.image_with(name, &[("accel:function_id", name)], bytes).await
    }

    /// A public image with these properties and bytes.
    pub async fn image_with(
        &self,
        name: &str,
        properties: &[(&str, &str)],
        bytes: Vec<u8>,
    ) -> ImageId {
        self.image_as(name, "raw", properties, bytes).await
    }

    /// [`Cloud::image_with`] in this format.
    pub async fn image_as(
        &self,
        name: &str,
        format: &str,
        properties: &[(&str, &str)],
        bytes: Vec<u8>,
    ) -> ImageId {
        let id = ImageId::new_v4();
        let mut image = ImageRecord::new(id, "admin".into(), time::now());
        image.name = Some(name.into());
        image.visibility = Visibility::Public;
        image.disk_format = Some("raw".into());
        image.container_format = Some("bare".into());
        let properties = properties.iter();
        let properties = properties.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        image.properties = properties.collect();
        let reserved = self.store.write(move |tx| kilonova_image::reserve(tx, &image));
        reserved.await.expect("the image is added");
        let kept =
            self.images().await.receive_snapshot(id, format, "tests", || Body::from(bytes)).await;
        kept.expect("the bytes are stored");
        id
    }

    /// Adds a device profile by the accelerator API.
    pub async fn profile(&self, name: &str, groups: &Value) {
        add_profile(&self.store, name, groups).await;
    }
}

/// The id of the image that every cloud has.
fn cirros() -> ImageId {
    "c1440500-0000-4000-8000-000000000001".parse().expect("the id is a UUID")
}

/// The rows that every cloud begins with: an image, flavors and device profiles.
async fn seed(store: Store) {
    let mut image = ImageRecord::new(cirros(), "admin".into(), time::now());
    image.name = Some("cirros".into());
    image.status = Status::Active;
    image.visibility = Visibility::Public;
    let reserved = store.write(move |tx| kilonova_image::reserve(tx, &image));
    reserved.await.expect("the image is added");
    let compute = Compute::open(store.clone(), World::new()).await.expect("the service opens");
    let client = client(compute);
    for (id, specs) in FLAVORS {
        client.flavor(id, json!({})).await;
        let specs: Value = specs.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect();
        let path = format!("POST /flavors/{id}/os-extra_specs");
        client.admin("2.61", &path, json!({"extra_specs": specs})).await.expect(200);
    }
    let fpga = json!([{"resources:FPGA": "1", "trait:CUSTOM_FAKE_DEVICE": "required"}]);
    add_profile(&store, "fpga", &fpga).await;
    add_profile(&store, "vgpu", &json!([{"resources:VGPU": "1"}])).await;
}

async fn add_profile(store: &Store, name: &str, groups: &Value) {
    let state = kilonova_accelerator::State::new(store.clone(), World::new());
    let router = kilonova_wire::mount(
        kilonova_accelerator::routes(state),
        kilonova_accelerator::service(),
        "/accelerator",
        Arc::new(NoAuth),
    );
    let request = Request::post("/v2/device_profiles")
        .header("host", "cloud:1234")
        .header("x-auth-token", "admin")
        .body(Body::from(json!([{"name": name, "groups": groups}]).to_string()))
        .expect("the request is valid");
    (Client { router }).send(request).await.expect(201);
}

/// The client of a fake Cinder, with pauses that a test can wait for.
fn cloud_cinder(fake: &FakeCinder, cross_az_attach: bool) -> Volumes {
    let session = || {
        let http = Http::plain(Duration::from_secs(20), 1 << 20).expect("the client is created");
        let login = Login {
            auth_url: fake.url(),
            username: "kilonova".into(),
            password: "secret".into(),
            user_domain_name: "Default".into(),
            project_name: "service".into(),
            project_domain_name: "Default".into(),
        };
        Arc::new(Session::new(http, login))
    };
    let endpoint = Endpoint {
        service_types: vec!["block-storage".into()],
        interfaces: vec!["public".into()],
        ..Endpoint::default()
    };
    let service = Service::new(session(), endpoint, Retries::default()).vouched_by(session());
    let client = Cinder::new(service, None).pausing(Duration::from_millis(1));
    let options = VolumeOptions {
        cross_az_attach,
        allocate_interval: Duration::from_millis(5),
        allocate_retries: 3,
        pause: Duration::from_millis(5),
        attempts: 3,
        ..VolumeOptions::default()
    };
    Volumes::new(client, options)
}

/// The client of a fake Glance, with pauses that a test can wait for.
fn cloud_glance(fake: &FakeGlance) -> CloudGlance {
    let http = Http::plain(Duration::from_secs(20), 1 << 20).expect("the client is created");
    let login = Login {
        auth_url: fake.url().to_owned(),
        username: "kilonova".into(),
        password: "secret".into(),
        user_domain_name: "Default".into(),
        project_name: "service".into(),
        project_domain_name: "Default".into(),
    };
    let endpoint = Endpoint {
        service_types: vec!["image".into()],
        interfaces: vec!["public".into()],
        ..Endpoint::default()
    };
    let session = Arc::new(Session::new(http, login));
    let service = Service::new(session, endpoint, Retries::default());
    let options = GlanceOptions { pause: Duration::from_millis(1), ..GlanceOptions::default() };
    let client = Glance::new(vec![service], options);
    CloudGlance::new(client, CloudGlanceOptions::default()).expect("the threads start")
}

/// A bitstream for the Intel FPGAs of the topologies.
fn intel_bitstream() -> Vec<u8> {
    let text = json!({"afu-image": {
        "interface-uuid": "f3c99413-5081-4aad-5f1f-b0d0e7e5c0c6",
        "accelerator-clusters": [
            {"accelerator-type-uuid": "331db30c-9885-41ea-9081-f88b8f655caa"},
        ],
    }})
    .to_string();
    let length = u32::try_from(text.len()).expect("the length fits into 32 bits").to_le_bytes();
    [&b"XeonFPGA\xb7GBSv001"[..], &length, text.as_bytes()].concat()
}

/// A client of the compute API.
pub fn client(compute: Compute) -> Client {
    let service = kilonova_compute::service_up_to(compute.options.newest_microversion);
    let routes: Router = kilonova_compute::routes(compute);
    Client { router: kilonova_wire::mount(routes, service, "/compute", Arc::new(NoAuth)) }
}

//! The service in process over each store, with two simulated hosts.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use kilonova_compute::db::hosts::{NewHost, register};
use kilonova_compute::{Compute, Link};
use kilonova_ids::{HostId, ImageId, ProviderId};
use kilonova_image::{ImageRecord, Status, Visibility};
use kilonova_node::Node;
use kilonova_node::topology::Topology;
use kilonova_placement::World;
use kilonova_store::Store;
use kilonova_testkit::Guard;
use kilonova_wire::noauth::NoAuth;
use kilonova_wire::time::now_micros;
use tokio::sync::watch;

const HOSTS: &str = r#"
[[host]]
name = "h1"
vcpus = 64
memory_mb = 65536
disk_gb = 1000
[[host]]
name = "h2"
vcpus = 64
memory_mb = 65536
disk_gb = 1000
"#;

pub struct Cloud {
    pub store: &'static str,
    pub router: Router,
    pub compute: Compute,
    pub image: ImageId,
    _stop: watch::Sender<bool>,
    _folder: tempfile::TempDir,
    _guard: Guard,
}

/// One on each store; `hosts` says whether any host is there.
pub async fn clouds(hosts: bool) -> Vec<Cloud> {
    let migrations = [
        kilonova_image::MIGRATIONS,
        kilonova_placement::MIGRATIONS,
        kilonova_accelerator::MIGRATIONS,
        kilonova_flow::MIGRATIONS,
        kilonova_compute::MIGRATIONS[0],
        kilonova_compute::MIGRATIONS[1],
    ];
    let mut clouds = Vec::new();
    for (name, store, guard) in kilonova_testkit::stores(&migrations).await {
        let image = image(&store).await;
        let compute = Compute::open(store, World::new()).await.expect("opens");
        let folder = tempfile::tempdir().expect("a folder");
        let stop = nodes(&compute, folder.path(), hosts).await;
        let routes = kilonova_compute::routes(compute.clone());
        let service = kilonova_compute::service();
        let router = kilonova_wire::mount(routes, service, "", Arc::new(NoAuth));
        clouds.push(Cloud {
            store: name,
            router,
            compute,
            image,
            _stop: stop,
            _folder: folder,
            _guard: guard,
        });
    }
    clouds
}

async fn image(store: &Store) -> ImageId {
    let id = ImageId::new_v4();
    let mut image = ImageRecord::new(id, "admin".into(), now_micros());
    image.name = Some("cirros".into());
    image.status = Status::Active;
    image.visibility = Visibility::Public;
    store.write(move |tx| kilonova_image::reserve(tx, &image)).await.expect("an image");
    id
}

async fn nodes(compute: &Compute, folder: &Path, hosts: bool) -> watch::Sender<bool> {
    let (stop, _) = watch::channel(false);
    let topology = Topology::parse(HOSTS, Path::new("test.toml")).expect("a topology");
    for host in topology.hosts.iter().filter(|_| hosts) {
        let node = Node::simulated(host, folder).expect("a node");
        tokio::spawn(node.run(Arc::new(Link(compute.clone())), stop.subscribe()));
        while compute.fleet.by_name(&host.name).is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    stop
}

impl Cloud {
    /// A host that registered and was never heard of again.
    pub async fn spare_host(&self, name: &str) {
        let host = NewHost {
            id: HostId::new_v4(),
            host: name.to_owned(),
            root_provider: ProviderId::new_v4(),
            hypervisor_type: "QEMU".into(),
            hypervisor_version: 10_000_000,
            host_ip: "127.0.0.1".into(),
            vcpus: 4,
            memory_mb: 4096,
            disk_gb: 10,
        };
        let registered = self.compute.store.write(move |tx| register(tx, &host, 1)).await;
        registered.expect("registers");
    }
}

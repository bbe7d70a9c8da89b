//! The service in process over each store, with two simulated hosts.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use jiff::{SignedDuration, Timestamp};
use kilonova_compute_app::{Compute, Options};
use kilonova_compute_db::hosts::{NewHost, register};
use kilonova_compute_nodes::Link;
use kilonova_ids::{HostId, HostName, ImageId, ProviderId};
use kilonova_image::{ImageRecord, Images, Status, Visibility};
use kilonova_node::Node;
use kilonova_node::topology::Topology;
use kilonova_placement::World;
use kilonova_store::{Store, params};
use kilonova_testkit::Guard;
use kilonova_wire::noauth::NoAuth;
use kilonova_wire::time;
use tokio::sync::watch;

/// One host per name.
fn topology(names: &[&str]) -> Topology {
    let entry = |name: &&str| {
        format!("[[host]]\nname = \"{name}\"\nvcpus = 64\nmemory_mb = 65536\ndisk_gb = 1000\n")
    };
    let text: String = names.iter().map(entry).collect();
    Topology::parse(&text, Path::new("test.toml")).expect("the topology is valid")
}

pub struct Cloud {
    pub store: &'static str,
    pub router: Router,
    /// The same service with soft deletion.
    pub keeping: Router,
    pub compute: Compute,
    pub image: ImageId,
    _stop: watch::Sender<bool>,
    _folder: tempfile::TempDir,
    _guard: Guard,
}

/// One cloud on each store, with or without hosts.
pub async fn clouds(hosts: bool) -> Vec<Cloud> {
    clouds_of(if hosts { &["h1", "h2"] } else { &[] }).await
}

/// One cloud on each store, with hosts of these names.
pub async fn clouds_of(hosts: &[&str]) -> Vec<Cloud> {
    let migrations = [
        kilonova_image::MIGRATIONS,
        kilonova_network::MIGRATIONS,
        kilonova_placement::MIGRATIONS,
        kilonova_accelerator::MIGRATIONS,
        kilonova_flow::MIGRATIONS,
        kilonova_compute_db::MIGRATIONS[0],
        kilonova_compute_db::MIGRATIONS[1],
    ];
    let mut clouds = Vec::new();
    for (name, store, guard) in kilonova_testkit::stores(&migrations).await {
        let image = image(&store).await;
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let images = folder.path().join("images");
        let images = Images::open(store.clone(), &images).await.expect("the image service opens");
        let compute = Compute::open(store, World::new()).await.expect("the compute service opens");
        let stays =
            Options { shelved_offload_time: SignedDuration::from_secs(-1), ..Options::default() };
        let compute = compute.with_images(images).with_options(stays);
        let stop = nodes(&compute, folder.path(), hosts).await;
        let router = mounted(compute.clone());
        let keeping = Options {
            reclaim_instance_interval: SignedDuration::from_secs(3600),
            ..Options::default()
        };
        let keeping = mounted(compute.clone().with_options(keeping));
        clouds.push(Cloud {
            store: name,
            router,
            keeping,
            compute,
            image,
            _stop: stop,
            _folder: folder,
            _guard: guard,
        });
    }
    clouds
}

fn mounted(compute: Compute) -> Router {
    let (routes, service) = (kilonova_compute::routes(compute), kilonova_compute::service());
    kilonova_wire::mount(routes, service, "", Arc::new(NoAuth))
}

async fn image(store: &Store) -> ImageId {
    let id = ImageId::new_v4();
    let mut image = ImageRecord::new(id, "admin".into(), time::now());
    image.name = Some("cirros".into());
    image.status = Status::Active;
    image.visibility = Visibility::Public;
    store.write(move |tx| kilonova_image::reserve(tx, &image)).await.expect("the image is created");
    id
}

async fn nodes(compute: &Compute, folder: &Path, hosts: &[&str]) -> watch::Sender<bool> {
    let (stop, _) = watch::channel(false);
    if hosts.is_empty() {
        return stop;
    }
    for host in &topology(hosts).hosts {
        let node = Node::simulated(host, folder).expect("the node starts");
        tokio::spawn(node.run(Arc::new(Link(compute.clone())), stop.subscribe()));
        while compute.fleet.by_name(&host.name).is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    stop
}

impl Cloud {
    /// Waits until every host has removed the servers that have left it.
    pub async fn hosts_have_dropped(&self) {
        const SQL: &str = "SELECT server_id FROM documents WHERE body = '{\"state\":\"absent\"}'";
        for _ in 0..4000 {
            let left = self.compute.store.read(|tx| tx.rows(SQL, params![]));
            if left.await.expect("the query succeeds").is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("hosts did not remove servers in time");
    }

    /// Registers a host that never reports again.
    pub async fn spare_host(&self, name: &str) {
        let host = NewHost {
            id: HostId::new_v4(),
            host: HostName::verbatim(name),
            root_provider: ProviderId::new_v4(),
            hypervisor_type: "QEMU".into(),
            hypervisor_version: 10_000_000,
            host_ip: "127.0.0.1".into(),
            vcpus: 4,
            memory_mb: 4096,
            disk_gb: 10,
            agent_version: None,
            attempt: None,
        };
        let registered =
            self.compute.store.write(move |tx| register(tx, &host, Timestamp::UNIX_EPOCH)).await;
        registered.expect("the host registers");
    }
}

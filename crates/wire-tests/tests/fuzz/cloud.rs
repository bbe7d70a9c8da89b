//! Every service of the program over each store, with two simulated hosts, in this process.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use kilonova_compute_app::Compute;
use kilonova_compute_app::bitstreams::ImageBitstreams;
use kilonova_compute_app::managed_consumers::Servers;
use kilonova_compute_nodes::Link;
use kilonova_identity::Identity;
use kilonova_ids::ImageId;
use kilonova_image::{ImageRecord, Images, Status, Visibility};
use kilonova_node::Node;
use kilonova_node::topology::Topology;
use kilonova_placement::{Placement, World};
use kilonova_store::Store;
use kilonova_testkit::Guard;
use kilonova_wire::noauth::NoAuth;
use kilonova_wire::time;
use tokio::sync::watch;
use tokio::task::JoinHandle;

const HOSTS: &str = r#"
[card.m10]
vendor = "10de"
product = "13bd"
driver = "nvidia"
exclusive_types = true
types = [{ id = "nvidia-35", name = "GRID M10-0B", available_instances = 4 }]
[[host]]
name = "h1"
vcpus = 64
memory_mb = 65536
disk_gb = 1000
card = [{ card = "m10", addresses = ["0000:84:00.0", "0000:85:00.0"] }]
devices = { enabled_mdev_types = ["nvidia-35"] }
[[host]]
name = "h2"
vcpus = 64
memory_mb = 65536
disk_gb = 1000
fake = [{}]
"#;

pub struct Cloud {
    pub store: &'static str,
    pub routers: BTreeMap<&'static str, Router>,
    pub compute: Compute,
    pub identity: Identity,
    pub image: ImageId,
    /// The tasks of the simulated hosts.
    pub nodes: Vec<JoinHandle<()>>,
    _stop: watch::Sender<bool>,
    _folder: tempfile::TempDir,
    _guard: Guard,
}

pub async fn clouds() -> Vec<Cloud> {
    let migrations = [
        kilonova_identity::MIGRATIONS,
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
        clouds.push(open(name, store, guard).await);
    }
    clouds
}

async fn open(name: &'static str, store: Store, guard: Guard) -> Cloud {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let image = ImageId::new_v4();
    let mut record = ImageRecord::new(image, "admin".into(), time::now());
    record.name = Some("cirros".into());
    record.status = Status::Active;
    record.visibility = Visibility::Public;
    record.protected = true;
    let reserved = store.write(move |tx| kilonova_image::reserve(tx, &record)).await;
    reserved.expect("the image is created");
    let world = World::new();
    world.load(&store).await.expect("the providers are loaded");
    let images = Images::open(store.clone(), &folder.path().join("images"))
        .await
        .expect("the image service opens");
    let compute =
        Compute::open(store.clone(), world.clone()).await.expect("the compute service opens");
    let compute = compute.with_images(images.clone());
    let lease = kilonova_flow::Lease::new("loops", "test", Duration::from_secs(86_400));
    assert!(lease.renew(&store).await.expect("the lease is taken"), "no other process holds it");
    kilonova_compute_app::reconcile::start(&compute, &lease);
    let cheap = argon2::Params::new(8, 1, 1, None).expect("the parameters are valid");
    let options = kilonova_identity::IdentityOptions { hash_cost: cheap, ..Default::default() };
    let keys = kilonova_identity::TokenKeys::in_memory().expect("the keys are generated");
    let identity =
        Identity::open(store.clone(), keys, options).await.expect("the identity service opens");
    identity.bootstrap("secret").await.expect("the administrator is created");
    let accelerator = kilonova_accelerator::State::new(store.clone(), world.clone())
        .with_nodes(Arc::new(compute.clone()))
        .with_bitstreams(Arc::new(ImageBitstreams));
    let policy =
        kilonova_placement::policy(&[], Default::default()).expect("the default policy is valid");
    let networks = kilonova_network::Networks::new(store.clone());
    let manager = Some(Arc::new(Servers::new(Some(compute.clone()))) as _);
    let placement = Placement { store, world, policy: Arc::new(policy), manager };
    let auth = || Arc::new(NoAuth);
    let mount = |routes, service| kilonova_wire::mount(routes, service, "", auth());
    let routers = BTreeMap::from([
        ("compute", mount(kilonova_compute::routes(compute.clone()), kilonova_compute::service())),
        ("placement", mount(kilonova_placement::routes(placement), kilonova_placement::service())),
        (
            "accelerator",
            mount(kilonova_accelerator::routes(accelerator), kilonova_accelerator::service()),
        ),
        (
            "identity",
            mount(kilonova_identity::routes(identity.clone()), kilonova_identity::service()),
        ),
        ("image", mount(kilonova_image::routes(images), kilonova_image::service())),
        ("network", mount(kilonova_network::routes(networks), kilonova_network::service())),
    ]);
    let (stop, _) = watch::channel(false);
    let topology = Topology::parse(HOSTS, Path::new("test.toml")).expect("the topology is valid");
    let mut nodes = Vec::new();
    for host in &topology.hosts {
        let node = Node::simulated(host, folder.path()).expect("the node starts");
        let run = node.run(Arc::new(Link(compute.clone())), stop.subscribe());
        nodes.push(tokio::spawn(async move { drop(run.await) }));
        while compute.fleet.by_name(&host.name).is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    Cloud {
        store: name,
        routers,
        compute,
        identity,
        image,
        nodes,
        _stop: stop,
        _folder: folder,
        _guard: guard,
    }
}

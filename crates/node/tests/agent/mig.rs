//! A driver of GPU instances that does not always answer.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use kilonova_devices::{Error, MigCard, MigDriver};
use kilonova_ids::ServerId;
use kilonova_node::Node;
use kilonova_node::topology::Topology;
use kilonova_node_api::{GpuInstance, Outcome};

use crate::agent::control::Control;
use crate::agent::host::{Running, guest, present};

const HOST: &str = r#"
[card.a100]
vendor = "10de"
product = "20b0"
class = "030200"
driver = "nvidia"
vfio_types = true
mig = "a100-40gb"
types = [{ id = "nvidia-35", name = "NVIDIA A100-1-5C", available_instances = 7, mig_profile = "1g.5gb" }]
[[host]]
name = "gpu1"
vcpus = 16
memory_mb = 65536
disk_gb = 500
card = [{ card = "a100", addresses = ["0000:41:00.0"], vfs = 8 }]
devices = { enabled_mdev_types = ["nvidia-35"], mdev_retyping = true, mig_instances = true }
"#;

/// Shows the cards once, at the second attempt.
struct Moody {
    attempts: AtomicU32,
    inner: Arc<dyn MigDriver>,
}

impl MigDriver for Moody {
    fn cards(&self) -> Result<Vec<MigCard>, Error> {
        match self.attempts.fetch_add(1, Ordering::Relaxed) {
            1 => self.inner.cards(),
            _ => Err(Error::Mig("the driver is busy".into())),
        }
    }
    fn create(&self, instance: &GpuInstance) -> Result<(), Error> {
        self.inner.create(instance)
    }
    fn destroy(&self, instance: &GpuInstance) -> Result<(), Error> {
        self.inner.destroy(instance)
    }
}

#[tokio::test]
async fn a_card_is_never_offered_without_its_geometry() {
    let topology = Topology::parse(HOST, Path::new("test.toml")).expect("the topology is valid");
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let node = Node::simulated(&topology.hosts[0], folder.path()).expect("the agent starts");
    let mut parts = node.parts().clone();
    parts.mig = Arc::new(Moody { attempts: AtomicU32::new(0), inner: parts.mig });
    let control = Control::new();
    let node = Running::start(Node::new(parts).expect("the agent starts"), &control);
    let server = ServerId::new_v4();
    let started = control.want(server, present(&guest("plain", Vec::new())));
    control.expect(started, Outcome::Running).await;
    node.stop().await;
    // Nor is a card lost that cannot be read later.
    let registrations = control.registrations();
    assert_eq!(registrations.len(), 1);
    let devices = &registrations[0].devices;
    assert!(devices.len() == 1 && devices[0].mig.is_some(), "{devices:?}");
}

//! Device faults on a simulated host, from the kernel's files to the registration.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kilonova_node::Node;
use kilonova_node::topology::Topology;
use kilonova_node_api::{Device, Registration};
use tokio::sync::watch;

use crate::agent::control::Control;

const FILE: &str = r#"
[card.m10]
vendor = "10de"
product = "13bd"
driver = "nvidia"
types = [{ id = "nvidia-35", name = "GRID M10-0B", available_instances = 16 }]
[card.disk]
vendor = "1bb1"
product = "0100"
class = "010802"
driver = "vfio-pci"
[[host]]
name = "h"
machine_id = "4f0c"
vcpus = 1
memory_mb = 1024
disk_gb = 1
devices = { enabled_mdev_types = ["nvidia-35"], xid_policy = "31:report" }
pci = { device_spec = ['{"vendor_id": "1bb1", "managed": "no", "resource_class": "DISK"}'] }
card = [
    { card = "m10", addresses = ["0000:84:00.0", "0000:85:00.0", "0000:86:00.0"] },
    { card = "disk", addresses = ["0000:90:00.0"] },
]
"#;

struct Host {
    folder: tempfile::TempDir,
    control: Arc<Control>,
    _stop: watch::Sender<bool>,
}

fn start(folder: &Path) -> (Arc<Control>, watch::Sender<bool>) {
    let topology = Topology::parse(FILE, Path::new("t.toml")).expect("the topology is valid");
    let node = Node::simulated(&topology.hosts[0], folder).expect("the agent starts");
    let control = Control::new();
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(node.run(control.clone(), stopped));
    (control, stop)
}

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let (control, _stop) = start(folder.path());
        Self { folder, control, _stop }
    }

    fn restart(self) -> Self {
        let (control, _stop) = start(self.folder.path());
        Self { control, _stop, ..self }
    }

    fn file(&self, path: &str) -> PathBuf {
        let path = self.folder.path().join("h").join(path);
        std::fs::create_dir_all(path.parent().expect("the path has a parent"))
            .expect("the directory is created");
        path
    }

    fn log(&self, bytes: &[u8]) {
        let mut file = std::fs::OpenOptions::new();
        let mut file =
            file.create(true).append(true).open(self.file("kmsg")).expect("the file opens");
        file.write_all(bytes).expect("the file is written");
    }

    /// Waits until the device is registered with this health, and returns it.
    async fn until(&self, address: &str, state: &str) -> Device {
        let found = |registration: &Registration| {
            let mut devices = registration.devices.iter();
            devices.find(|one| one.address == address && one.health.as_str() == state).cloned()
        };
        self.control.until(state, |state| state.registrations.last().and_then(found)).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kernel_log_event_is_reported_at_once_until_a_reboot() {
    let host = Host::new();
    host.until("0000:84:00.0", "healthy").await;
    assert_eq!(host.control.registrations()[0].machine_id, "4f0c");
    host.log(b"\xff\xfe\nNVRM: Xid (PCI:0000:84:00): 79, GPU has fallen off the bus.\n");
    let failed = host.until("0000:84:00.0", "failed").await;
    assert!(failed.health.reason().is_some_and(|why| why.starts_with("Xid 79")), "{failed:?}");
    assert_eq!(failed.deployables.len(), 1, "the failed device keeps its deployables");
    host.until("0000:85:00.0", "healthy").await;
    host.log(b"NVRM: Xid (PCI:0000:85:00): 31, by the operator's policy\n");
    host.until("0000:85:00.0", "degraded").await;

    let host = host.restart();
    assert_eq!(host.until("0000:84:00.0", "failed").await.health, failed.health, "the same event");
    std::fs::write(host.file("boot_id"), "another").expect("the file is written");
    let host = host.restart();
    host.until("0000:84:00.0", "healthy").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_in_sysfs_are_reported_until_they_are_fixed() {
    let host = Host::new();
    host.until("0000:90:00.0", "healthy").await;
    for (path, content) in [
        ("sysfs/0000:84:00.0/config", &[0xff; 64][..]),
        ("sysfs/0000:85:00.0/max_link_width", b"16\n"),
        ("sysfs/0000:85:00.0/current_link_width", b"0\n"),
        ("sysfs/0000:86:00.0/aer_dev_fatal", b"DLP 1\nTOTAL_ERR_FATAL 1\n"),
        ("sysfs/0000:90:00.0/driver", b"nvme\n"),
    ] {
        std::fs::write(host.file(path), content).expect("the file is written");
    }
    let host = host.restart();
    for (address, part) in [
        ("0000:84:00.0", "fallen off the bus"),
        ("0000:85:00.0", "link is down"),
        ("0000:86:00.0", "1 fatal PCIe errors"),
        ("0000:90:00.0", "it has nvme"),
    ] {
        let failed = host.until(address, "failed").await;
        assert!(failed.health.reason().is_some_and(|why| why.contains(part)), "{failed:?}");
        assert!(!failed.deployables.is_empty(), "{failed:?}");
    }
    std::fs::remove_dir_all(host.folder.path().join("h/sysfs")).expect("the directory is removed");
    host.log(b"NVRM: Xid (PCI:0000:85:00): 63, to trigger a scan\n");
    for (address, state) in [
        ("0000:84:00.0", "healthy"),
        ("0000:85:00.0", "degraded"),
        ("0000:86:00.0", "failed"),
        ("0000:90:00.0", "healthy"),
    ] {
        host.until(address, state).await;
    }
}

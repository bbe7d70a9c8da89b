//! The hosts of upstream's vGPU tests: two GPUs, with their mdev types.

use std::path::Path;

use kilonova_node::topology::Topology;
use serde_json::json;

use super::inspect::{assert_holds, devices, used, used_on};
use crate::kit::{Cloud, RunningCloud};
use crate::servers::resize::admin;

pub const FIRST: &str = "0000:81:00.0";
pub const SECOND: &str = "0000:81:01.0";

/// The cards: `one` offers nvidia-11, `scarce` a single nvidia-11, `both` nvidia-11 or nvidia-12,
/// `generic` a type that is not a vGPU, or nvidia-12.
const CARDS: &str = r#"
[card.one]
vendor = "10de"
product = "13bd"
driver = "nvidia"
exclusive_types = true
types = [{ id = "nvidia-11", name = "GRID M60-0B", available_instances = 16 }]

[card.scarce]
vendor = "10de"
product = "13bd"
driver = "nvidia"
exclusive_types = true
types = [{ id = "nvidia-11", name = "GRID M60-0B", available_instances = 1 }]

[card.both]
vendor = "10de"
product = "13bd"
driver = "nvidia"
exclusive_types = true
types = [
    { id = "nvidia-11", name = "GRID M60-0B", available_instances = 16 },
    { id = "nvidia-12", name = "GRID M60-0Q", available_instances = 8 },
]

[card.generic]
vendor = "15b3"
product = "a2d6"
class = "020000"
driver = "mlx5_core"
exclusive_types = true
types = [
    { id = "mlx5_core", name = "mlx5_core", available_instances = 16 },
    { id = "nvidia-12", name = "GRID M60-0Q", available_instances = 8 },
]
"#;

/// Only nvidia-11, on every GPU.
pub const NVIDIA_11: &str = r#"devices = { enabled_mdev_types = ["nvidia-11"] }"#;
/// Only nvidia-12, on every GPU.
pub const NVIDIA_12: &str = r#"devices = { enabled_mdev_types = ["nvidia-12"] }"#;
/// The first GPU for nvidia-11, the second for nvidia-12.
pub const ONE_EACH: &str = r#"
devices = { enabled_mdev_types = ["nvidia-11", "nvidia-12"] }
mdev.nvidia-11 = { device_addresses = ["0000:81:00.0"] }
mdev.nvidia-12 = { device_addresses = ["0000:81:01.0"] }
"#;
/// The same, with at most two instances of the first type.
pub const TWO_AT_MOST: &str = r#"
devices = { enabled_mdev_types = ["nvidia-11", "nvidia-12"] }
mdev.nvidia-11 = { device_addresses = ["0000:81:00.0"], max_instances = 2 }
mdev.nvidia-12 = { device_addresses = ["0000:81:01.0"] }
"#;
/// The first device for units of another class, the second for vGPUs.
pub const NOT_VGPU: &str = r#"
devices = { enabled_mdev_types = ["mlx5_core", "nvidia-12"] }
mdev.mlx5_core = { device_addresses = ["0000:81:00.0"], mdev_class = "CUSTOM_NOTVGPU" }
mdev.nvidia-12 = { device_addresses = ["0000:81:01.0"] }
"#;

/// Hosts by name, each with its two cards and additional lines of configuration.
pub fn hosts(entries: &[(&str, &str, &str)]) -> Topology {
    hosts_at(&[FIRST, SECOND], entries)
}

/// [`hosts`], with cards at these addresses.
pub fn hosts_at(addresses: &[&str], entries: &[(&str, &str, &str)]) -> Topology {
    let mut text = CARDS.to_owned();
    for (name, card, lines) in entries {
        text.push_str(&format!(
            "[[host]]\nname = \"{name}\"\nvcpus = 64\nmemory_mb = 65536\ndisk_gb = 1000\n\
             card = [{{ card = \"{card}\", addresses = {addresses:?} }}]\n{lines}\n"
        ));
    }
    Topology::parse(&text, Path::new("test.toml")).expect("the topology is valid")
}

/// Name of the provider of a GPU.
pub fn gpu(host: &str, address: &str) -> String {
    format!("{host}_pci_{}", address.replace([':', '.'], "_"))
}

/// Ends a host's agent and starts it with another configuration.
pub async fn restart_with(cloud: &mut Cloud, running: &mut RunningCloud, topology: Topology) {
    for host in topology.hosts {
        let name = host.name.clone();
        running.nodes.kill(&name).await;
        let known = cloud.topology.hosts.iter_mut().find(|known| known.name == name);
        *known.expect("the host is known") = host;
        running.start_node(cloud, &name).await;
    }
}

/// A flavor with these extra specs and this memory.
pub async fn flavor(running: &RunningCloud, id: &str, ram: i64, specs: serde_json::Value) {
    running.flavor(id, json!({"ram": ram})).await;
    let path = format!("POST /flavors/{id}/os-extra_specs");
    running.admin("2.61", &path, json!({"extra_specs": specs})).await.expect(200);
}

/// Checks the units in use of a class on a host, and the number of its mediated devices.
pub async fn assert_mdev_usage(
    cloud: &Cloud,
    running: &RunningCloud,
    host: &str,
    class: &str,
    expected: usize,
) {
    assert_eq!(used_on(running, host, class).await, expected as i64, "{host}");
    assert_eq!(cloud.files(host, "mdevs").len(), expected, "{host}");
}

/// Checks that the guest has one mediated device, on that GPU, and that the GPU's provider shows it.
pub async fn assert_device_on(
    cloud: &Cloud,
    running: &RunningCloud,
    id: &str,
    host: &str,
    address: &str,
    class: &str,
) {
    let seen = devices(cloud, host, id);
    assert_eq!(seen.iter().map(|one| one.parent.as_str()).collect::<Vec<_>>(), [address]);
    assert_eq!(used(running, &gpu(host, address), class).await, 1);
}

/// Resizes a server from `host1` to `host2`, reverts, resizes again and confirms. Both hosts hold a
/// device until the resize ends.
pub async fn resize_and_revert_then_confirm(
    cloud: &Cloud,
    running: &RunningCloud,
    id: &str,
    flavor: &str,
    class: &str,
) {
    let assert_usage = async |first: usize, second: usize| {
        assert_mdev_usage(cloud, running, "host1", class, first).await;
        assert_mdev_usage(cloud, running, "host2", class, second).await;
    };
    assert_usage(1, 0).await;
    let before = devices(cloud, "host1", id);
    for (end, code) in [("revertResize", 202), ("confirmResize", 204)] {
        let resize = json!({"resize": {"flavorRef": flavor}});
        admin(running, "2.90", id, resize).await.expect(202);
        running.wait_for_status(id, "VERIFY_RESIZE").await;
        assert_usage(1, 1).await;
        admin(running, "2.90", id, json!({end: null})).await.expect(code);
        running.wait_for_status(id, "ACTIVE").await;
        running.wait_for_host_cleanup(cloud).await;
        if end == "revertResize" {
            assert_usage(1, 0).await;
            assert_eq!(devices(cloud, "host1", id), before);
        } else {
            assert_usage(0, 1).await;
        }
        assert_holds(cloud, running, id, &[(class, 1)]).await;
        cloud.assert_consistent(running, end).await;
    }
    cloud.teardown(running, "resized").await;
}

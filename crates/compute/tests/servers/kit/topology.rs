//! Topologies of a few small hosts, as text.

use std::path::Path;

use kilonova_compute_app::aliases::{Alias, Aliases};
use kilonova_node::devices::PciAlias;
use kilonova_node::topology::{HostTemplate, Topology};

/// A host with two GPUs of four vGPUs each.
pub const GPU: &str = r#"
card = [{ card = "m10", addresses = ["0000:84:00.0", "0000:85:00.0"] }]
devices = { enabled_mdev_types = ["nvidia-35"] }
"#;
/// vGPUs on such a host.
pub const GPUS: i64 = 8;
/// A host with four vGPUs that are virtual functions with a VFIO vGPU type.
pub const VFIO_VGPU: &str = r#"
card = [{ card = "a40", addresses = ["0000:25:00.0"], vfs = 4 }]
devices = { enabled_mdev_types = ["nvidia-558"] }
"#;
/// A host with a GPU of four small vGPUs or two large ones, depending on its guests.
pub const RETYPED: &str = r#"
card = [{ card = "m60", addresses = ["0000:84:00.0"] }]
devices = { enabled_mdev_types = ["nvidia-35", "nvidia-36"], mdev_retyping = true }
mdev.nvidia-35 = {}
mdev.nvidia-36 = {}
"#;
/// The same with virtual functions that have a VFIO vGPU type.
pub const RETYPED_VFIO: &str = r#"
card = [{ card = "a40s", addresses = ["0000:25:00.0"], vfs = 4 }]
devices = { enabled_mdev_types = ["nvidia-35", "nvidia-36"], mdev_retyping = true }
mdev.nvidia-35 = { device_addresses = ["0000:25:00.0"] }
mdev.nvidia-36 = { device_addresses = ["0000:25:00.0"] }
"#;
/// A host with a GPU in MIG mode, on which the agent creates GPU instances.
pub const MIG: &str = r#"
card = [{ card = "a100", addresses = ["0000:41:00.0"], vfs = 8 }]
devices = { enabled_mdev_types = ["nvidia-35", "nvidia-36"], mdev_retyping = true, mig_instances = true }
mdev.nvidia-35 = {}
mdev.nvidia-36 = {}
"#;
/// A host with two such GPUs, whose types have classes of their own.
pub const MIG_CLASSES: &str = r#"
card = [{ card = "a100", addresses = ["0000:41:00.0", "0000:c1:00.0"], vfs = 8 }]
devices = { enabled_mdev_types = ["nvidia-35", "nvidia-36"], mdev_retyping = true, mig_instances = true }
mdev.nvidia-35 = { mdev_class = "CUSTOM_MIG_1G_5GB" }
mdev.nvidia-36 = { mdev_class = "CUSTOM_MIG_3G_20GB" }
"#;
/// A host with sixteen FPGAs.
pub const FPGA: &str = "fake = [{}]";

/// A host with an Intel FPGA.
pub const INTEL: &str = r#"
card = [{ card = "n3000", addresses = ["0000:5e:00.0"] }]
agent = { enabled_drivers = ["intel_fpga_driver"] }
"#;
/// A host with a disk, which its agent cleans after each guest.
pub const DISK: &str = r#"
card = [{ card = "nvme", addresses = ["0000:01:00.0"] }]
pci.device_spec = ['{"vendor_id": "144d", "product_id": "a808", "resource_class": "NVME"}']
"#;
/// A host with a one-time-use card, which an operator cleans.
pub const ONCE: &str = r#"
card = [{ card = "c62x", addresses = ["0000:3d:00.0"] }]
pci.device_spec = ['{"vendor_id": "8086", "product_id": "37c8", "resource_class": "ONCE", "one_time_use": true}']
"#;

/// A host of two cells, each with two shared and six dedicated CPUs, two threads a core, and 2 GiB of large
/// pages. The other CPUs are in a third cell with little memory.
pub const TWO_CELLS: &str = "numa = [\
    { shared = \"0-1\", dedicated = \"2-7\", threads = 2, socket = 0, memory_mb = 32736, pages = { 2048 = 1024 } }, \
    { shared = \"8-9\", dedicated = \"10-15\", threads = 2, socket = 1, memory_mb = 32736, pages = { 2048 = 1024 } }, \
    { shared = \"16-63\", memory_mb = 64 }]";

/// A host with network cards of one virtual function each, which are passed through as a whole
/// (`X710`) or by function (`X710_VF`).
pub fn network_cards(count: u32) -> String {
    let addresses: Vec<String> =
        (0..count).map(|n| format!("\"0000:{:02x}:00.0\"", 0x40 + n)).collect();
    let spec = |product: &str, class: &str| {
        format!(
            r#"'{{"vendor_id": "8086", "product_id": "{product}", "resource_class": "{class}"}}'"#
        )
    };
    format!(
        "card = [{{ card = \"x710\", addresses = [{}], vfs = 1 }}]\npci.device_spec = [{}, {}]",
        addresses.join(", "),
        spec("158b", "X710"),
        spec("154c", "X710_VF")
    )
}

const CARD: &str = r#"
[card.m10]
vendor = "10de"
product = "13bd"
driver = "nvidia"
exclusive_types = true
types = [{ id = "nvidia-35", name = "GRID M10-0B", available_instances = 4 }]

[card.m10x16]
vendor = "10de"
product = "13bd"
driver = "nvidia"
exclusive_types = true
types = [{ id = "nvidia-35", name = "GRID M10-0B", available_instances = 16 }]

[card.a40]
vendor = "10de"
product = "2235"
class = "030200"
driver = "nvidia"
exclusive_types = true
vfio_types = true
types = [{ id = "nvidia-558", name = "NVIDIA A40-2Q", available_instances = 4 }]

[card.m60]
vendor = "10de"
product = "13f2"
driver = "nvidia"
exclusive_types = true
types = [
    { id = "nvidia-35", name = "GRID M60-2Q", description = "num_heads=4, max_instance=4", available_instances = 4 },
    { id = "nvidia-36", name = "GRID M60-4Q", description = "num_heads=4, max_instance=2", available_instances = 2 },
]

[card.a40s]
vendor = "10de"
product = "2235"
class = "030200"
driver = "nvidia"
exclusive_types = true
vfio_types = true
types = [
    { id = "nvidia-35", name = "NVIDIA A40-12Q", available_instances = 4 },
    { id = "nvidia-36", name = "NVIDIA A40-24Q", available_instances = 4 },
]

[card.a100]
vendor = "10de"
product = "20b0"
class = "030200"
driver = "nvidia"
vfio_types = true
mig = "a100-40gb"
types = [
    { id = "nvidia-35", name = "NVIDIA A100-1-5C", available_instances = 7, mig_profile = "1g.5gb" },
    { id = "nvidia-36", name = "NVIDIA A100-3-20C", available_instances = 2, mig_profile = "3g.20gb" },
]

[card.x710]
vendor = "8086"
product = "158b"
vf_product = "154c"
class = "020000"
driver = "i40e"

[card.n3000]
vendor = "8086"
product = "0b30"
class = "120000"
driver = "dfl-pci"

[card.n3000.files]
"fpga_region/region0/dfl-fme.0/dfl-fme-region.2/fpga_region/region2/compat_id" = "f3c9941350814aad5f1fb0d0e7e5c0c6"
"fpga_region/region0/dfl-port.0/afu_id" = "d8424dc4a4a3c413f89e433683f9040b"

[card.nvme]
vendor = "144d"
product = "a808"
class = "010802"
driver = "nvme"

[card.h100]
vendor = "10de"
product = "2330"
class = "030200"
driver = "vfio-pci"

[card.c62x]
vendor = "8086"
product = "37c8"
class = "0b4000"
driver = "c6xx"

[card.twins]
vendor = "1b36"
product = "0010"
vf_product = "0010"
class = "120000"
driver = "twins"

[card.a16]
vendor = "10de"
product = "25b6"
class = "030200"
driver = "nvidia-vfio-pci"
"#;

/// Parses aliases in the format of `[pci] alias`.
pub fn aliases(texts: &[&str]) -> Aliases {
    let each = texts.iter().flat_map(|text| PciAlias::parse(text).expect("the alias is valid"));
    let each = each.map(|one| {
        let PciAlias { name, resource_class, required, forbidden, numa_policy } = one;
        (name, Alias { resource_class, required, forbidden, numa_policy })
    });
    each.collect()
}

/// Hosts by name, each with the lines of its entry.
pub fn hosts(entries: &[(&str, &[&str])]) -> Topology {
    let mut text = CARD.to_owned();
    for (name, lines) in entries {
        text.push_str(&format!(
            "[[host]]\nname = \"{name}\"\nvcpus = 64\nmemory_mb = 65536\ndisk_gb = 1000\n{}\n",
            lines.join("\n")
        ));
    }
    parse(&text)
}

/// A copy of a host on which these steps fail the given number of times, or always.
pub fn failing(template: &HostTemplate, steps: &[(&str, Option<u32>)]) -> HostTemplate {
    let entry = |(step, times): &(&str, Option<u32>)| match times {
        Some(times) => format!("{{ step = \"{step}\", times = {times} }}"),
        None => format!("{{ step = \"{step}\" }}"),
    };
    let entries: Vec<String> = steps.iter().map(entry).collect();
    let text = format!(
        "[[host]]\nname = \"x\"\nvcpus = 1\nmemory_mb = 1024\ndisk_gb = 1\nfail = [{}]\n",
        entries.join(", ")
    );
    let other = &parse(&text).hosts[0].template;
    HostTemplate {
        failures: other.failures.clone(),
        create_mdev_failures: other.create_mdev_failures,
        ..template.clone()
    }
}

fn parse(text: &str) -> Topology {
    Topology::parse(text, Path::new("test.toml")).expect("the topology is valid")
}

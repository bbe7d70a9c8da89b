//! Topologies of a few small hosts, as text.

use std::path::Path;

use kilonova_node::topology::Topology;

/// A host with two GPUs of four vGPUs each.
pub const GPU: &str = r#"
card = [{ card = "m10", addresses = ["0000:84:00.0", "0000:85:00.0"] }]
devices = { enabled_mdev_types = ["nvidia-35"] }
"#;
/// vGPUs on such a host.
pub const GPUS: i64 = 8;
/// A host with sixteen FPGAs.
pub const FPGA: &str = "fake = [{}]";

const CARD: &str = r#"
[card.m10]
vendor = "10de"
product = "13bd"
driver = "nvidia"
exclusive_types = true
types = [{ id = "nvidia-35", name = "GRID M10-0B", available_instances = 4 }]
"#;

/// Hosts by name, with what goes into their entries.
pub fn hosts(entries: &[(&str, &[&str])]) -> Topology {
    let mut text = CARD.to_owned();
    for (name, lines) in entries {
        text.push_str(&format!(
            "[[host]]\nname = \"{name}\"\nvcpus = 64\nmemory_mb = 65536\ndisk_gb = 1000\n{}\n",
            lines.join("\n")
        ));
    }
    Topology::parse(&text, Path::new("test.toml")).expect("a topology")
}

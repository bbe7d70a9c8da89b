//! The domain XML that libvirt gets, written from typed parts.
//!
//! Pure: what the host has is handed in ([`Host`], [`Layout`]). The metadata that [`Definition`] reads
//! back is in every domain; whatever else the XML says follows from it and from the host, so a domain
//! can be written anew at any time.

mod cpu;
mod devices;
mod disks;
mod element;
mod hostdev;
mod interface;
mod leaving;
mod system;

use std::path::PathBuf;

use kilonova_hypervisor::Definition;
use kilonova_node_api::Machine;

pub(crate) use cpu::usable_models;
pub(crate) use devices::Layout;
pub(crate) use disks::{Disk, backup};
pub(crate) use hostdev::{hostdevs, mdev};
pub(crate) use interface::plug;
pub(crate) use leaving::leaving;
pub(crate) use system::kind;

use crate::config::Config;
use crate::life::Mark;
use element::Element;

/// What of a host shows in the XML of its domains.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    /// The options.
    pub config: Config,
    /// `x86_64`.
    pub arch: String,
    /// The program that runs guests, where libvirt is not to choose.
    pub emulator: Option<PathBuf>,
    /// The first of `cpu_models` that the host can be.
    pub cpu_model: Option<String>,
}

/// Where on a host of several NUMA nodes a guest belongs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The processors that are near its devices, as the kernel lists them: `0-7,16-23`.
    pub cpus: Option<String>,
    /// The node with the memory that is near, if it is one.
    pub node: Option<i64>,
}

/// The whole XML of a domain.
pub(crate) fn domain(
    host: &Host,
    definition: &Definition,
    layout: &Layout,
    place: &Place,
    mark: Option<Mark>,
) -> String {
    let machine = machine(definition);
    let kind = system::kind(host, machine);
    let mut metadata = Element::new("metadata").written(definition.to_metadata());
    if let Some(mark) = mark {
        metadata = metadata.written(format!("    {}\n", mark.to_xml()));
    }
    let mut xml = Element::new("domain")
        .with("type", host.config.virt_type.as_str())
        .child(Element::text("uuid", definition.server))
        .child(Element::text("name", &definition.name))
        .child(metadata)
        .child(Element::text("memory", definition.memory_mb).with("unit", "MiB"))
        .child(
            Element::text("vcpu", definition.vcpus)
                .with("placement", "static")
                .with_some("cpuset", place.cpus.as_ref()),
        );
    if let Some(node) = place.node {
        let memory = Element::new("memory").with("mode", "preferred").with("nodeset", node);
        xml.push(Element::new("numatune").child(memory));
    }
    xml.push(system::os(host, machine, kind, layout));
    xml.push(system::features(host, machine));
    xml.push(cpu::cpu(host, definition.vcpus, machine));
    xml.push(system::clock(host, machine));
    xml.push(Element::text("on_poweroff", "destroy"));
    xml.push(Element::text("on_reboot", "restart"));
    xml.push(Element::text("on_crash", "destroy"));
    xml.push(devices::devices(host, definition, machine, kind, layout));
    xml.to_string()
}

/// The machine that is in effect.
fn machine(definition: &Definition) -> &Machine {
    definition.rescue.as_ref().map_or(&definition.machine, |rescue| &rescue.machine)
}

#[cfg(test)]
#[path = "xml_tests.rs"]
pub(crate) mod tests;

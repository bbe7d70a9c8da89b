//! Builds domain XML from typed parts.
//!
//! Pure: the caller passes the host's properties ([`HostProfile`], [`Layout`]). Every domain carries the
//! metadata that [`Definition`] reads back; the rest of the XML follows from the metadata, the
//! host, and what a redefinition keeps of the existing domain ([`Kept`]), so a domain can be
//! redefined at any time.

mod cpu;
mod devices;
mod disks;
mod element;
mod expanders;
mod hostdev;
mod interface;
mod kept;
mod migration;
mod numa;
mod system;
mod volumes;

use std::collections::BTreeSet;
use std::path::PathBuf;

use kilonova_hypervisor::Definition;

pub(crate) use cpu::usable_models;
pub(crate) use devices::{GUEST_AGENT, Layout};
pub(crate) use disks::{Disk, backup};
pub(crate) use hostdev::{mdev, missing_hostdevs};
pub(crate) use interface::plug;
pub(crate) use kept::Kept;
pub(crate) use migration::migration_xml;
pub(crate) use system::{has_secure_boot, machine_types, usual_machine_type};
pub(crate) use volumes::{
    VolumeDisk, missing_controller, name_of, secret, target, volume_disks, volume_of, volume_xml,
};

use crate::config::LibvirtConfig;
use crate::state::Mark;
use element::Element;

/// The properties of a host that affect its domains.
#[derive(Debug, Clone)]
pub(crate) struct HostProfile {
    /// The driver's options.
    pub config: LibvirtConfig,
    /// The architecture: `x86_64`.
    pub arch: String,
    /// The emulator, if libvirt does not choose it.
    pub emulator: Option<PathBuf>,
    /// The first of `cpu_models` that the host supports.
    pub cpu_model: Option<String>,
    /// True if guests can have secure boot.
    pub secure_boot: bool,
    /// The machine types of the emulator when the agent started. Empty if not known.
    pub machine_types: BTreeSet<String>,
}

/// Where a guest is placed on a host with several NUMA nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NumaPlacement {
    /// The CPUs close to its devices, as the kernel lists them: `0-7,16-23`.
    pub cpus: Option<String>,
    /// The memory node, if all devices are on one.
    pub node: Option<i64>,
    /// The distances between the host nodes of a guest's cells: a row for each cell, in the guest's order. Empty if the
    /// host reports no valid ones, and for a guest with fewer than two cells.
    pub distances: Vec<Vec<u32>>,
}

/// The complete XML of a domain. `kept` is empty for a new guest.
pub(crate) fn domain(
    host: &HostProfile,
    definition: &Definition,
    layout: &Layout,
    numa_placement: &NumaPlacement,
    mark: Option<Mark>,
    kept: &Kept,
) -> String {
    let machine = definition.machine();
    let machine_type =
        system::machine_type(host, definition, machine, layout, kept.machine_type.as_deref());
    let mut metadata = Element::new("metadata").raw(definition.to_metadata());
    if let Some(mark) = mark {
        metadata = metadata.raw(format!("    {}\n", mark.to_xml()));
    }
    if let Some(record) = kept.record(host, definition, layout) {
        metadata = metadata.raw(record);
    }
    let mut xml = Element::new("domain")
        .with("type", host.config.virt_type.as_str())
        .child(Element::text("uuid", definition.server))
        .child(Element::text("name", &definition.config.name))
        .child(metadata)
        .child(Element::text("memory", definition.config.memory_mb).with("unit", "MiB"));
    let (vcpus, numa) = (definition.config.vcpus, definition.config.numa.as_deref());
    // The elements of NUMA cells name the host CPUs of each vCPU and the node of each cell.
    let near = if numa.is_none() { numa_placement } else { &NumaPlacement::default() };
    let backing = numa.and_then(numa::memory_backing);
    backing.into_iter().for_each(|backing| xml.push(backing));
    xml.push(
        Element::text("vcpu", vcpus)
            .with("placement", "static")
            .with_some("cpuset", near.cpus.as_ref()),
    );
    if let Some(numa) = numa {
        xml.push(numa::cputune(numa, host.config.realtime_scheduler_priority));
        xml.push(numa::numatune(numa));
    } else if let Some(node) = near.node {
        let memory = Element::new("memory").with("mode", "preferred").with("nodeset", node);
        xml.push(Element::new("numatune").child(memory));
    }
    system::sysinfo(host, definition).into_iter().for_each(|sysinfo| xml.push(sysinfo));
    let root = disks::root(host, definition, machine_type, &layout.disks);
    xml.push(system::os(host, machine, machine_type, layout, &root, kept));
    xml.push(system::features(host, machine, machine_type, kept));
    xml.push(cpu::cpu(host, vcpus, machine, numa, &numa_placement.distances));
    xml.push(system::clock(host, machine));
    xml.push(Element::text("on_poweroff", "destroy"));
    xml.push(Element::text("on_reboot", "restart"));
    xml.push(Element::text("on_crash", "destroy"));
    xml.push(devices::devices(host, definition, machine, machine_type, layout));
    xml.to_string()
}

#[cfg(test)]
#[path = "xml_tests.rs"]
pub(crate) mod tests;

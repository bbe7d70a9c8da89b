//! The kinds of devices, one file each: its functions and their resources.
//!
//! Two tables name each kind once: [`Driver`] and its search, and the PCI classes.

pub(crate) mod allowed;
pub(crate) mod fpga;
pub(crate) mod gpu;
mod kept;
pub(crate) mod mdev;
pub(crate) mod mig;
pub(crate) mod nic;
pub(crate) mod nvme;
pub(crate) mod qat;
pub(crate) mod vgpu;

use std::collections::BTreeMap;

use kilonova_ids::ResourceClass;
use kilonova_node_api::{Deployable, DeviceKind, HandleSlot};

use crate::bus::{Bus, OnBus};
use crate::collector::{Collector, Naming, Offer};
use crate::{Discovery, Fake, PciFunction, ScanContext, Sysfs};

/// Owner trait of devices from Nova's options.
pub(crate) const OWNER_NOVA: &str = "OWNER_NOVA";
/// Owner trait of devices from Cyborg's drivers.
pub(crate) const OWNER_CYBORG: &str = "OWNER_CYBORG";

/// The input of a device kind: the kernel's files, the bus read from them, and further facts that the agent knows.
#[derive(Clone, Copy)]
pub(crate) struct KindInput<'a> {
    pub sysfs: &'a dyn Sysfs,
    pub bus: &'a Bus,
    pub context: ScanContext<'a>,
}

macro_rules! drivers {
    ($($(#[$doc:meta])* $driver:ident = $name:literal, $search:expr;)*) => {
        /// A driver that searches the host for its kind of device.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Driver {
            $($(#[$doc])* $driver,)*
        }

        impl Driver {
            /// All drivers, by upstream's names.
            pub const ALL: &[(&'static str, Self)] = &[$(($name, Self::$driver),)*];

            /// Collects the driver's devices on the host.
            pub(crate) fn search(
                self,
                options: &Discovery,
                host: KindInput<'_>,
                collector: &mut Collector,
            ) {
                let search: fn(&Discovery, KindInput<'_>, &mut Collector) = match self {
                    $(Self::$driver => $search,)*
                };
                search(options, host, collector);
            }
        }
    };
}

drivers! {
    /// A fake device.
    Fake = "fake_driver", |_, _, collector| Fake::upstream().find(collector);
    /// Whole NVIDIA GPUs.
    NvidiaGpu = "nvidia_gpu_driver", |_, host, collector| gpu::find(host, collector);
    /// Intel FPGA cards.
    IntelFpga = "intel_fpga_driver", |_, host, collector| fpga::intel(host, collector);
    /// Xilinx FPGA cards.
    XilinxFpga = "xilinx_fpga_driver", |_, host, collector| fpga::xilinx(host, collector);
    /// Inspur FPGA cards.
    InspurFpga = "inspur_fpga_driver", |_, host, collector| fpga::inspur(host, collector);
    /// QuickAssist.
    IntelQat = "intel_qat_driver", |_, host, collector| qat::find(host, collector);
    /// Intel X710 network cards.
    IntelNic = "intel_nic_driver", |options, host, collector| {
        nic::find(&options.nics, host, collector);
    };
    /// Inspur NVMe disks.
    InspurNvme = "inspur_nvme_ssd_driver", |_, host, collector| nvme::find(host, collector);
}

/// The functions of a PCI class.
struct PciClass {
    /// The first hex digits of their class code.
    code: &'static str,
    kind: DeviceKind,
    /// True for a card that can be offered to guests although it has neither parts nor types.
    is_accelerator: fn(&PciFunction) -> bool,
}

/// The PCI classes of the kinds; functions of all others are [`DeviceKind::Pci`].
const PCI_CLASSES: &[PciClass] = &[
    PciClass { code: "03", kind: DeviceKind::Gpu, is_accelerator: gpu::is_accelerator },
    PciClass { code: "12", kind: DeviceKind::Fpga, is_accelerator: |_| true },
    PciClass { code: "02", kind: DeviceKind::Nic, is_accelerator: |_| false },
    PciClass { code: "0108", kind: DeviceKind::Ssd, is_accelerator: |_| true },
    PciClass { code: "0b40", kind: DeviceKind::Qat, is_accelerator: |_| true },
];

fn pci_class(function: &PciFunction) -> Option<&'static PciClass> {
    PCI_CLASSES.iter().find(|class| function.class.starts_with(class.code))
}

/// The kind of a function by its PCI class.
pub(crate) fn kind_of(function: &PciFunction) -> DeviceKind {
    pci_class(function).map_or(DeviceKind::Pci, |class| class.kind)
}

/// True for a card that can be offered to guests although it has neither parts nor types.
pub(crate) fn is_accelerator(function: &PciFunction) -> bool {
    pci_class(function).is_some_and(|class| (class.is_accelerator)(function))
}

/// The virtual functions of a card, or the card itself if it has none.
pub(crate) fn parts_of<'a>(bus: &'a Bus, card: &'a OnBus) -> Vec<&'a OnBus> {
    let virtuals: Vec<&OnBus> = bus.virtuals(card.place).collect();
    if virtuals.is_empty() { vec![card] } else { virtuals }
}

/// One function as one deployable, named by its address as in Cyborg.
pub(crate) fn whole(
    on_bus: &OnBus,
    kind: DeviceKind,
    resource_class: &str,
    traits: Vec<String>,
    driver: &str,
) -> Offer {
    let address = on_bus.address.clone();
    Offer {
        device: on_bus.card().to_string(),
        kind,
        naming: Naming::Fixed(address.clone()),
        part: Deployable {
            name: String::new(),
            resource_class: ResourceClass::verbatim(resource_class),
            traits: [OWNER_CYBORG.to_owned()].into_iter().chain(traits).collect(),
            driver: driver.to_owned(),
            facts: BTreeMap::new(),
            slots: vec![HandleSlot::Pci { address }],
        },
    }
}

#[cfg(test)]
mod tests;

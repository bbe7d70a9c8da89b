//! A host's inventory and devices, and the devices attached to guests.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kilonova_ids::{HostName, ResourceClass};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Connector, NumaCell, is_default};

/// Trait of a host whose hypervisor live-migrates guests with mediated devices in both directions
/// (libvirt 8.6.0 and QEMU 8.1.0, or newer).
pub const VGPU_LIVE_MIGRATION: &str = "CUSTOM_VGPU_LIVE_MIGRATION";

/// Trait of a host whose hypervisor live-migrates guests with functions that use a vendor's VFIO
/// variant driver (libvirt 10.0.0 and QEMU 8.2.2, or newer).
pub const VARIANT_LIVE_MIGRATION: &str = "CUSTOM_VFIO_VARIANT_LIVE_MIGRATION";

/// An agent's report of its host, sent at start and whenever a device changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Registration {
    /// Host name: hypervisor hostname, service host and the root provider's name.
    pub host: HostName,
    /// Survives a rename of the host (`/etc/machine-id`); empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine_id: String,
    /// Hypervisor type as Nova shows it: `QEMU`, or `simulated`.
    pub hypervisor_type: String,
    /// Version as Nova packs it (major * 1000000 + minor * 1000 + release).
    pub hypervisor_version: i64,
    /// Address of the host.
    pub host_ip: String,
    /// Logical processors.
    pub vcpus: i64,
    /// Memory, MiB.
    pub memory_mb: i64,
    /// Disk for guests, GiB.
    pub disk_gb: i64,
    /// Overcommit ratios: VCPU, MEMORY_MB, DISK_GB.
    pub ratios: [f64; 3],
    /// For each ratio, true if it applies only to a new inventory, so that a ratio that an operator sets through
    /// Placement stays: Nova's `initial_cpu_allocation_ratio` and so on. False from agents of earlier builds.
    #[serde(default, skip_serializing_if = "are_fixed")]
    pub initial_ratios: [bool; 3],
    /// Memory reserved for the host itself, MiB.
    pub reserved_memory_mb: i64,
    /// CPUs reserved for the host itself. 0 from agents of earlier builds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reserved_cpus: i64,
    /// Disk reserved for the host itself, GiB. 0 from agents of earlier builds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reserved_disk_gb: i64,
    /// Traits of the host itself, such as `COMPUTE_NODE`.
    pub traits: Vec<String>,
    /// All devices; a device that is missing here no longer exists.
    pub devices: Vec<Device>,
    /// The version of the agent; `None` from agents of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// Identifies the attempt to register; `None` from agents of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
    /// The host's connector for Cinder; `None` if the host cannot attach volumes, and from agents
    /// of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connector: Option<Box<Connector>>,
    /// The physical networks between which the host can route; `*` means any. `None` if the host
    /// realizes no routers, and from agents of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routes: Option<Vec<String>>,
    /// The NUMA cells, by number; `None` if the kernel reports none, and from agents of earlier
    /// builds. Guests then use all CPUs and have no topology.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cells: Option<Vec<NumaCell>>,
    /// True if the host offers its CPUs and memory as one resource provider for each NUMA cell. False from agents of earlier builds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub numa_in_placement: bool,
}

/// True if no ratio is an initial one.
fn are_fixed(initial: &[bool; 3]) -> bool {
    !initial.contains(&true)
}

/// An attempt to register. A controller that answers late may still carry out an attempt that its
/// agent has repeated elsewhere: the number shows that the attempt is outdated, so that it does not
/// fence its own agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Identifies the running agent.
    pub agent: Uuid,
    /// Increases with each attempt of this agent.
    pub number: i64,
}

/// The controller's answer to a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Larger than that of every earlier registration of this host.
    pub epoch: i64,
    /// True if the host is configured to offer its CPUs and memory by NUMA cell but cannot do so yet, for example
    /// because of its guests. The agent then registers again from time to time. False from controllers of earlier
    /// builds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undivided: bool,
}

words! {
    /// Device type, named as in Cyborg.
    DeviceKind {
        /// A GPU, whole or cut into vGPUs.
        Gpu = "GPU",
        /// An FPGA card.
        Fpga = "FPGA",
        /// A network card.
        Nic = "NIC",
        /// A QuickAssist card.
        Qat = "QAT",
        /// An NVMe disk.
        Ssd = "SSD",
        /// Any other mdev parent, such as the kernel's `mtty`.
        Mdev = "MDEV",
        /// Any other PCI function.
        Pci = "PCI",
    }
}

/// A physical card or function.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Device {
    /// `0000:84:00.0`, or `mtty_mtty` for a virtual parent. Unique on the host.
    pub address: String,
    /// For a virtual function that is a device of its own: its physical function. Using the
    /// physical function excludes its virtual functions, and the other way round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<String>,
    /// True if all vGPUs of its card must have the same type: while one is in use, units of the card's other types are
    /// excluded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_type: bool,
    /// The MIG geometry of a GPU, if each of its vGPUs gets a GPU instance of its own. `None` from agents of earlier
    /// builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<Mig>,
    /// Its type.
    pub kind: DeviceKind,
    /// PCI vendor id, four hex digits.
    pub vendor_id: String,
    /// PCI product id, four hex digits.
    pub product_id: String,
    /// The product name; empty if unknown.
    pub model: String,
    /// NUMA node; -1 if the kernel reports none.
    pub numa_node: i64,
    /// The PCIe switch above it: the address of its upstream port, the outermost one if there are several. `None` if
    /// there is none, and from agents of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<String>,
    /// The cards to which its card is connected by NVLink or xGMI, by address; empty from agents of earlier builds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<String>,
    /// Its health, which determines whether it may be given to guests.
    #[serde(default)]
    pub health: Health,
    /// The parts that are scheduled on their own.
    pub deployables: Vec<Deployable>,
}

impl Device {
    /// The address of its card: of its physical function, or its own.
    pub fn card_address(&self) -> &str {
        self.card.as_deref().unwrap_or(&self.address)
    }
}

/// The geometry of a GPU in MIG mode, as its driver describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mig {
    /// The number of memory slices.
    pub slices: u8,
    /// The profiles of GPU instances that vGPU types need.
    pub profiles: Vec<MigProfile>,
    /// The placements of GPU instances that do not belong to a guest of this cloud.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foreign: Vec<MigPlacement>,
}

/// A profile of GPU instances.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MigProfile {
    /// `3g.20gb`.
    pub name: String,
    /// The vGPU types that need an instance of this profile: `nvidia-476`.
    pub vgpu_types: Vec<String>,
    /// The maximum number of instances on the card.
    pub most: u8,
    /// The possible placements of an instance.
    pub placements: Vec<MigPlacement>,
}

/// A placement on a card: consecutive memory slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MigPlacement {
    /// The first memory slice.
    pub start: u8,
    /// The number of memory slices.
    pub size: u8,
}

/// The health of a device: the agent's judgement of whether it may be given to guests.
///
/// `since` is the time of a past event that may have been handled, such as a line in the kernel
/// log. A condition that holds now, such as a link that is down, has no `since`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Health {
    /// No problem is known.
    #[default]
    Healthy,
    /// It may be given to guests, but an operator should check it.
    Degraded {
        /// The reason, for the operator.
        reason: String,
        /// The time of the event, if it was one; microseconds since 1970 on the wire.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            with = "jiff::fmt::serde::timestamp::microsecond::optional"
        )]
        since: Option<Timestamp>,
    },
    /// It must not be given to guests. A device that the agent could not read has no deployables
    /// here; those of the last report remain valid.
    Failed {
        /// The reason, for the operator.
        reason: String,
        /// The time of the event, if it was one; microseconds since 1970 on the wire.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            with = "jiff::fmt::serde::timestamp::microsecond::optional"
        )]
        since: Option<Timestamp>,
    },
}

impl Health {
    /// `healthy`, `degraded` or `failed`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded { .. } => "degraded",
            Self::Failed { .. } => "failed",
        }
    }

    /// The reason why it is not healthy.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Healthy => None,
            Self::Degraded { reason, .. } | Self::Failed { reason, .. } => Some(reason),
        }
    }

    /// The time of the event that caused the state.
    pub fn since(&self) -> Option<Timestamp> {
        match self {
            Self::Healthy => None,
            Self::Degraded { since, .. } | Self::Failed { since, .. } => *since,
        }
    }
}

/// A part of a device that becomes a resource provider.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Deployable {
    /// Suffix of the provider's name after `<host>_`: `pci_0000_84_00_0` for a parent of mediated
    /// devices, `0000:84:00.0` for PCI functions, or `FakeDevice`.
    pub name: String,
    /// `VGPU`, `FPGA`, `PGPU` or a custom class.
    pub resource_class: ResourceClass,
    /// Traits of the provider that the agent can verify.
    pub traits: Vec<String>,
    /// Driver name as Cyborg shows it: `nvidia`, `fake`, …
    pub driver: String,
    /// Further attributes, such as `physical_network`, `region_id` or `function_id`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
    /// One entry per unit of inventory. On one card, the card's own function excludes its virtual
    /// functions, and the other way round; passing a function through excludes all other uses of
    /// it.
    pub slots: Vec<HandleSlot>,
}

/// One unit of a deployable.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum HandleSlot {
    /// Capacity for `count` mediated devices of a type; the controller chooses each UUID.
    Mdev {
        /// Mdev type, `nvidia-35`.
        mdev_type: String,
        /// Capacity of the parent, including existing devices.
        count: u32,
    },
    /// A PCI function for passthrough.
    Pci {
        /// Its address.
        address: String,
    },
    /// A PCI function that keeps its driver: libvirt must not rebind it.
    Vfio {
        /// Its address.
        address: String,
        /// The vGPU type that the agent sets first (`nvidia-558`); empty if there is none to set.
        vgpu_type: String,
    },
    /// A test handle in the form of a PCI address; it attaches no device.
    TestPci {
        /// Its address.
        address: String,
    },
}

/// A device for a guest, chosen by the controller.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Attachment {
    /// A mediated device; the agent creates it if necessary.
    Mdev {
        /// Its UUID.
        uuid: uuid::Uuid,
        /// Address of the parent device.
        parent: String,
        /// Mdev type.
        mdev_type: String,
    },
    /// A PCI function.
    Pci {
        /// Its address.
        address: String,
    },
    /// A PCI function that keeps its driver.
    Vfio {
        /// Its address.
        address: String,
        /// The vGPU type that the agent sets first; empty if there is none to set.
        vgpu_type: String,
        /// The GPU instance that the agent creates before it sets the type, on a card in MIG mode.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance: Option<GpuInstance>,
    },
    /// A test handle.
    TestPci {
        /// Its address.
        address: String,
    },
}

impl Attachment {
    /// Identifies the device on its host: the UUID of a mediated device, the address of a function.
    pub fn key(&self) -> String {
        match self {
            Self::Mdev { uuid, .. } => uuid.to_string(),
            Self::Pci { address } | Self::Vfio { address, .. } | Self::TestPci { address } => {
                address.clone()
            }
        }
    }

    /// The kind of the device. A device of the same kind can replace it in a running guest.
    pub fn kind(&self) -> (&'static str, &str) {
        match self {
            Self::Mdev { mdev_type, .. } => ("mdev", mdev_type),
            Self::Vfio { vgpu_type, .. } => ("vfio", vgpu_type),
            Self::Pci { .. } => ("pci", ""),
            Self::TestPci { .. } => ("test", ""),
        }
    }
}

/// A GPU instance of a card in MIG mode, for one guest.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GpuInstance {
    /// Address of the card.
    pub card: String,
    /// `3g.20gb`.
    pub profile: String,
    /// Its memory slices.
    #[serde(flatten)]
    pub place: MigPlacement,
}

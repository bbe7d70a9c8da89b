//! What a host is and has, and what a guest is given of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Trait of a host whose hypervisor takes mediated devices along when a running guest goes to another
/// host, and takes them in when one comes (libvirt 8.6.0 and QEMU 8.1.0, or newer).
pub const VGPU_LIVE_MIGRATION: &str = "CUSTOM_VGPU_LIVE_MIGRATION";

/// The same of PCI functions that stay with a driver of their kind (libvirt 10.0.0 and QEMU 8.2.2, or
/// newer).
pub const VARIANT_LIVE_MIGRATION: &str = "CUSTOM_VFIO_VARIANT_LIVE_MIGRATION";

/// What a node says when it starts and whenever its devices change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Registration {
    /// Host name: hypervisor hostname, service host and the root provider's name.
    pub host: String,
    /// What stays when the host is renamed (`/etc/machine-id`), empty where nothing does.
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
    /// Memory kept for the host itself, MiB.
    pub reserved_memory_mb: i64,
    /// Traits of the host itself, such as `COMPUTE_NODE`.
    pub traits: Vec<String>,
    /// The devices, whole: what is not in it is gone.
    pub devices: Vec<Device>,
}

/// The control plane's answer to a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Larger than that of every earlier registration of this host.
    pub epoch: i64,
}

/// Kind of card, in Cyborg's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum DeviceKind {
    /// A GPU, whole or cut into vGPUs.
    Gpu,
    /// An FPGA card.
    Fpga,
    /// A network card.
    Nic,
    /// A QuickAssist card.
    Qat,
    /// An NVMe disk.
    Ssd,
    /// Any other mdev parent, such as the kernel's `mtty`.
    Mdev,
    /// Any other PCI function.
    Pci,
}

impl DeviceKind {
    /// `GPU`, `FPGA`, …
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gpu => "GPU",
            Self::Fpga => "FPGA",
            Self::Nic => "NIC",
            Self::Qat => "QAT",
            Self::Ssd => "SSD",
            Self::Mdev => "MDEV",
            Self::Pci => "PCI",
        }
    }
}

/// A physical card or function.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Device {
    /// `0000:84:00.0`, or `mtty_mtty` for a virtual parent. Unique on the host.
    pub address: String,
    /// Of a virtual function that is a device of its own: its physical function. What is on the
    /// physical function itself and what is on its virtual functions exclude each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<String>,
    /// What it is.
    pub kind: DeviceKind,
    /// PCI vendor id, four hex digits.
    pub vendor_id: String,
    /// PCI product id, four hex digits.
    pub product_id: String,
    /// Name for people, empty where unknown.
    pub model: String,
    /// NUMA node, -1 where the kernel names none.
    pub numa_node: i64,
    /// Whether guests may be given it.
    #[serde(default)]
    pub health: Health,
    /// Its parts that are scheduled on their own.
    pub deployables: Vec<Deployable>,
}

/// Whether a device can be given to guests, as the node sees it.
///
/// `since` is the time of an event that is over and may have been dealt with, such as a line in the
/// kernel log (microseconds since 1970); there is none for what is so now, such as a link that is
/// down.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Health {
    /// Nothing speaks against it.
    #[default]
    Healthy,
    /// It is given out, and an operator should look at it.
    Degraded {
        /// Why, for people.
        reason: String,
        /// When, for an event.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<i64>,
    },
    /// It is there, with its deployables, and must not be given out. A device that the node cannot
    /// read has no deployables: they are as they were last told.
    Failed {
        /// Why, for people.
        reason: String,
        /// When, for an event.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<i64>,
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

    /// Why it is not healthy.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Healthy => None,
            Self::Degraded { reason, .. } | Self::Failed { reason, .. } => Some(reason),
        }
    }

    /// The time of the event that it comes from.
    pub fn since(&self) -> Option<i64> {
        match self {
            Self::Healthy => None,
            Self::Degraded { since, .. } | Self::Failed { since, .. } => *since,
        }
    }
}

/// A part of a device that becomes one resource provider.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Deployable {
    /// Suffix of the provider's name after `<host>_`: `pci_0000_84_00_0` for what is cut into
    /// mediated devices, `0000:84:00.0` for PCI functions, or `FakeDevice`.
    pub name: String,
    /// `VGPU`, `FPGA`, `PGPU` or a custom class.
    pub resource_class: String,
    /// Traits of the provider that the node is sure of.
    pub traits: Vec<String>,
    /// Driver name as Cyborg shows it: `nvidia`, `fake`, …
    pub driver: String,
    /// What else is known of it, such as `physical_network`, `region_id` or `function_id`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
    /// What guests can be given: one slot per unit of inventory. On one card, a slot on the card's own
    /// function excludes the slots on its virtual functions, and so the other way round; on one
    /// function, it being passed through excludes everything else there.
    pub slots: Vec<HandleSlot>,
}

/// One unit of a deployable.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum HandleSlot {
    /// Room for `count` mediated devices of a type; the control plane gives each its uuid.
    Mdev {
        /// Mdev type, `nvidia-35`.
        mdev_type: String,
        /// How many the parent can hold in all, existing ones counted.
        count: u32,
    },
    /// A PCI function that is passed through whole.
    Pci {
        /// Its address.
        address: String,
    },
    /// A PCI function that stays with the driver it has: libvirt must not bind it anew.
    Vfio {
        /// Its address.
        address: String,
        /// Type that the node sets on it first (`nvidia-558`), empty where there is none to set.
        vgpu_type: String,
    },
    /// A handle for tests, shaped as a PCI address; no guest gets a device from it.
    TestPci {
        /// Its address.
        address: String,
    },
}

/// A concrete device for a guest, chosen by the control plane.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Attachment {
    /// A mediated device; the node makes it if it is not there.
    Mdev {
        /// Its uuid.
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
    /// A PCI function that stays with the driver it has.
    Vfio {
        /// Its address.
        address: String,
        /// Type that the node sets on it first, empty where there is none to set.
        vgpu_type: String,
    },
    /// A handle for tests.
    TestPci {
        /// Its address.
        address: String,
    },
}

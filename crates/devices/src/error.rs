//! Errors of devices, worded so that an operator can act on them.

use uuid::Uuid;

/// A refused option or a failed step.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The options contradict each other or the host.
    #[error("Invalid configuration for mdev-capable devices: {0}")]
    Config(String),
    /// An entry of `[pci] device_spec` is invalid.
    #[error("Invalid [pci]device_spec config: {0}")]
    Spec(String),
    /// An entry of `[nvme] device_spec` is invalid.
    #[error("Invalid [nvme]device_spec config: {0}")]
    NvmeSpec(String),
    /// An entry of `[pci] alias` is invalid.
    #[error("Invalid PCI alias definition: {0}")]
    Alias(String),
    /// `[agent] enabled_drivers` names an unknown driver.
    #[error("{0}")]
    Driver(String),
    /// `[x710_static]` is invalid.
    #[error("{0}")]
    Mapping(String),
    /// A file of sysfs could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Path below the sysfs root.
        path: String,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// A file of sysfs has unexpected content.
    #[error("{path} has unexpected content {content:?}")]
    Content {
        /// Path below the sysfs root.
        path: String,
        /// The content.
        content: String,
    },
    /// No mdev parent has that address.
    #[error("{0} is not an mdev-capable device of this host")]
    NoParent(String),
    /// The parent does not offer the type.
    #[error("{parent} does not offer mdev type {mdev_type}")]
    NoType {
        /// Address of the parent.
        parent: String,
        /// The requested type.
        mdev_type: String,
    },
    /// A mediated device with that UUID exists, but it has another parent or type.
    #[error("mediated device {uuid} already exists on {parent} with type {mdev_type}")]
    Conflict {
        /// Its UUID.
        uuid: Uuid,
        /// Its parent.
        parent: String,
        /// Its type.
        mdev_type: String,
    },
    /// The kernel refused to create the mediated device.
    #[error("cannot create mediated device {uuid} of type {mdev_type} on {parent}: {source}")]
    Create {
        /// Its UUID.
        uuid: Uuid,
        /// The parent.
        parent: String,
        /// The type.
        mdev_type: String,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The kernel refused to remove the mediated device.
    #[error("cannot remove mediated device {uuid}: {source}")]
    Remove {
        /// Its UUID.
        uuid: Uuid,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// A GPU instance could not be created or destroyed.
    #[error("GPU instance {profile} at slice {start} of {card}: {reason}")]
    Instance {
        /// Address of the card.
        card: String,
        /// Its profile.
        profile: String,
        /// Its first memory slice.
        start: u8,
        /// The reason.
        reason: String,
    },
    /// The driver does not report which GPU instances exist.
    #[error("cannot read the GPU instances of this host: {0}")]
    Mig(String),
    /// The names of PCI devices could not be read.
    #[error("cannot read the names of PCI devices: {0}; install the package pci.ids or hwdata")]
    Models(String),
    /// The driver does not report how GPUs are connected.
    #[error("cannot read the NVLink connections of this host: {0}")]
    Links(String),
    /// The vGPU type of a virtual function could not be set or cleared.
    #[error("{address} cannot be a vGPU of type {vgpu_type}: {reason}")]
    Vgpu {
        /// Address of the function.
        address: String,
        /// The type.
        vgpu_type: String,
        /// The reason.
        reason: String,
    },
}

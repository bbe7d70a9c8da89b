//! What can go wrong with devices, in words an operator can act on.

use uuid::Uuid;

/// A refused configuration or a failed step.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The options contradict each other or what is on the host.
    #[error("Invalid configuration for mdev-capable devices: {0}")]
    Config(String),
    /// An entry of `[pci] device_spec` means nothing.
    #[error("Invalid [pci]device_spec config: {0}")]
    Spec(String),
    /// An entry of `[nvme] device_spec` means nothing.
    #[error("Invalid [nvme]device_spec config: {0}")]
    NvmeSpec(String),
    /// An entry of `[pci] alias` means nothing.
    #[error("Invalid PCI alias definition: {0}")]
    Alias(String),
    /// `[agent] enabled_drivers` names what is no driver.
    #[error("{0}")]
    Driver(String),
    /// `[x710_static]` cannot be read.
    #[error("{0}")]
    Mapping(String),
    /// sysfs did not answer as expected.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Path below the sysfs root.
        path: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A file of sysfs does not hold what it should.
    #[error("{path} holds {content:?}, which means nothing")]
    Content {
        /// Path below the sysfs root.
        path: String,
        /// What is in it.
        content: String,
    },
    /// No device of that address can be cut into mediated devices.
    #[error("{0} is not an mdev-capable device of this host")]
    NoParent(String),
    /// The parent does not offer the type.
    #[error("{parent} does not offer mdev type {mdev_type}")]
    NoType {
        /// Address of the parent.
        parent: String,
        /// The type asked for.
        mdev_type: String,
    },
    /// A mediated device of that uuid is there, but is another one.
    #[error("mediated device {uuid} exists already on {parent} with type {mdev_type}")]
    Conflict {
        /// Its uuid.
        uuid: Uuid,
        /// Where it is.
        parent: String,
        /// What it is.
        mdev_type: String,
    },
    /// The kernel refused to make the mediated device.
    #[error("cannot create mediated device {uuid} of type {mdev_type} on {parent}: {source}")]
    Create {
        /// Its uuid.
        uuid: Uuid,
        /// Where.
        parent: String,
        /// Of which type.
        mdev_type: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The kernel refused to remove the mediated device.
    #[error("cannot remove mediated device {uuid}: {source}")]
    Remove {
        /// Its uuid.
        uuid: Uuid,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A virtual function cannot be given a vGPU type, or be relieved of it.
    #[error("{address} cannot be a vGPU of type {vgpu_type}: {reason}")]
    Vgpu {
        /// Address of the function.
        address: String,
        /// The type.
        vgpu_type: String,
        /// Why.
        reason: String,
    },
}

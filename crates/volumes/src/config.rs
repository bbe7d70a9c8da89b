//! The operator's options, named as in `nova.conf`.

use std::path::PathBuf;
use std::time::Duration;

use uuid::Uuid;

/// The initiator that connects to iSCSI targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IscsiInitiator {
    /// The kernel's initiator, through `iscsiadm`: all features, including multipath.
    Kernel,
    /// QEMU's libiscsi, over one path; the host has no device for the volume.
    Qemu,
}

/// Options for volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumesConfig {
    /// The host's name.
    pub host: String,
    /// `[DEFAULT] my_block_storage_ip`.
    pub address: String,
    /// `[node] iscsi_initiator`.
    pub iscsi: IscsiInitiator,
    /// `[libvirt] volume_use_multipath`.
    pub use_multipath: bool,
    /// `[libvirt] volume_enforce_multipath`.
    pub enforce_multipath: bool,
    /// `[libvirt] num_volume_scan_tries`.
    pub scan_tries: u32,
    /// `[libvirt] num_nvme_discover_tries`.
    pub nvme_tries: u32,
    /// `[libvirt] nfs_mount_point_base`.
    pub nfs_mount_point_base: PathBuf,
    /// `[libvirt] nfs_mount_options`.
    pub nfs_mount_options: Option<String>,
    /// `[libvirt] rbd_user`.
    pub rbd_user: Option<String>,
    /// `[libvirt] rbd_secret_uuid`.
    pub rbd_secret: Option<Uuid>,
    /// Interval between checks for a device.
    pub look: Duration,
}

impl Default for VolumesConfig {
    fn default() -> Self {
        Self {
            host: String::new(),
            address: String::new(),
            iscsi: IscsiInitiator::Kernel,
            use_multipath: false,
            enforce_multipath: false,
            scan_tries: 5,
            nvme_tries: 5,
            nfs_mount_point_base: PathBuf::from("/var/lib/kilonova-agent/mnt"),
            nfs_mount_options: None,
            rbd_user: None,
            rbd_secret: None,
            look: Duration::from_secs(1),
        }
    }
}

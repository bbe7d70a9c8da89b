//! Hardware properties of a guest beyond its size, from its image and its flavor.
//!
//! The controller has validated every value; a host uses them unchecked. The host chooses a
//! default for each value that is not set.

use kilonova_ids::ImageId;
use serde::{Deserialize, Serialize};

use crate::is_default;

/// The hardware properties. Most are usually unset.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// `q35`, `pc-i440fx-7.2`, … (`hw_machine_type`).
    #[serde(skip_serializing_if = "is_default")]
    pub machine_type: Option<String>,
    /// `hw_firmware_type`.
    #[serde(skip_serializing_if = "is_default")]
    pub firmware: Option<Firmware>,
    /// True if the firmware starts signed programs only (`os_secure_boot`).
    #[serde(skip_serializing_if = "is_default")]
    pub secure_boot: Option<SecureBoot>,
    /// `hw_disk_bus`.
    #[serde(skip_serializing_if = "is_default")]
    pub disk_bus: Option<Bus>,
    /// `hw_cdrom_bus`.
    #[serde(skip_serializing_if = "is_default")]
    pub cdrom_bus: Option<Bus>,
    /// `virtio-scsi`, `lsilogic`, … (`hw_scsi_model`).
    #[serde(skip_serializing_if = "is_default")]
    pub scsi_model: Option<String>,
    /// `virtio`, `e1000`, … (`hw_vif_model`).
    #[serde(skip_serializing_if = "is_default")]
    pub vif_model: Option<String>,
    /// True if a network interface has one queue per vCPU (`hw_vif_multiqueue_enabled`).
    #[serde(skip_serializing_if = "is_default")]
    pub vif_multiqueue: bool,
    /// `virtio`, `vga`, `none`, … (`hw_video_model`).
    #[serde(skip_serializing_if = "is_default")]
    pub video_model: Option<String>,
    /// Video memory, MiB (`hw_video_ram`).
    #[serde(skip_serializing_if = "is_default")]
    pub video_ram_mb: Option<i64>,
    /// True if the guest has a random number generator (`hw_rng:allowed`).
    #[serde(skip_serializing_if = "is_default")]
    pub rng: bool,
    /// The watchdog's action: `reset`, `poweroff`, `pause`, `none` (`hw_watchdog_action`).
    #[serde(skip_serializing_if = "is_default")]
    pub watchdog: Option<String>,
    /// True if the QEMU guest agent is enabled (`hw_qemu_guest_agent`).
    #[serde(skip_serializing_if = "is_default")]
    pub guest_agent: bool,
    /// True if the firmware shows its boot menu (`hw_boot_menu`).
    #[serde(skip_serializing_if = "is_default")]
    pub boot_menu: bool,
    /// True if the hypervisor is hidden from the guest (`hide_hypervisor_id`).
    #[serde(skip_serializing_if = "is_default")]
    pub hide_hypervisor: bool,
    /// The CPU topology (`hw_cpu_sockets`, …).
    #[serde(skip_serializing_if = "is_default")]
    pub topology: Option<Topology>,
    /// `linux` or `windows` (`os_type`).
    #[serde(skip_serializing_if = "is_default")]
    pub os_type: Option<String>,
    /// The image of the kernel for direct kernel boot (`kernel_id`).
    #[serde(skip_serializing_if = "is_default")]
    pub kernel: Option<ImageId>,
    /// The image of the initial RAM disk (`ramdisk_id`).
    #[serde(skip_serializing_if = "is_default")]
    pub ramdisk: Option<ImageId>,
    /// The kernel command line (`os_command_line`).
    #[serde(skip_serializing_if = "is_default")]
    pub command_line: Option<String>,
    /// True if the user or the image requests a config drive.
    #[serde(skip_serializing_if = "is_default")]
    pub config_drive: bool,
}

words! {
    /// Firmware.
    Firmware {
        /// Legacy BIOS.
        Bios = "bios",
        /// UEFI.
        Uefi = "uefi",
    }
}

words! {
    /// UEFI secure boot.
    SecureBoot {
        /// Required: a host without support refuses the guest.
        Required = "required",
        /// Used if the host supports it.
        Optional = "optional",
    }
}

words! {
    /// Disk buses.
    Bus {
        /// Floppy controller.
        Fdc = "fdc",
        /// IDE.
        Ide = "ide",
        /// SATA.
        Sata = "sata",
        /// SCSI.
        Scsi = "scsi",
        /// USB.
        Usb = "usb",
        /// Virtio.
        Virtio = "virtio",
    }
}

words! {
    /// Disk device types.
    Medium {
        /// A hard disk.
        Disk = "disk",
        /// A CD-ROM.
        Cdrom = "cdrom",
        /// A floppy disk.
        Floppy = "floppy",
    }
}

/// A CPU topology; the product is the number of vCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// Sockets.
    pub sockets: i64,
    /// Cores per socket.
    pub cores: i64,
    /// Threads per core.
    pub threads: i64,
}

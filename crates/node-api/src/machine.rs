//! What a guest's machine is like beyond its size: what its image and its flavor say of it.
//!
//! The control plane has checked every value; a host takes them as they are. What is not said is
//! the host's to choose.

use kilonova_ids::ImageId;
use serde::{Deserialize, Serialize};

use crate::is_default;

/// The machine. Most say nothing of most of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// `q35`, `pc-i440fx-7.2`, … (`hw_machine_type`).
    #[serde(skip_serializing_if = "is_default")]
    pub machine_type: Option<String>,
    /// `hw_firmware_type`.
    #[serde(skip_serializing_if = "is_default")]
    pub firmware: Option<Firmware>,
    /// Whether the firmware starts signed programs only (`os_secure_boot`).
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
    /// Whether a network card has a queue for each processor (`hw_vif_multiqueue_enabled`).
    #[serde(skip_serializing_if = "is_default")]
    pub vif_multiqueue: bool,
    /// `virtio`, `vga`, `none`, … (`hw_video_model`).
    #[serde(skip_serializing_if = "is_default")]
    pub video_model: Option<String>,
    /// Memory of the graphics card, MiB (`hw_video_ram`).
    #[serde(skip_serializing_if = "is_default")]
    pub video_ram_mb: Option<i64>,
    /// Whether it has a source of randomness (`hw_rng:allowed`).
    #[serde(skip_serializing_if = "is_default")]
    pub rng: bool,
    /// What a watchdog does: `reset`, `poweroff`, `pause`, `none` (`hw_watchdog_action`).
    #[serde(skip_serializing_if = "is_default")]
    pub watchdog: Option<String>,
    /// Whether an agent in the guest is spoken to (`hw_qemu_guest_agent`).
    #[serde(skip_serializing_if = "is_default")]
    pub guest_agent: bool,
    /// Whether the firmware shows its menu (`hw_boot_menu`).
    #[serde(skip_serializing_if = "is_default")]
    pub boot_menu: bool,
    /// Whether the guest is not to see that it is one (`hide_hypervisor_id`).
    #[serde(skip_serializing_if = "is_default")]
    pub hide_hypervisor: bool,
    /// How its processors are arranged (`hw_cpu_sockets`, …).
    #[serde(skip_serializing_if = "is_default")]
    pub topology: Option<Topology>,
    /// `linux` or `windows` (`os_type`).
    #[serde(skip_serializing_if = "is_default")]
    pub os_type: Option<String>,
    /// The image of the kernel that it starts without a boot loader (`kernel_id`).
    #[serde(skip_serializing_if = "is_default")]
    pub kernel: Option<ImageId>,
    /// The image of the memory disk that goes with the kernel (`ramdisk_id`).
    #[serde(skip_serializing_if = "is_default")]
    pub ramdisk: Option<ImageId>,
    /// What the kernel is told (`os_command_line`).
    #[serde(skip_serializing_if = "is_default")]
    pub command_line: Option<String>,
    /// Whether its user or its image asks for a config drive.
    #[serde(skip_serializing_if = "is_default")]
    pub config_drive: bool,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$item:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name { $($(#[$item])* #[serde(rename = $word)] $variant,)* }

        impl $name {
            /// The word, as image properties and libvirt have it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// Reads the word.
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

words! {
    /// What starts the guest.
    Firmware {
        /// A PC's old one.
        Bios = "bios",
        /// The new one.
        Uefi = "uefi",
    }
}

words! {
    /// Whether only signed programs are started.
    SecureBoot {
        /// They are, and a host that cannot see to it does not take the guest.
        Required = "required",
        /// They are where the host can see to it.
        Optional = "optional",
    }
}

words! {
    /// What a disk is plugged into.
    Bus {
        /// Floppy disks.
        Fdc = "fdc",
        /// The oldest.
        Ide = "ide",
        /// Its successor.
        Sata = "sata",
        /// By a controller.
        Scsi = "scsi",
        /// From outside.
        Usb = "usb",
        /// Made for guests.
        Virtio = "virtio",
    }
}

words! {
    /// What a disk looks like.
    Medium {
        /// A disk.
        Disk = "disk",
        /// A disc that can be read only.
        Cdrom = "cdrom",
        /// A floppy disk.
        Floppy = "floppy",
    }
}

/// How processors are arranged: their product is their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// Sockets.
    pub sockets: i64,
    /// Cores of a socket.
    pub cores: i64,
    /// Threads of a core.
    pub threads: i64,
}

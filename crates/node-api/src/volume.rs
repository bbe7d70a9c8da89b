//! Volumes of guests: their description in a document, a host's reports of them, and a host's
//! connector.
//!
//! A document lists the volumes that its guest has. Volumes, like interfaces, are attached and detached by a change of
//! that list, never by a command. A volume's connection is parsed from Cinder's `connection_info` by the controller;
//! a host never sees the original. Only a document contains the secrets of a connection: a domain's XML, an observation
//! and a log do not.

mod connection;
mod connector;
mod report;
mod secret;

use kilonova_ids::{AttachmentId, VolumeId};
use serde::{Deserialize, Serialize};

use crate::{Bus, DomainConfig, Medium, is_default};

pub use connection::{
    Chap, Connection, ConnectionError, IO_LIMITS, Iscsi, IscsiPath, Nfs, NvmePortal, Nvmeof, Rbd,
    Target,
};
pub use connector::Connector;
pub use report::{SourceHost, VOLUME_STEP, VolumeSource, VolumeState, VolumeStatus};
pub use secret::Secret;

/// A volume of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Its id in Cinder, and the serial number of the guest's disk.
    pub volume_id: VolumeId,
    /// Its attachment to this host.
    pub attachment_id: AttachmentId,
    /// The disk's name in the guest, without a directory: `vdb`. The controller chooses it.
    pub device: String,
    /// The disk's bus.
    pub bus: Bus,
    /// The disk's type; a hard disk if `None`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub medium: Option<Medium>,
    /// Its place in the boot order. The root disk of a volume-backed guest has 0.
    #[serde(default, skip_serializing_if = "is_default")]
    pub boot_index: Option<i64>,
    /// The device tag in the guest's metadata.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tag: Option<String>,
    /// True if other guests may use it too.
    #[serde(default, skip_serializing_if = "is_default")]
    pub shareable: bool,
    /// Its size in GiB. When it grows, the guest's disk is extended.
    pub size_gb: i64,
    /// Its connection to the host.
    pub connection: Connection,
}

impl Volume {
    /// The volume without the secrets of its connection, as a domain's XML records it.
    #[must_use]
    pub fn without_secrets(&self) -> Self {
        Self { connection: self.connection.without_secrets(), ..self.clone() }
    }

    /// True if it is the root disk of its guest.
    pub fn is_root(&self) -> bool {
        self.boot_index == Some(0)
    }
}

impl DomainConfig {
    /// True if the guest's root disk is a volume: it has no root disk on the host.
    pub fn is_volume_backed(&self) -> bool {
        self.volumes.iter().any(Volume::is_root)
    }

    /// The first disk name of a bus that no disk of the guest uses. Disks that are not volumes get
    /// the names that the volumes leave free, in the order root, ephemeral, swap, config drive.
    pub fn free_device(&self, bus: Bus) -> Option<String> {
        let prefix = prefix(bus);
        let usual = self.machine.disk_bus.unwrap_or(Bus::Virtio);
        let mut buses = Vec::new();
        buses.extend((!self.is_volume_backed()).then_some(usual));
        buses.extend((self.boot.ephemeral_gb > 0).then_some(usual));
        buses.extend((self.boot.swap_mb > 0).then_some(usual));
        buses.extend(self.rescue.is_some().then_some(usual));
        // The machine type, which the host may choose, determines whether the config drive uses
        // SATA or IDE; and the host's operator may force a config drive.
        buses.extend([Bus::Sata, Bus::Ide]);
        let local = buses.into_iter().filter(|one| self::prefix(*one) == prefix).count();
        let volumes = || self.volumes.iter().map(|volume| volume.device.as_str());
        let mut unnamed = names(prefix).filter(|name| !volumes().any(|device| device == name));
        unnamed.nth(local)
    }
}

/// The prefix of the names of a bus's disks.
const fn prefix(bus: Bus) -> &'static str {
    match bus {
        Bus::Virtio => "vd",
        Bus::Ide => "hd",
        Bus::Fdc => "fd",
        Bus::Scsi | Bus::Sata | Bus::Usb => "sd",
    }
}

/// `vda` … `vdz`, `vdaa` … `vdzz`.
fn names(prefix: &'static str) -> impl Iterator<Item = String> {
    let letters = || ('a'..='z').map(String::from);
    let pairs =
        letters().flat_map(move |first| letters().map(move |second| first.clone() + &second));
    letters().chain(pairs).map(move |suffix| format!("{prefix}{suffix}"))
}

impl Bus {
    /// The names of the bus's disks, in order: `vda`, `vdb`, …
    pub fn disk_names(self) -> impl Iterator<Item = String> {
        names(prefix(self))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn guest(change: impl FnOnce(&mut DomainConfig)) -> DomainConfig {
        let config = json!({
            "name": "instance-0000001b", "display_name": "plain", "vcpus": 1, "memory_mb": 64,
            "boot": {"root_gb": 1, "ephemeral_gb": 0, "swap_mb": 0}, "devices": [],
        });
        let mut config = serde_json::from_value(config).expect("the configuration is readable");
        change(&mut config);
        config
    }

    fn volume(device: &str, boot_index: Option<i64>) -> Volume {
        let id = "d2a1f5d0-6f6c-4c6a-8f0b-0d6f3f8f5b22";
        let volume = json!({
            "volume_id": id, "attachment_id": id, "device": device, "bus": "virtio",
            "boot_index": boot_index, "size_gb": 1,
            "connection": {"protocol": "local", "device_path": "/dev/x"},
        });
        serde_json::from_value(volume).expect("the volume is readable")
    }

    #[test]
    fn volumes_get_the_names_that_no_disk_has() {
        let free = |config: &DomainConfig, bus| config.free_device(bus).unwrap_or_default();
        let plain = guest(|_| {});
        assert_eq!(free(&plain, Bus::Virtio), "vdb");
        assert_eq!(free(&plain, Bus::Scsi), "sdb", "the config drive has sda");
        assert_eq!(free(&plain, Bus::Ide), "hdb");
        let full = guest(|config| {
            (config.boot.ephemeral_gb, config.boot.swap_mb) = (1, 1);
            config.volumes = vec![volume("vdd", None)];
        });
        assert_eq!(free(&full, Bus::Virtio), "vde");
        let scsi = guest(|config| config.machine.disk_bus = Some(Bus::Scsi));
        assert_eq!((free(&scsi, Bus::Scsi).as_str(), &*free(&scsi, Bus::Virtio)), ("sdc", "vda"));
        let backed = guest(|config| config.volumes = vec![volume("vda", Some(0))]);
        assert!(backed.is_volume_backed() && !full.is_volume_backed());
        assert_eq!(free(&backed, Bus::Virtio), "vdb");
    }

    #[test]
    fn names_continue_with_two_letters() {
        let names: Vec<String> = Bus::Virtio.disk_names().collect();
        assert_eq!((names[25].as_str(), names[26].as_str()), ("vdz", "vdaa"));
        assert_eq!(names.len(), 26 + 26 * 26);
    }

    #[test]
    fn a_volume_hides_its_secrets() {
        let mut volume = volume("vdb", None);
        let chap = Some(Chap { user: "me".into(), password: Secret::new("open sesame") });
        let path = IscsiPath { portal: "192.0.2.9:3260".into(), iqn: "iqn.a".into(), lun: 1 };
        volume.connection.target = Target::Iscsi(Iscsi { paths: vec![path], chap });
        let shown = format!("{volume:?}");
        assert!(shown.contains("***") && !shown.contains("sesame"), "{shown}");
        let plain = serde_json::to_string(&volume.without_secrets()).expect("it is writable");
        assert!(!plain.contains("sesame"), "{plain}");
        assert!(serde_json::to_string(&volume).expect("it is writable").contains("sesame"));
    }
}

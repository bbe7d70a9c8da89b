//! The device metadata of volumes with tags.

use kilonova_node_api::{Bus, Volume};
use serde_json::{Value, json};

/// A volume with a tag, as the guest sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaggedDisk {
    /// The disk's name: `vdb`.
    pub device: String,
    /// Its bus.
    pub bus: Bus,
    /// Its serial number: the volume's id.
    pub serial: String,
    /// The tag.
    pub tag: String,
}

impl TaggedDisk {
    /// The disk of a volume; `None` without a tag.
    pub fn of(volume: &Volume) -> Option<Self> {
        Some(Self {
            device: volume.device.clone(),
            bus: volume.bus,
            serial: volume.volume_id.to_string(),
            tag: volume.tag.clone()?,
        })
    }

    /// Its entry. The address of a SCSI disk follows from its name; libvirt chooses PCI addresses.
    pub(crate) fn entry(&self) -> Value {
        let unit = match self.bus {
            Bus::Scsi => self.bus.disk_names().position(|name| name == self.device),
            Bus::Fdc | Bus::Ide | Bus::Sata | Bus::Usb | Bus::Virtio => None,
        };
        let (bus, address) = match unit {
            Some(unit) => ("scsi", format!("0:0:0:{unit}")),
            None => ("none", "none".to_owned()),
        };
        json!({
            "type": "disk", "bus": bus, "address": address, "path": format!("/dev/{}", self.device),
            "serial": self.serial, "tags": [self.tag],
        })
    }
}

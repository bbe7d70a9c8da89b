//! Assigns a guest's files to its virtual disks, kernel and console.

use kilonova_disks::{Volume, Volumes};
use kilonova_hypervisor::Definition;
use kilonova_node_api::Medium;

use crate::xml::{Disk, Layout};

/// The disks, kernel and console of a guest, in boot order.
pub(crate) fn layout(definition: &Definition, volumes: Volumes) -> Layout {
    let disk = |volume: Volume, medium| Disk {
        path: volume.path,
        format: volume.format,
        medium,
        bus: None,
        boots: false,
    };
    let own = [volumes.root, volumes.ephemeral, volumes.swap];
    let mut disks: Vec<Disk> =
        own.into_iter().flatten().map(|volume| disk(volume, Medium::Disk)).collect();
    disks.extend(volumes.config.map(|volume| disk(volume, Medium::Cdrom)));
    let (mut kernel, mut ramdisk) = (volumes.kernel, volumes.ramdisk);
    // A volume-backed guest boots from its volume, and a rescued one from the rescue disk.
    let mut first = (!definition.config.is_volume_backed()).then_some(0);
    if let (Some(rescue), Some(rescue_volumes)) = (&definition.config.rescue, volumes.rescue) {
        (kernel, ramdisk) = (rescue_volumes.kernel, rescue_volumes.ramdisk);
        match rescue.device {
            Some(device) => {
                first = Some(disks.len());
                disks.push(Disk { bus: device.bus, ..disk(rescue_volumes.root, device.medium) });
            }
            None => {
                first = Some(0);
                disks.insert(0, disk(rescue_volumes.root, Medium::Disk));
            }
        }
    }
    if let Some(disk) = first.and_then(|first| disks.get_mut(first)) {
        disk.boots = true;
    }
    Layout { disks, kernel, ramdisk, console: volumes.console }
}

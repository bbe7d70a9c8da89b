//! The property `block_device_mapping` of an image, which lists the image's snapshots in Nova's
//! form, so that a server of either system can boot from it. Pure.

use kilonova_compute_db::volumes::BlockDevice;
use kilonova_ids::SnapshotId;
use kilonova_node_api::Medium;
use serde_json::{Value, json};

/// The property with the list of entries, as JSON.
pub(crate) const MAPPING: &str = "block_device_mapping";
/// The property that marks the entries as being in the newer form.
pub(crate) const BDM_V2: &str = "bdm_v2";
/// The property with the name of the root disk.
pub(crate) const ROOT_DEVICE_NAME: &str = "root_device_name";
/// The property that describes local disks, which here depend only on the flavor.
pub(crate) const MAPPINGS: &str = "mappings";
/// Maximum size of a property's value in Glance, in bytes.
pub(super) const LONGEST: usize = 65_535;

/// The entries for snapshots of devices.
pub(super) fn write<'a>(devices: impl Iterator<Item = (&'a BlockDevice, SnapshotId)>) -> String {
    let entries = devices.map(|(device, snapshot)| {
        json!({
            "source_type": "snapshot", "destination_type": "volume", "snapshot_id": snapshot,
            "boot_index": device.boot_index, "device_name": format!("/dev/{}", device.device),
            "disk_bus": device.bus.as_str(),
            "device_type": device.medium.map_or("disk", Medium::as_str),
            "volume_size": device.size_gb,
            "delete_on_termination": device.delete_on_termination,
            "guest_format": null, "image_id": null, "volume_id": null, "no_device": null,
            "tag": null, "volume_type": null,
        })
    });
    entries.collect::<Value>().to_string()
}

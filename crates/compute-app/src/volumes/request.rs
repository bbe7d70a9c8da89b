//! The requested volumes of a new server: `block_device_mapping_v2` or its older form, with the
//! checks that need no other service. Pure.

mod of_image;

use std::collections::{BTreeMap, HashSet};

use kilonova_compute_db::servers::{FlavorOf, LocalDisks};
use kilonova_ids::{ImageId, SnapshotId, VolumeId, parse_uuid_like};
use kilonova_node_api::{Bus, Medium};
use kilonova_wire::Refusal;
use serde_json::Value;

pub use of_image::{names_volumes, with_image, without_volumes};

/// The source of a device's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// An existing volume.
    Volume(VolumeId),
    /// A new volume, created from an image.
    Image(ImageId),
    /// A new volume, created from a snapshot.
    Snapshot(SnapshotId),
    /// A new, empty volume.
    Blank,
}

/// A requested volume of a new server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedVolume {
    /// Its source.
    pub source: Wanted,
    /// Its size in GiB, if the request names one.
    pub size_gb: Option<i64>,
    /// Its place in the boot order; negative for none.
    pub boot_index: i64,
    /// The type of a new volume, by id or name.
    pub volume_type: Option<String>,
    /// The requested name of the disk, without a directory.
    pub device: Option<String>,
    /// The bus.
    pub bus: Option<Bus>,
    /// The type of the disk.
    pub medium: Option<Medium>,
    /// The tag shown to the guest.
    pub tag: Option<String>,
    /// True if the volume is deleted with the server.
    pub delete_on_termination: bool,
}

/// The disks of a new server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WantedDisks {
    /// The image of a local root disk.
    pub image: Option<ImageId>,
    /// The volumes, in the order of the request.
    pub volumes: Vec<WantedVolume>,
    /// The sizes of the requested ephemeral disks, in GiB. `None` is the flavor's size.
    pub ephemeral: Vec<Option<i64>>,
    /// The size of the requested swap disk, in MiB as in Nova's API. The inner `None` is the flavor's size.
    pub swap: Option<Option<i64>>,
    /// The requested buses of local disks.
    pub local_buses: Vec<Bus>,
    /// The names of disks that the server does not get, although its image names them.
    pub absent: Vec<String>,
}

impl WantedDisks {
    /// True if the root disk is a volume.
    pub fn is_volume_backed(&self) -> bool {
        self.volumes.iter().any(|volume| volume.boot_index == 0)
    }

    /// The number of local disks in addition to the root disk.
    pub fn locals(&self) -> usize {
        self.ephemeral.len() + usize::from(self.swap.is_some())
    }

    /// The sizes of the local disks of a server with this flavor and an image with these properties.
    ///
    /// # Errors
    /// 400 with Nova's messages for disks that are larger than the flavor's; 400 for several ephemeral disks, and for a
    /// bus that the disks do not get: a server's local disks are on the bus of its image.
    pub fn local_disks(
        &self,
        flavor: &FlavorOf,
        properties: &BTreeMap<String, String>,
    ) -> Result<LocalDisks, Refusal> {
        let usual = properties.get("hw_disk_bus");
        let usual = usual.and_then(|name| Bus::parse(&name.to_ascii_lowercase()));
        let usual = usual.unwrap_or(Bus::Virtio);
        if let Some(other) = self.local_buses.iter().find(|bus| **bus != usual) {
            return Err(invalid(&format!(
                "the local disks of a server are on the bus of its image, {}, not {}. Set hw_disk_bus of the image.",
                usual.as_str(),
                other.as_str()
            )));
        }
        let requested = self.ephemeral.iter().map(|size| size.unwrap_or(flavor.ephemeral));
        if requested.fold(0, i64::saturating_add) > flavor.ephemeral {
            return Err(Refusal::bad_request(
                "Ephemeral disks requested are larger than the instance type allows.",
            ));
        }
        if self.ephemeral.len() > 1 {
            return Err(invalid(&format!(
                "a server has at most one ephemeral disk. Request one of up to {} GiB.",
                flavor.ephemeral
            )));
        }
        let swap_mb = self.swap.flatten();
        if swap_mb.is_some_and(|size| size > flavor.swap) {
            let why = "Swap drive requested is larger than instance type allows.";
            return Err(Refusal::bad_request(why));
        }
        Ok(LocalDisks { ephemeral_gb: self.ephemeral.first().copied().flatten(), swap_mb })
    }

    /// The images from which volumes are created.
    pub fn of_images(&self) -> impl Iterator<Item = ImageId> {
        self.volumes.iter().filter_map(|volume| match volume.source {
            Wanted::Image(id) => Some(id),
            Wanted::Volume(_) | Wanted::Snapshot(_) | Wanted::Blank => None,
        })
    }

    /// The existing volumes.
    pub fn existing(&self) -> impl Iterator<Item = VolumeId> {
        self.volumes.iter().filter_map(|volume| match volume.source {
            Wanted::Volume(id) => Some(id),
            Wanted::Image(_) | Wanted::Snapshot(_) | Wanted::Blank => None,
        })
    }
}

/// Maximum number of entries of a request. Each may cost a call to Cinder, and no guest has that
/// many disks.
const MOST_DEVICES: usize = 255;

/// The name of the root disk, unless the image names another one (`_check_and_transform_bdm` in `nova/compute/api.py`).
const ROOT_DEVICE: &str = "vda";

/// The disk buses that Nova knows (`DiskBus` of `nova/objects/fields.py`).
const DISK_BUSES: [&str; 9] = ["fdc", "ide", "sata", "scsi", "usb", "virtio", "xen", "lxc", "uml"];

fn invalid(words: &str) -> Refusal {
    Refusal::bad_request(format!("Block Device Mapping is Invalid: {words}"))
}

/// Reads the disks of `server`, a body that has passed its schema.
///
/// # Errors
/// 400 with Nova's messages.
pub fn read(server: &Value) -> Result<WantedDisks, Refusal> {
    let list = |key: &str| server[key].as_array().map(Vec::as_slice).unwrap_or_default();
    let (old, new) = (list("block_device_mapping"), list("block_device_mapping_v2"));
    if !old.is_empty() && !new.is_empty() {
        return Err(Refusal::bad_request(
            "Using different block_device_mapping syntaxes is not allowed in the same request.",
        ));
    }
    if old.len().max(new.len()) > MOST_DEVICES {
        return Err(invalid(&format!(
            "there are more than {MOST_DEVICES} block devices. Attach the others to the server afterwards."
        )));
    }
    let named = match server["imageRef"].as_str() {
        None | Some("") => None,
        Some(text) => Some(parse_uuid_like::<ImageId>(text).ok_or_else(|| {
            Refusal::bad_request(format!(
                "Invalid imageRef provided: {} is not a uuid.",
                text.escape_debug()
            ))
        })?),
    };
    let mut disks = WantedDisks { image: named, ..WantedDisks::default() };
    let absent = old.iter().chain(new).filter(|entry| truth(&entry["no_device"]));
    let absent = absent.filter_map(|entry| entry["device_name"].as_str());
    disks.absent = absent.map(|name| name.trim_start_matches("/dev/").to_owned()).collect();
    let mut has_local_root = false;
    for entry in new.iter().filter(|entry| !truth(&entry["no_device"])) {
        read_entry(&mut disks, &mut has_local_root, entry)?;
    }
    for entry in old.iter().filter(|entry| !truth(&entry["no_device"])) {
        disks.volumes.push(read_legacy(entry, ROOT_DEVICE)?);
    }
    check_order(&disks, has_local_root)?;
    check_twice(&disks)?;
    if disks.is_volume_backed() {
        disks.image = None;
    }
    Ok(disks)
}

/// Refuses a volume that is named twice.
fn check_twice(disks: &WantedDisks) -> Result<(), Refusal> {
    let mut seen = HashSet::new();
    match disks.existing().find(|id| !seen.insert(*id)) {
        Some(twice) => Err(invalid(&format!("volume {twice} is named twice."))),
        None => Ok(()),
    }
}

fn truth(value: &Value) -> bool {
    match value {
        Value::Bool(value) => *value,
        Value::String(text) => ["true", "1", "yes", "on"].contains(&&*text.to_ascii_lowercase()),
        Value::Number(number) => number.as_i64() != Some(0),
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

fn number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.trim().parse().ok())
}

fn read_entry(
    disks: &mut WantedDisks,
    has_local_root: &mut bool,
    entry: &Value,
) -> Result<(), Refusal> {
    let text = |key: &str| entry[key].as_str().filter(|text| !text.is_empty());
    let source = text("source_type").unwrap_or("volume");
    let by_default = if source == "volume" || source == "snapshot" { "volume" } else { "local" };
    let destination = text("destination_type").unwrap_or(by_default);
    let boot_index = match &entry["boot_index"] {
        Value::Null => -1,
        value => number(value).ok_or_else(|| invalid("Boot index is invalid."))?,
    };
    let id = |own: &str| text("uuid").or_else(|| text(own));
    let size_gb = number(&entry["volume_size"]);
    if let Some(bus) = text("disk_bus").filter(|bus| !DISK_BUSES.contains(bus)) {
        return Err(invalid(&format!(
            "The provided disk bus {} is not valid.",
            bus.escape_debug()
        )));
    }
    if destination == "local" {
        if text("volume_type").is_some() {
            return Err(invalid(
                "Specifying a volume_type with destination_type=local is not supported.",
            ));
        }
        return read_local(disks, has_local_root, entry, source, boot_index, size_gb);
    }
    let missing = || invalid("Missing device UUID.");
    let source = match source {
        "volume" => {
            if text("volume_type").is_some() {
                return Err(invalid("Specifying volume type to existing volume is not supported."));
            }
            let id = id("volume_id").ok_or_else(missing)?;
            let unknown = || invalid(&format!("failed to get volume {}.", id.escape_debug()));
            Wanted::Volume(parse_uuid_like(id).ok_or_else(unknown)?)
        }
        "snapshot" => {
            let id = id("snapshot_id").ok_or_else(missing)?;
            let unknown = || invalid(&format!("failed to get snapshot {}.", id.escape_debug()));
            Wanted::Snapshot(parse_uuid_like(id).ok_or_else(unknown)?)
        }
        "image" => {
            let id = id("image_id").ok_or_else(missing)?;
            let unknown = || invalid(&format!("failed to get image {}.", id.escape_debug()));
            let image = parse_uuid_like(id).ok_or_else(unknown)?;
            if size_gb.is_none() {
                return Err(invalid(
                    "Images with destination_type 'volume' need to have a non-zero size specified",
                ));
            }
            Wanted::Image(image)
        }
        "blank" => {
            if text("uuid").is_some() {
                return Err(invalid("Invalid device UUID."));
            }
            if size_gb.is_none() {
                return Err(invalid(
                    "Blank volumes (source: 'blank', dest: 'volume') need to have non-zero size",
                ));
            }
            Wanted::Blank
        }
        other => return Err(invalid(&format!("Invalid source_type field: {other}"))),
    };
    disks.volumes.push(WantedVolume {
        source,
        size_gb,
        boot_index,
        volume_type: text("volume_type").map(str::to_owned),
        device: text("device_name").map(|name| name.trim_start_matches("/dev/").to_owned()),
        bus: text("disk_bus").and_then(|word| Bus::parse(&word.to_ascii_lowercase())),
        medium: text("device_type").and_then(|word| Medium::parse(&word.to_ascii_lowercase())),
        tag: text("tag").map(str::to_owned),
        delete_on_termination: truth(&entry["delete_on_termination"]),
    });
    Ok(())
}

fn read_local(
    disks: &mut WantedDisks,
    has_local_root: &mut bool,
    entry: &Value,
    source: &str,
    boot_index: i64,
    size: Option<i64>,
) -> Result<(), Refusal> {
    let text = |key: &str| entry[key].as_str().filter(|text| !text.is_empty());
    if text("tag").is_some() {
        return Err(invalid("a disk with a tag must be a volume (destination_type=volume)."));
    }
    if let Some(word) = text("disk_bus") {
        // The message is that of an image with this bus.
        let bus = Bus::parse(word).ok_or_else(|| {
            Refusal::bad_request(format!(
                "Requested hardware '{}' is not supported by the 'kvm' virt driver",
                word.escape_debug()
            ))
        })?;
        disks.local_buses.push(bus);
    }
    match source {
        "image" => {
            let id = entry["uuid"].as_str().or_else(|| entry["image_id"].as_str());
            let id = id.ok_or_else(|| invalid("Missing device UUID."))?;
            let unknown = || invalid(&format!("failed to get image {}.", id.escape_debug()));
            let image = parse_uuid_like(id).ok_or_else(unknown)?;
            if boot_index != 0 || disks.image.is_some_and(|named| named != image) {
                return Err(invalid("Mapping image to local is not supported."));
            }
            disks.image = Some(image);
            *has_local_root = true;
            Ok(())
        }
        "blank" if entry["guest_format"] == "swap" => {
            if disks.swap.is_some() {
                return Err(invalid("More than one swap drive requested."));
            }
            disks.swap = Some(size.filter(|size| *size > 0));
            Ok(())
        }
        "blank" => {
            disks.ephemeral.push(size.filter(|size| *size > 0));
            Ok(())
        }
        other => Err(invalid(&format!("Mapping {other} to local is not supported."))),
    }
}

/// An entry of the older form, which identifies its disk by `device_name`. The one with the name of the root disk is
/// first in the boot order, regardless of its position (`from_legacy_mapping` in `nova/block_device.py`).
fn read_legacy(entry: &Value, root_device: &str) -> Result<WantedVolume, Refusal> {
    let text = |key: &str| entry[key].as_str().filter(|text| !text.is_empty());
    let device = text("device_name").map(|name| name.trim_start_matches("/dev/").to_owned());
    let source = if let Some(id) = text("snapshot_id") {
        let unknown = || invalid(&format!("failed to get snapshot {}.", id.escape_debug()));
        Wanted::Snapshot(parse_uuid_like(id).ok_or_else(unknown)?)
    } else if let Some(id) = text("volume_id") {
        let unknown = || invalid(&format!("failed to get volume {}.", id.escape_debug()));
        Wanted::Volume(parse_uuid_like(id).ok_or_else(unknown)?)
    } else {
        return Err(invalid("Missing device UUID."));
    };
    let is_root = device.as_deref() == Some(root_device);
    Ok(WantedVolume {
        source,
        size_gb: number(&entry["volume_size"]),
        boot_index: if is_root { 0 } else { -1 },
        volume_type: None,
        device,
        bus: None,
        medium: None,
        tag: None,
        delete_on_termination: truth(&entry["delete_on_termination"]),
    })
}

/// Checks that the boot indexes are 0, 1, 2, …, and that one of the disks is the root disk.
fn check_order(disks: &WantedDisks, has_local_root: bool) -> Result<(), Refusal> {
    let mut indexes: Vec<i64> =
        disks.volumes.iter().map(|volume| volume.boot_index).filter(|index| *index >= 0).collect();
    let named = disks.image.is_some();
    // The image is the root disk if an entry maps it to a local disk, or if no volume is first in the boot order.
    if has_local_root || (named && !indexes.contains(&0)) {
        indexes.push(0);
    }
    indexes.sort_unstable();
    let in_order = indexes.iter().enumerate().all(|(at, index)| at as i64 == *index);
    if !in_order || (indexes.is_empty() && !disks.volumes.is_empty()) {
        return Err(invalid(
            "Boot sequence for the instance and image/block device mapping combination is not valid.",
        ));
    }
    if indexes.is_empty() {
        return Err(Refusal::bad_request(
            "Invalid imageRef provided: a server boots from an image or a volume.",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const A: &str = "11111111-1111-4111-8111-111111111111";
    const B: &str = "22222222-2222-4222-8222-222222222222";

    fn v2(entries: Value) -> Result<WantedDisks, Refusal> {
        read(&json!({"block_device_mapping_v2": entries}))
    }

    #[test]
    fn the_root_disk_is_an_image_or_a_volume() {
        let plain = read(&json!({"imageRef": A})).expect("it is valid");
        assert_eq!(
            (plain.image.map(|id| id.to_string()).as_deref(), plain.volumes.len()),
            (Some(A), 0)
        );
        let local = json!({"source_type": "image", "destination_type": "local", "uuid": A, "boot_index": 0});
        let both = read(&json!({"imageRef": A, "block_device_mapping_v2": [local]}));
        assert_eq!(both.expect("it is valid"), plain);
        let root = json!({
            "source_type": "volume", "destination_type": "volume", "uuid": B, "boot_index": "0",
            "delete_on_termination": true, "tag": "root", "disk_bus": "scsi",
        });
        let more =
            json!({"source_type": "blank", "destination_type": "volume", "volume_size": "3"});
        let disks = v2(json!([root, more])).expect("it is valid");
        assert!(disks.is_volume_backed() && disks.image.is_none());
        let root = &disks.volumes[0];
        assert_eq!((root.bus, root.tag.as_deref()), (Some(Bus::Scsi), Some("root")));
        assert!(root.delete_on_termination);
        assert_eq!((disks.volumes[1].size_gb, disks.volumes[1].boot_index), (Some(3), -1));
        assert_eq!(disks.existing().map(|id| id.to_string()).collect::<Vec<_>>(), [B]);
        let old = read(&json!({"imageRef": "", "block_device_mapping": [
            {"device_name": "vda", "volume_id": A, "delete_on_termination": "1"},
            {"device_name": "vdb", "volume_id": B},
        ]}));
        let old = old.expect("it is valid");
        let order: Vec<i64> = old.volumes.iter().map(|volume| volume.boot_index).collect();
        assert_eq!(order, [0, -1]);
    }

    #[test]
    fn local_disks_have_no_tag_and_the_bus_of_the_image() {
        let flavor = crate::resolve::empty_flavor();
        let asked = |image: Option<&str>, more: Value| {
            let mut root = json!({
                "source_type": "image", "destination_type": "local", "uuid": A, "boot_index": 0,
            });
            let fields = more.as_object().expect("an object").clone();
            root.as_object_mut().expect("an object").extend(fields);
            let properties = image.map(|bus| ("hw_disk_bus".to_owned(), bus.to_owned()));
            let disks = v2(json!([root]))?;
            disks.local_disks(&flavor, &properties.into_iter().collect()).map(|_| ())
        };
        for (image, more) in [
            (None, json!({})),
            (None, json!({"disk_bus": "virtio", "tag": "", "device_name": "/dev/sda"})),
            (Some("scsi"), json!({"disk_bus": "scsi"})),
        ] {
            let answer = asked(image, more.clone());
            assert!(answer.is_ok(), "{more}: {answer:?}");
        }
        for (image, more, words) in [
            (None, json!({"tag": "root"}), "a disk with a tag must be a volume"),
            (None, json!({"disk_bus": "scsi"}), "on the bus of its image, virtio, not scsi."),
            (
                Some("ide"),
                json!({"disk_bus": "virtio"}),
                "on the bus of its image, ide, not virtio.",
            ),
            (None, json!({"disk_bus": "xen"}), "Requested hardware 'xen' is not supported"),
        ] {
            let refusal = asked(image, more).expect_err(words);
            assert!(refusal.message.contains(words), "{refusal}");
        }
    }

    #[test]
    fn the_older_form_names_the_root_disk() {
        let legacy = |image: &str, names: [&str; 2]| {
            let entries: Vec<Value> = names
                .iter()
                .zip([A, B])
                .map(|(name, id)| json!({"device_name": name, "volume_id": id}))
                .collect();
            let disks = read(&json!({"imageRef": image, "block_device_mapping": entries}))?;
            let order = disks.volumes.iter().map(|volume| volume.boot_index).collect::<Vec<_>>();
            Ok::<_, Refusal>((disks.image.is_some(), order))
        };
        for (image, names, expected) in [
            ("", ["vdb", "vda"], (false, vec![-1, 0])),
            ("", ["vdb", "/dev/vda"], (false, vec![-1, 0])),
            (A, ["sda", "vdb"], (true, vec![-1, -1])),
            (A, ["vdb", "vda"], (false, vec![-1, 0])),
        ] {
            assert_eq!(legacy(image, names).expect("it is valid"), expected, "{image} {names:?}");
        }
        for names in [["vdb", "vdc"], ["sda", "sdb"], ["vda", "vda"]] {
            let refusal = legacy("", names).expect_err("no disk, or two disks, are first");
            assert!(refusal.message.contains("Boot sequence"), "{names:?}: {}", refusal.message);
        }
    }

    #[test]
    fn local_disks_have_requested_sizes_up_to_those_of_the_flavor() {
        let flavor = crate::capacity::spec_of(FlavorOf {
            ephemeral: 4,
            swap: 1024,
            ..serde_json::from_value(json!({
                "id": "1", "name": "f", "vcpus": 1, "ram": 1, "disk": 1, "ephemeral": 0, "swap": 0,
                "extra_specs": {},
            }))
            .expect("the flavor is valid")
        });
        let swap = |size: Value| {
            json!({
                "source_type": "blank", "destination_type": "local", "boot_index": -1,
                "guest_format": "swap", "volume_size": size,
            })
        };
        let ephemeral = |size: Value| {
            json!({
                "source_type": "blank", "destination_type": "local", "boot_index": -1,
                "guest_format": "ext4", "volume_size": size,
            })
        };
        let sizes = |entries: Value| {
            let body = json!({"imageRef": A, "block_device_mapping_v2": entries});
            read(&body)?
                .local_disks(&flavor.flavor, &BTreeMap::new())
                .map(|disks| (disks.ephemeral_gb, disks.swap_mb))
        };
        for (entries, expected) in [
            (json!([]), (None, None)),
            // The size of swap is in MiB: python-openstackclient's `--swap 512`.
            (json!([swap(json!(512))]), (None, Some(512))),
            (json!([swap(json!("1024")), ephemeral(json!(2))]), (Some(2), Some(1024))),
            (json!([swap(Value::Null), ephemeral(json!(0))]), (None, None)),
        ] {
            assert_eq!(sizes(entries.clone()).expect("it is valid"), expected, "{entries}");
        }
        for (entries, words) in [
            (
                json!([swap(json!(1025))]),
                "Swap drive requested is larger than instance type allows.",
            ),
            (json!([swap(json!(1)), swap(json!(1))]), "More than one swap drive requested."),
            (
                json!([ephemeral(json!(5))]),
                "Ephemeral disks requested are larger than the instance",
            ),
            (
                json!([ephemeral(json!(3)), ephemeral(json!(2))]),
                "Ephemeral disks requested are larger",
            ),
            (json!([ephemeral(json!(2)), ephemeral(json!(2))]), "Request one of up to 4 GiB."),
        ] {
            let refusal = sizes(entries.clone()).expect_err(words);
            assert!(refusal.message.contains(words), "{entries}: {}", refusal.message);
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_novas_words() {
        let entry = |source: &str, destination: &str, more: Value| {
            let mut entry =
                json!({"source_type": source, "destination_type": destination, "boot_index": 0});
            for (key, value) in more.as_object().into_iter().flatten() {
                entry[key] = value.clone();
            }
            entry
        };
        for (entries, words) in [
            (json!([entry("volume", "volume", json!({}))]), "Missing device UUID."),
            (json!([entry("volume", "volume", json!({"uuid": "x"}))]), "failed to get volume x."),
            (
                json!([entry("snapshot", "volume", json!({"uuid": "x"}))]),
                "failed to get snapshot x.",
            ),
            (json!([entry("image", "volume", json!({"uuid": A}))]), "non-zero size specified"),
            (json!([entry("blank", "volume", json!({}))]), "need to have non-zero size"),
            (
                json!([entry("blank", "volume", json!({"uuid": A, "volume_size": 1}))]),
                "Invalid device UUID.",
            ),
            (json!([entry("volume", "local", json!({"uuid": A}))]), "to local is not supported"),
            (
                json!([entry("image", "local", json!({"uuid": A, "boot_index": 1}))]),
                "Mapping image to local",
            ),
            (
                json!([entry("volume", "volume", json!({"uuid": A, "boot_index": 1}))]),
                "Boot sequence",
            ),
            (
                json!([entry("volume", "volume", json!({"uuid": A, "boot_index": null}))]),
                "Boot sequence",
            ),
            (
                json!([entry("volume", "volume", json!({"uuid": A, "volume_type": "x"}))]),
                "existing volume",
            ),
            (
                json!([entry("image", "local", json!({"uuid": A, "volume_type": "x"}))]),
                "destination_type=local",
            ),
            (
                json!([
                    entry("volume", "volume", json!({"uuid": A})),
                    entry("volume", "volume", json!({"uuid": A, "boot_index": -1})),
                ]),
                "volume 11111111-1111-4111-8111-111111111111 is named twice.",
            ),
            (Value::Array(vec![json!({"no_device": true}); 256]), "more than 255 block devices."),
        ] {
            let refusal = v2(entries.clone()).expect_err(words);
            assert!(refusal.message.contains(words), "{entries}: {}", refusal.message);
        }
        let both = json!({"block_device_mapping": [{}], "block_device_mapping_v2": [{}]});
        assert!(
            read(&both).expect_err("two forms").message.contains("different block_device_mapping")
        );
        let twice =
            json!({"imageRef": A, "block_device_mapping": [{"volume_id": A}, {"volume_id": A}]});
        assert!(read(&twice).expect_err("twice").message.contains("is named twice."));
        let many =
            json!({"imageRef": A, "block_device_mapping": vec![json!({"volume_id": A}); 256]});
        assert!(read(&many).expect_err("many").message.contains("more than 255"));
        assert!(read(&json!({})).expect_err("nothing").message.contains("a server boots from"));
    }
}

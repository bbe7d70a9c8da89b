//! Merges the volumes that an image names into those of a request. Pure.
//!
//! As in Nova, an entry of the request replaces the image's entry for the same disk, and the image's root
//! volume replaces the image itself as the root disk.

use std::collections::{BTreeMap, HashSet};

use kilonova_wire::Refusal;
use serde_json::Value;

use super::{
    MOST_DEVICES, ROOT_DEVICE, Wanted, WantedDisks, check_order, check_twice, invalid, truth,
};
use crate::volumes::image::{BDM_V2, MAPPING, MAPPINGS, ROOT_DEVICE_NAME};

type Properties = BTreeMap<String, String>;

/// The entries that an image names; `None` for an image that names no volumes.
fn entries(properties: &Properties) -> Option<&str> {
    let text = properties.get(MAPPING)?.trim();
    (!["", "[]"].contains(&text)).then_some(text)
}

/// True if an image names volumes.
pub fn names_volumes(properties: &Properties) -> bool {
    entries(properties).is_some()
}

/// Removes an image's properties about disks. A server keeps the others.
pub fn without_volumes(mut properties: Properties) -> Properties {
    for key in [MAPPING, BDM_V2, ROOT_DEVICE_NAME, MAPPINGS] {
        properties.remove(key);
    }
    properties
}

/// The name of the root disk that an image's properties give (`properties_root_device_name` in `nova/block_device.py`),
/// or else the usual one.
fn root_device(properties: &Properties) -> String {
    let own = properties.get(ROOT_DEVICE_NAME).map(|name| name.trim_start_matches("/dev/"));
    own.filter(|name| !name.is_empty()).unwrap_or(ROOT_DEVICE).to_owned()
}

/// The disks of a request with the volumes that its image names.
///
/// # Errors
/// 400 with Nova's messages.
pub fn with_image(asked: &WantedDisks, properties: &Properties) -> Result<WantedDisks, Refusal> {
    let text = entries(properties).unwrap_or("[]");
    let list = match serde_json::from_str::<Value>(text) {
        Ok(Value::Array(list)) => list,
        Ok(_) | Err(_) => {
            return Err(invalid("the block device mapping of the image has an unknown format."));
        }
    };
    let is_new = properties.get(BDM_V2).is_some_and(|text| truth(&Value::from(text.as_str())));
    let root_device = root_device(properties);
    let mut of_image = WantedDisks::default();
    for entry in list.iter().filter(|entry| !truth(&entry["no_device"])) {
        if !is_new {
            of_image.volumes.push(super::read_legacy(entry, &root_device)?);
        } else if entry["destination_type"] != "local" {
            // Local entries are ignored: a server's local disks come from its flavor.
            super::read_entry(&mut of_image, &mut false, entry)?;
        }
    }
    let mut disks = asked.clone();
    if of_image.is_volume_backed() {
        disks.image = None;
        disks
            .volumes
            .retain(|one| !(one.boot_index == 0 && matches!(one.source, Wanted::Image(_))));
    }
    let named: HashSet<&str> = asked
        .volumes
        .iter()
        .filter_map(|one| one.device.as_deref())
        .chain(asked.absent.iter().map(String::as_str))
        .collect();
    let is_free = |name: &Option<String>| name.as_deref().is_none_or(|name| !named.contains(name));
    disks.volumes.extend(of_image.volumes.into_iter().filter(|one| is_free(&one.device)));
    if disks.volumes.len() > MOST_DEVICES {
        return Err(invalid(&format!("there are more than {MOST_DEVICES} block devices.")));
    }
    check_order(&disks, false)?;
    check_twice(&disks)?;
    Ok(disks)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::volumes::request::read;

    const A: &str = "11111111-1111-4111-8111-111111111111";
    const B: &str = "22222222-2222-4222-8222-222222222222";
    const C: &str = "33333333-3333-4333-8333-333333333333";

    fn image(entries: Value) -> Properties {
        let pairs = [(MAPPING, entries.to_string()), (BDM_V2, "True".to_owned())];
        pairs.map(|(key, value)| (key.to_owned(), value)).into()
    }

    fn entry(snapshot: &str, index: Value, device: &str) -> Value {
        json!({
            "source_type": "snapshot", "destination_type": "volume", "snapshot_id": snapshot,
            "boot_index": index, "device_name": device, "volume_size": 2, "no_device": null,
            "volume_id": null, "image_id": null, "guest_format": null, "tag": null,
            "volume_type": null, "disk_bus": "virtio", "device_type": "disk",
            "delete_on_termination": true,
        })
    }

    /// The merged volumes: snapshot or other source, boot index, device.
    fn merged(
        request: Value,
        properties: &Properties,
    ) -> Result<Vec<(String, i64, String)>, Refusal> {
        let disks = with_image(&read(&request)?, properties)?;
        let source = |wanted: &Wanted| match wanted {
            Wanted::Snapshot(id) => id.to_string(),
            Wanted::Volume(id) => id.to_string(),
            Wanted::Image(_) => "image".to_owned(),
            Wanted::Blank => "blank".to_owned(),
        };
        let one = |one: &super::super::WantedVolume| {
            (source(&one.source), one.boot_index, one.device.clone().unwrap_or_default())
        };
        let local = disks.image.map(|_| ("local".to_owned(), 0, String::new()));
        Ok(local.into_iter().chain(disks.volumes.iter().map(one)).collect())
    }

    fn volume(source: &str, index: i64, device: &str) -> (String, i64, String) {
        (source.to_owned(), index, device.to_owned())
    }

    #[test]
    fn a_server_gets_the_volumes_of_its_image() {
        let two = image(json!([entry(A, json!(0), "/dev/vda"), entry(B, Value::Null, "/dev/vdb")]));
        assert!(names_volumes(&two));
        let plain = merged(json!({"imageRef": C}), &two).expect("it is valid");
        assert_eq!(plain, [volume(A, 0, "vda"), volume(B, -1, "vdb")]);
        // The client also names the image as the root disk.
        let local = json!({"source_type": "image", "destination_type": "local", "uuid": C, "boot_index": 0});
        let both = json!({"imageRef": C, "block_device_mapping_v2": [local]});
        assert_eq!(merged(both, &two).expect("it is valid"), plain);
        // A disk of the request replaces the image's disk of the same name; other disks are added.
        let blank = json!({
            "source_type": "blank", "destination_type": "volume", "volume_size": 3,
            "device_name": "/dev/vdb", "boot_index": -1,
        });
        let more = json!({"source_type": "volume", "destination_type": "volume", "uuid": C});
        let request = json!({"imageRef": C, "block_device_mapping_v2": [blank, more]});
        let expected = [volume("blank", -1, "vdb"), volume(C, -1, ""), volume(A, 0, "vda")];
        assert_eq!(merged(request, &two).expect("it is valid"), expected);
        // The request excludes a disk of the image.
        let none = json!({"device_name": "/dev/vdb", "no_device": true});
        let request = json!({"imageRef": C, "block_device_mapping_v2": [none]});
        assert_eq!(merged(request, &two).expect("it is valid"), [volume(A, 0, "vda")]);
        // An image with data and a data volume.
        let data = image(json!([entry(B, json!(-1), "/dev/vdb")]));
        let expected = [volume("local", 0, ""), volume(B, -1, "vdb")];
        assert_eq!(merged(json!({"imageRef": C}), &data).expect("it is valid"), expected);
    }

    #[test]
    fn other_forms_are_read_or_refused() {
        let old = json!([{"device_name": "/dev/vda", "snapshot_id": A}, {"device_name": "vdb", "volume_id": B}]);
        let old: Properties = [(MAPPING.to_owned(), old.to_string())].into();
        let expected = [volume(A, 0, "vda"), volume(B, -1, "vdb")];
        assert_eq!(merged(json!({"imageRef": C}), &old).expect("it is valid"), expected);
        let other = json!([{"device_name": "vda", "snapshot_id": A}, {"device_name": "sda", "snapshot_id": B}]);
        let other = [(MAPPING, other.to_string()), (ROOT_DEVICE_NAME, "/dev/sda".to_owned())];
        let other = other.map(|(key, value)| (key.to_owned(), value)).into();
        let expected = [volume(A, -1, "vda"), volume(B, 0, "sda")];
        assert_eq!(merged(json!({"imageRef": C}), &other).expect("it is valid"), expected);
        let local = json!({
            "source_type": "blank", "destination_type": "local", "guest_format": "swap",
            "boot_index": -1, "volume_size": 1,
        });
        let swap = image(json!([entry(A, json!(0), "/dev/vda"), local]));
        let expected = [volume(A, 0, "vda")];
        assert_eq!(merged(json!({"imageRef": C}), &swap).expect("it is valid"), expected);
        for (list, words) in [
            (json!({"a": 1}), "unknown format"),
            (json!([entry("x", json!(0), "/dev/vda")]), "failed to get snapshot x."),
            (json!([entry(A, json!(1), "/dev/vda"), entry(B, json!(3), "vdb")]), "Boot sequence"),
            (Value::Array(vec![entry(A, json!(-1), "/dev/vdb"); 256]), "more than 255"),
        ] {
            let refusal = merged(json!({"imageRef": C}), &image(list)).expect_err(words);
            assert!(refusal.message.contains(words), "{}", refusal.message);
        }
        for text in ["", "[]", " "] {
            let none: Properties = [(MAPPING.to_owned(), text.to_owned())].into();
            assert!(!names_volumes(&none), "{text:?}");
        }
        let kept =
            without_volumes([("a".to_owned(), "b".to_owned())].into_iter().chain(old).collect());
        assert_eq!(kept.keys().collect::<Vec<_>>(), ["a"]);
    }
}

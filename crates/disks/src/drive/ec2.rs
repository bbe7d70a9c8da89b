//! `ec2/<version>/…`: the metadata in the EC2 format.

use kilonova_hypervisor::Definition;
use serde_json::{Map, Value, json};

pub(super) fn files(
    definition: &Definition,
    hostname: &str,
    user_data: Option<&[u8]>,
) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for version in ["2009-04-04", "latest"] {
        let data = meta_data(definition, hostname).to_string().into_bytes();
        files.push((format!("ec2/{version}/meta-data.json"), data));
        if let Some(user_data) = user_data {
            files.push((format!("ec2/{version}/user-data"), user_data.to_owned()));
        }
    }
    files
}

fn meta_data(definition: &Definition, hostname: &str) -> Value {
    let guest = &definition.config.guest;
    let number = definition.config.name.rsplit('-').next().unwrap_or_default();
    let address = definition.config.interfaces.iter().flat_map(|interface| &interface.addresses);
    let mut addresses = address.map(|address| address.address).filter(|one| one.is_ipv4());
    let mut data = json!({
        "ami-launch-index": guest.launch_index,
        "block-device-mapping": {"ami": "vda", "root": "/dev/vda"},
        "hostname": hostname,
        "instance-action": "none",
        "instance-id": format!("i-{number}"),
        "instance-type": guest.flavor,
        "local-hostname": hostname,
        "local-ipv4": addresses.next(),
        "placement": {"availability-zone": guest.availability_zone},
        "public-hostname": hostname,
        "public-ipv4": null,
        "reservation-id": guest.reservation,
        "security-groups": [],
    });
    let short =
        |image: kilonova_ids::ImageId| image.to_string().chars().take(8).collect::<String>();
    let images = [
        ("ami-id", "ami", definition.config.boot.image),
        ("kernel-id", "aki", definition.config.machine.kernel),
        ("ramdisk-id", "ari", definition.config.machine.ramdisk),
    ];
    for (key, kind, image) in images {
        if let Some(image) = image {
            data[key] = format!("{kind}-{}", short(image)).into();
        }
    }
    if !guest.keys.is_empty() {
        let keys: Map<String, Value> = guest
            .keys
            .iter()
            .enumerate()
            .map(|(number, key)| {
                let entry = json!({
                    "_name": format!("{number}={}", key.name),
                    "openssh-key": key.public_key,
                });
                (number.to_string(), entry)
            })
            .collect();
        data["public-keys"] = keys.into();
    }
    data
}

//! `openstack/<version>/…`: the metadata in each version of the format.

use kilonova_hypervisor::Definition;
use serde_json::{Map, Value, json};

use super::network;

/// The versions, oldest first.
const VERSIONS: [&str; 10] = [
    "2012-08-10",
    "2013-04-04",
    "2013-10-17",
    "2015-10-15",
    "2016-06-30",
    "2016-10-06",
    "2017-02-22",
    "2018-08-27",
    "2020-10-14",
    "2025-04-04",
];
const LATEST: &str = "latest";
const GRIZZLY: &str = "2013-04-04";
const HAVANA: &str = "2013-10-17";
const LIBERTY: &str = "2015-10-15";
const NEWTON: &str = "2016-06-30";
const NEWTON_LATE: &str = "2016-10-06";
const VICTORIA: &str = "2020-10-14";

pub(super) fn files(
    definition: &Definition,
    hostname: &str,
    seed: &str,
    user_data: Option<&[u8]>,
) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for version in VERSIONS.into_iter().chain([LATEST]) {
        // "latest" sorts after every date.
        let knows = |since: &str| version >= since;
        let mut add = |name: &str, content: Vec<u8>| {
            files.push((format!("openstack/{version}/{name}"), content));
        };
        add("meta_data.json", text(&meta_data(definition, hostname, seed, knows)));
        if let Some(user_data) = user_data {
            add("user_data", user_data.to_owned());
        }
        if knows(HAVANA) {
            add("vendor_data.json", text(&json!({})));
        }
        if knows(LIBERTY) {
            add("network_data.json", text(&network::data(&definition.config.interfaces)));
        }
        if knows(NEWTON_LATE) {
            add("vendor_data2.json", text(&json!({"static": {}})));
        }
    }
    files
}

fn meta_data(
    definition: &Definition,
    hostname: &str,
    seed: &str,
    knows: impl Fn(&str) -> bool,
) -> Value {
    let guest = &definition.config.guest;
    let mut data = Map::new();
    let mut say = |key: &str, value: Value| data.insert(key.to_owned(), value);
    say("uuid", json!(definition.server));
    if !guest.metadata.is_empty() {
        say("meta", json!(guest.metadata));
    }
    if !guest.keys.is_empty() {
        let public: Map<String, Value> =
            guest.keys.iter().map(|key| (key.name.clone(), json!(key.public_key))).collect();
        say("public_keys", public.into());
        let keys = guest
            .keys
            .iter()
            .map(|key| json!({"name": key.name, "type": key.kind, "data": key.public_key}));
        say("keys", keys.collect());
    }
    say("hostname", json!(hostname));
    say("name", json!(definition.config.display_name));
    say("launch_index", json!(guest.launch_index));
    say("availability_zone", json!(guest.availability_zone));
    if knows(GRIZZLY) {
        say("random_seed", json!(seed));
    }
    if knows(LIBERTY) {
        say("project_id", json!(guest.project));
    }
    if knows(NEWTON) {
        say("devices", network::tagged(&definition.config.interfaces));
    }
    if knows(VICTORIA) {
        say("dedicated_cpus", json!([]));
    }
    data.into()
}

fn text(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

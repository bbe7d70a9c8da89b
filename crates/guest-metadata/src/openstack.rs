//! The metadata in the OpenStack format, in each of its versions.

use kilonova_node_api::InjectedFile;
use serde_json::{Map, Value, json};

use crate::path::{Answer, LATEST};
use crate::{Document, TaggedDisk, network};

/// The versions, oldest first.
const VERSIONS: [&str; 10] = [
    "2012-08-10",
    GRIZZLY,
    HAVANA,
    LIBERTY,
    NEWTON,
    NEWTON_LATE,
    OCATA,
    ROCKY,
    VICTORIA,
    "2025-04-04",
];
const GRIZZLY: &str = "2013-04-04";
const HAVANA: &str = "2013-10-17";
const LIBERTY: &str = "2015-10-15";
const NEWTON: &str = "2016-06-30";
const NEWTON_LATE: &str = "2016-10-06";
const OCATA: &str = "2017-02-22";
const ROCKY: &str = "2018-08-27";
const VICTORIA: &str = "2020-10-14";

const META_DATA: &str = "meta_data.json";
const USER_DATA: &str = "user_data";
const PASSWORD: &str = "password";
const VENDOR_DATA: &str = "vendor_data.json";
const NETWORK_DATA: &str = "network_data.json";
const VENDOR_DATA_2: &str = "vendor_data2.json";

/// A known version. "latest" sorts after every date.
#[derive(Clone, Copy)]
struct Version<'a>(&'a str);

impl Version<'_> {
    fn knows(self, since: &str) -> bool {
        self.0 >= since
    }
}

pub(crate) fn versions(today: &str) -> Answer {
    let mut lines = VERSIONS.to_vec();
    lines.retain(|version| *version <= today);
    lines.push(LATEST);
    Answer::text(lines.join("\n"))
}

/// The path of the content of an injected file below `openstack`.
pub(crate) fn content(number: usize) -> String {
    format!("content/{number:04}")
}

pub(crate) fn lookup(
    document: &Document,
    version: &str,
    rest: &[&str],
    seed: &str,
) -> Option<Answer> {
    if version != LATEST && !VERSIONS.contains(&version) {
        return None;
    }
    let version = Version(version);
    match *rest {
        [] => Some(Answer::text(names(document, version).join("\n"))),
        [META_DATA] => Some(Answer::json(&meta_data(document, &[], version, seed))),
        [USER_DATA] => document.user_data.clone().map(Answer::text),
        [PASSWORD] => version.knows(GRIZZLY).then_some(Answer::Password),
        [VENDOR_DATA] if version.knows(HAVANA) => {
            document.vendordata.fixed.as_ref().map(Answer::json)
        }
        // Like Nova, serves it at this path in every version, as text.
        [NETWORK_DATA] => {
            Some(Answer::text(network::data(&document.interfaces).to_string().into_bytes()))
        }
        [VENDOR_DATA_2] => {
            version.knows(NEWTON_LATE).then(|| Answer::json(&vendor_data_2(document)))
        }
        _ => None,
    }
}

/// The files of a version in the metadata service.
fn names(document: &Document, version: Version<'_>) -> Vec<&'static str> {
    let all = [
        (META_DATA, true),
        (USER_DATA, document.user_data.is_some()),
        (PASSWORD, version.knows(GRIZZLY)),
        (VENDOR_DATA, version.knows(HAVANA)),
        (NETWORK_DATA, version.knows(LIBERTY)),
        (VENDOR_DATA_2, version.knows(NEWTON_LATE)),
    ];
    all.into_iter().filter_map(|(name, has)| has.then_some(name)).collect()
}

pub(crate) fn files(
    document: &Document,
    injected: &[InjectedFile],
    seed: &str,
) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for name in VERSIONS.into_iter().chain([LATEST]) {
        for file in names(document, Version(name)) {
            let found = match file {
                META_DATA => {
                    Some(Answer::json(&meta_data(document, injected, Version(name), seed)))
                }
                _ => lookup(document, name, &[file], seed),
            };
            if let Some(Answer::Body(_, content)) = found {
                files.push((format!("openstack/{name}/{file}"), content));
            }
        }
    }
    files
}

fn meta_data(
    document: &Document,
    injected: &[InjectedFile],
    version: Version<'_>,
    seed: &str,
) -> Value {
    let guest = &document.guest;
    let mut data = Map::new();
    let mut say = |key: &str, value: Value| data.insert(key.to_owned(), value);
    say("uuid", json!(document.server));
    if !guest.metadata.is_empty() {
        say("meta", json!(guest.metadata));
    }
    if !injected.is_empty() {
        let file = |(number, file): (usize, &InjectedFile)| json!({"path": file.path, "content_path": format!("/{}", content(number))});
        say("files", injected.iter().enumerate().map(file).collect());
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
    say("hostname", json!(document.hostname));
    say("name", json!(document.name));
    say("launch_index", json!(guest.launch_index));
    say("availability_zone", json!(guest.availability_zone));
    if version.knows(GRIZZLY) {
        say("random_seed", json!(seed));
    }
    if version.knows(LIBERTY) {
        say("project_id", json!(guest.project));
    }
    if version.knows(NEWTON) {
        let (vlans, trust) = (version.knows(OCATA), version.knows(ROCKY));
        let mut devices = network::tagged(&document.interfaces, vlans, trust);
        devices.extend(document.disks.iter().map(TaggedDisk::entry));
        say("devices", devices.into());
    }
    if version.knows(VICTORIA) {
        say("dedicated_cpus", json!(guest.dedicated_cpus));
    }
    data.into()
}

/// The content of the vendor-data file merged with the services' answers. An answer never replaces
/// the file's content.
fn vendor_data_2(document: &Document) -> Value {
    let mut data = document.vendordata.dynamic.clone();
    if let Some(fixed) = &document.vendordata.fixed {
        data.insert("static".to_owned(), fixed.clone());
    }
    data.into()
}

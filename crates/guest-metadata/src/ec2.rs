//! The metadata in the EC2 format: a tree of directories and values, and the files of the config drive.

use serde_json::{Map, Value, json};

use crate::Document;
use crate::path::{Answer, LATEST};

/// The versions, oldest first.
const VERSIONS: [&str; 9] = [
    "1.0",
    "2007-01-19",
    "2007-03-01",
    "2007-08-29",
    "2007-10-10",
    "2007-12-15",
    "2008-02-01",
    "2008-09-01",
    "2009-04-04",
];
/// The versions on the config drive: those that Nova's default `config_drive_skip_versions` does
/// not skip.
const ON_DRIVE: [&str; 2] = ["2009-04-04", LATEST];
/// The key of a directory's own line in the list of its parent.
const LINE: &str = "_name";

pub(crate) fn versions() -> Answer {
    let mut lines = VERSIONS.to_vec();
    lines.push(LATEST);
    Answer::text(lines.join("\n"))
}

pub(crate) fn lookup(
    document: &Document,
    version: &str,
    rest: &[&str],
    address: Option<&str>,
) -> Option<Answer> {
    if version != LATEST && !VERSIONS.contains(&version) {
        return None;
    }
    match *rest {
        [] => Some(Answer::text(match document.user_data {
            Some(_) => "meta-data/\nuser-data",
            None => "meta-data/",
        })),
        ["user-data"] => document.user_data.clone().map(Answer::text),
        ["meta-data", ref keys @ ..] => {
            let tree = meta_data(document, version, address);
            let found = keys.iter().try_fold(&tree, |value, key| value.as_object()?.get(*key))?;
            Some(Answer::text(print(found)))
        }
        _ => None,
    }
}

pub(crate) fn files(document: &Document) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for version in ON_DRIVE {
        let data = meta_data(document, version, None).to_string().into_bytes();
        files.push((format!("ec2/{version}/meta-data.json"), data));
        if let Some(user_data) = &document.user_data {
            files.push((format!("ec2/{version}/user-data"), user_data.clone()));
        }
    }
    files
}

/// The tree of a known version.
fn meta_data(document: &Document, version: &str, address: Option<&str>) -> Value {
    // "latest" sorts after every date, and "1.0" before.
    let knows = |since: &str| version >= since;
    let guest = &document.guest;
    let mut tree = Map::new();
    let mut say = |key: &str, value: Value| tree.insert(key.to_owned(), value);
    let addresses = document
        .interfaces
        .iter()
        .flat_map(|interface| &interface.addresses)
        .filter(|address| address.address.is_ipv4());
    let first = addresses.clone().next().map(|first| first.address.to_string());
    if let Some(image) = &document.images.machine {
        say("ami-id", json!(image));
    }
    say("ami-launch-index", json!(guest.launch_index));
    say("ami-manifest-path", json!("FIXME"));
    say("instance-id", json!(document.instance_id));
    say("hostname", json!(document.hostname));
    say("local-ipv4", json!(first.as_deref().or(address)));
    say("reservation-id", json!(guest.reservation));
    say("security-groups", json!(document.security_groups));
    if !guest.keys.is_empty() {
        let keys = guest.keys.iter().enumerate().map(|(number, key)| {
            let line = format!("{number}={}", key.name);
            (number.to_string(), json!({LINE: line, "openssh-key": key.public_key}))
        });
        say("public-keys", Value::Object(keys.collect()));
    }
    if knows("2007-01-19") {
        say("local-hostname", json!(document.hostname));
        say("public-hostname", json!(document.hostname));
        let mut floating = addresses.clone().flat_map(|address| &address.floating);
        say("public-ipv4", json!(floating.next().map(ToString::to_string).unwrap_or_default()));
    }
    if knows("2007-08-29") {
        say("instance-type", json!(guest.flavor));
    }
    if knows("2007-12-15") {
        say("block-device-mapping", json!(document.block_devices));
        if let Some(kernel) = &document.images.kernel {
            say("kernel-id", json!(kernel));
        }
        if let Some(ramdisk) = &document.images.ramdisk {
            say("ramdisk-id", json!(ramdisk));
        }
    }
    if knows("2008-02-01") {
        say("placement", json!({"availability-zone": guest.availability_zone}));
    }
    if knows("2008-09-01") {
        say("instance-action", json!("none"));
    }
    tree.into()
}

/// A directory as the sorted list of its keys, anything else as its value. Nothing ends with a newline.
fn print(value: &Value) -> String {
    match value {
        Value::Object(entries) => {
            let mut lines: Vec<(&str, String)> = entries
                .iter()
                .filter(|(key, _)| *key != LINE)
                .map(|(key, value)| (key.as_str(), line(key, value)))
                .collect();
            lines.sort_by_key(|(key, _)| *key);
            lines.into_iter().map(|(_, line)| line).collect::<Vec<_>>().join("\n")
        }
        Value::Array(items) => items.iter().map(print).collect::<Vec<_>>().join("\n"),
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// The line of an entry in the list of its directory.
fn line(key: &str, value: &Value) -> String {
    match value.as_object() {
        None => key.to_owned(),
        Some(entries) => match entries.get(LINE).and_then(Value::as_str) {
            Some(line) => line.to_owned(),
            None => format!("{key}/"),
        },
    }
}

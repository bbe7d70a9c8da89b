//! Parses `[devices]` and `[mdev_<type>]` as in nova.conf, and their old names `enabled_vgpu_types`
//! and `[vgpu_<type>]`; `mdev_retyping`, `mig_instances`, `nvlink_islands` and `min_instances` are
//! Kilonova's own.
//!
//! `kilonova_devices` owns their meaning.

use std::collections::BTreeMap;

use kilonova_devices::{Cleanup, Links, MdevGroup, MdevOptions};
use kilonova_ids::ResourceClass;

use super::File;
use crate::Failure;

const GROUP: &str = "devices";
const ENABLED: &str = "enabled_mdev_types";
const ENABLED_OLD: &str = "enabled_vgpu_types";
const ADDRESSES: &str = "device_addresses";
const CLASS: &str = "mdev_class";
const MOST: &str = "max_instances";
const LEAST: &str = "min_instances";
const RETYPING: &str = "mdev_retyping";
const MIG: &str = "mig_instances";
const ISLANDS: &str = "nvlink_islands";
const CLEANUP: &str = "cleanup_command";
const CLEANUP_TIME: &str = "cleanup_timeout";

pub(super) fn is_known_group(group: &str) -> bool {
    group == GROUP || mdev_type(group).is_some()
}

pub(super) fn is_known(group: &str, option: &str) -> bool {
    if group == GROUP {
        matches!(option, ENABLED | ENABLED_OLD | RETYPING | MIG | ISLANDS | CLEANUP | CLEANUP_TIME)
    } else {
        mdev_type(group).is_some() && matches!(option, ADDRESSES | CLASS | MOST | LEAST)
    }
}

/// Parses `[devices]` and its types.
///
/// # Errors
/// A message with file, line, group and option.
pub fn options(file: &File) -> Result<MdevOptions, Failure> {
    let enabled = match (file.get(GROUP, ENABLED), file.get(GROUP, ENABLED_OLD)) {
        (Some(_), Some(_)) => {
            let why = format!("it is the old name of {ENABLED}, which is set too; remove one");
            return Err(file.wrong(GROUP, ENABLED_OLD, &why));
        }
        (new, old) => list(new.or(old).unwrap_or_default()),
    };
    let mut groups = BTreeMap::new();
    let mut names = BTreeMap::new();
    for name in file.groups() {
        let Some(mdev_type) = mdev_type(name) else { continue };
        if let Some(other) = names.insert(mdev_type.to_owned(), name.to_owned()) {
            let why = format!("[{name}] and [{other}] are the same group; remove one of them");
            let option =
                [ADDRESSES, CLASS, MOST, LEAST].into_iter().find(|o| file.get(name, o).is_some());
            return Err(file.wrong(name, option.unwrap_or(ADDRESSES), &why));
        }
        groups.insert(mdev_type.to_owned(), group(file, name)?);
    }
    let retyping = file.parse(GROUP, RETYPING, "true or false")?.unwrap_or(false);
    let mig_instances = file.parse(GROUP, MIG, "true or false")?.unwrap_or(false);
    let options = MdevOptions { enabled, groups, retyping, mig_instances };
    options.check().map_err(|wrong| {
        let name = mdev_type(&wrong.group).and_then(|mdev_type| names.get(mdev_type));
        let old = wrong.option == ENABLED && file.get(GROUP, ENABLED).is_none();
        let option = if old { ENABLED_OLD } else { wrong.option };
        file.wrong(name.unwrap_or(&wrong.group), option, &wrong.why)
    })?;
    Ok(options)
}

/// Parses `[devices] cleanup_command`, once per resource class, and `cleanup_timeout`.
///
/// # Errors
/// A message with file, line, group and option.
pub fn cleanup(file: &File) -> Result<Cleanup, Failure> {
    let mut entries = Vec::new();
    for (line, text) in file.values(GROUP, CLEANUP) {
        let one = std::slice::from_ref(&text);
        Cleanup::new(one, None).map_err(|why| file.wrong_at(line, GROUP, CLEANUP, &why))?;
        entries.push(text);
    }
    let seconds: Option<u64> = file.parse(GROUP, CLEANUP_TIME, "seconds, at least 1")?;
    if seconds == Some(0) {
        return Err(file.wrong(GROUP, CLEANUP_TIME, "it must be at least 1"));
    }
    Cleanup::new(&entries, seconds).map_err(|why| file.wrong(GROUP, CLEANUP, &why))
}

/// Parses `[devices] nvlink_islands`, once per island.
///
/// # Errors
/// A message with file, line, group and option.
pub fn links(file: &File) -> Result<Links, Failure> {
    let values = file.values(GROUP, ISLANDS).into_iter();
    let values: Vec<String> = values.map(|(_, text)| text).collect();
    Links::parse(&values).map_err(|why| file.wrong(GROUP, ISLANDS, &why))
}

fn group(file: &File, name: &str) -> Result<MdevGroup, Failure> {
    Ok(MdevGroup {
        device_addresses: list(file.get(name, ADDRESSES).unwrap_or_default()),
        mdev_class: file.get(name, CLASS).map(ResourceClass::verbatim),
        max_instances: file.parse(name, MOST, "a whole number of at least 1")?,
        min_instances: file.parse(name, LEAST, "a whole number")?,
    })
}

fn mdev_type(group: &str) -> Option<&str> {
    let rest = group.strip_prefix("mdev_").or_else(|| group.strip_prefix("vgpu_"));
    rest.filter(|rest| !rest.is_empty())
}

fn list(text: &str) -> Vec<String> {
    let items = text.split([',', '\n']).map(str::trim).filter(|item| !item.is_empty());
    items.map(str::to_owned).collect()
}

#[cfg(test)]
#[path = "devices_tests.rs"]
mod tests;

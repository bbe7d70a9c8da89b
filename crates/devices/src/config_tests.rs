//! The options: their meaning and their refusals.

use std::collections::BTreeMap;

use super::{MdevConfig, MdevGroup, MdevOptions};
use crate::Error;
use crate::testing::Fixture;

fn enabled(types: &[&str]) -> Vec<String> {
    types.iter().map(|one| (*one).to_owned()).collect()
}

fn group(addresses: &[&str]) -> MdevGroup {
    MdevGroup { device_addresses: enabled(addresses), ..MdevGroup::default() }
}

fn groups(all: &[(&str, MdevGroup)]) -> BTreeMap<String, MdevGroup> {
    all.iter().map(|(name, group)| ((*name).to_owned(), group.clone())).collect()
}

fn read(types: &[&str], all: &[(&str, MdevGroup)], fixture: &Fixture) -> Result<MdevConfig, Error> {
    let options = MdevOptions {
        enabled: enabled(types),
        groups: groups(all),
        retyping: false,
        mig_instances: false,
    };
    MdevConfig::new(&options, &fixture.sysfs())
}

fn refusal(types: &[&str], all: &[(&str, MdevGroup)]) -> String {
    read(types, all, &Fixture::new()).expect_err("the value is refused").to_string()
}

#[test]
fn nothing_enabled_turns_it_off() {
    let config = read(&[], &[], &Fixture::new()).expect("the options are valid");
    assert!(!config.is_enabled());
    assert_eq!(config.types_of("0000:84:00.0"), [""; 0]);
}

#[test]
fn a_single_type_needs_no_group_and_is_the_default() {
    let config = read(&["nvidia-35"], &[], &Fixture::new()).expect("the options are valid");
    assert_eq!(config.types_of("0000:84:00.0"), ["nvidia-35"]);
    assert_eq!(config.class_of("nvidia-35"), "VGPU");
}

#[test]
fn only_the_first_type_without_addresses_is_the_default_and_it_keeps_its_class() {
    let custom = MdevGroup {
        mdev_class: Some(kilonova_ids::ResourceClass::verbatim("CUSTOM_SMALL")),
        ..MdevGroup::default()
    };
    let all = [("a", custom), ("b", group(&[])), ("c", group(&["0000:85:00.0"]))];
    let config = read(&["a", "b", "c"], &all, &Fixture::new()).expect("the options are valid");
    assert_eq!(config.types_of("0000:84:00.0"), ["a"]);
    assert_eq!(config.types_of("0000:85:00.0"), ["c"]);
    assert_eq!(config.class_of("a"), "CUSTOM_SMALL");
}

#[test]
fn an_address_under_two_types_is_refused_and_both_are_named() {
    let all = [("nvidia-35", group(&["0000:84:00.0"])), ("nvidia-36", group(&["0000:84:00.0"]))];
    let text = refusal(&["nvidia-35", "nvidia-36"], &all);
    assert_eq!(
        text,
        "Invalid configuration for mdev-capable devices: [mdev_nvidia-36] device_addresses: duplicate \
         types for PCI ID 0000:84:00.0: it is listed for nvidia-35 and for nvidia-36"
    );
    let twice = [("nvidia-35", group(&["0000:84:00.0", "0000:84:00.0"]))];
    assert!(refusal(&["nvidia-35"], &twice).contains("0000:84:00.0 is listed twice"));
    let idle = [("a", group(&["0000:84:00.0"])), ("b", group(&["0000:84:00.0"]))];
    read(&["a"], &idle, &Fixture::new()).expect("an unused group does not claim addresses");
}

#[test]
fn a_missing_group_is_refused_when_there_are_several_types() {
    let text = refusal(&["nvidia-35", "nvidia-36"], &[("nvidia-35", group(&["0000:84:00.0"]))]);
    assert!(
        text.ends_with("can't find '[devices]/mdev_nvidia-36 group' in the configuration"),
        "{text}"
    );
}

#[test]
fn addresses_are_pci_or_existing_virtual_parents() {
    for wrong in ["84:00.0", "0000:84:00.9", "mtty_mtty", "../../etc_passwd"] {
        let text = refusal(&["t"], &[("t", group(&[wrong]))]);
        assert!(
            text.contains(&format!("[mdev_t] device_addresses: incorrect device address: {wrong}")),
            "{text}"
        );
    }
    let fixture = Fixture::new();
    fixture.mtty(24);
    let config = read(&["mtty-1"], &[("mtty-1", group(&["mtty_mtty"]))], &fixture);
    assert_eq!(config.expect("the options are valid").types_of("mtty_mtty"), ["mtty-1"]);
}

#[test]
fn class_cap_and_names_are_checked() {
    for class in ["vgpu", "PGPU", "CUSTOM_", "CUSTOM_a", ""] {
        let wrong = MdevGroup {
            mdev_class: Some(kilonova_ids::ResourceClass::verbatim(class)),
            ..MdevGroup::default()
        };
        assert!(refusal(&["t"], &[("t", wrong)]).contains("[mdev_t] mdev_class: "), "{class}");
    }
    let none = MdevGroup { max_instances: Some(0), ..MdevGroup::default() };
    assert!(
        refusal(&["t"], &[("t", none)]).contains("[mdev_t] max_instances: it must be at least 1")
    );
    assert!(refusal(&["t", "t"], &[("t", group(&[]))]).contains("t is listed twice"));
    assert!(refusal(&["a/b"], &[]).contains("'a/b' is not the name"));
    let alone = MdevOptions { mig_instances: true, ..MdevOptions::default() };
    let why = alone.check().expect_err("it needs retyping").to_string();
    assert_eq!(why, "[devices] mig_instances: it has no effect without mdev_retyping = true");
}

#[test]
fn with_retyping_an_address_has_all_types_that_list_it_and_others_all_defaults() {
    let read = |groups: BTreeMap<String, MdevGroup>, retyping: bool| {
        let enabled = enabled(&["a", "b", "c"]);
        let options = MdevOptions { enabled, groups, retyping, mig_instances: false };
        MdevConfig::new(&options, &Fixture::new().sysfs()).map_err(|error| error.to_string())
    };
    let all = [("a", group(&[])), ("b", group(&["0000:85:00.0"])), ("c", group(&["0000:85:00.0"]))];
    let config = read(groups(&all), true).expect("the options are valid");
    assert_eq!(config.types_of("0000:84:00.0"), ["a"]);
    assert_eq!(config.types_of("0000:85:00.0"), ["b", "c"]);
    let all = [("a", group(&[])), ("b", group(&[])), ("c", group(&["0000:85:00.0"]))];
    let config = read(groups(&all), true).expect("the options are valid");
    assert_eq!(config.types_of("0000:84:00.0"), ["a", "b"]);
    assert_eq!(config.types_of("0000:85:00.0"), ["c"], "a listed card keeps its one type");
    let twice =
        [("a", group(&["0000:84:00.0", "0000:84:00.0"])), ("b", group(&[])), ("c", group(&[]))];
    assert!(read(groups(&twice), true).expect_err("twice").contains("is listed twice"));
    let least = MdevGroup { min_instances: Some(2), ..MdevGroup::default() };
    let all = [("a", least), ("b", group(&[])), ("c", group(&[]))];
    let config = read(groups(&all), true).expect("the options are valid");
    assert_eq!(config.minimums(), [("a".to_owned(), 2)]);
    let text = read(groups(&all), false).expect_err("no retyping");
    assert!(text.contains("[mdev_a] min_instances: it has no effect without"), "{text}");
}

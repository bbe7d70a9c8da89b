//! The options: what they mean and what is refused.

use std::collections::BTreeMap;

use super::{MdevConfig, MdevGroup};
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

fn refusal(types: &[&str], all: &[(&str, MdevGroup)]) -> String {
    let fixture = Fixture::new();
    MdevConfig::new(&enabled(types), &groups(all), &fixture.sysfs())
        .expect_err("refused")
        .to_string()
}

#[test]
fn nothing_enabled_turns_it_off() {
    let config = MdevConfig::new(&[], &BTreeMap::new(), &Fixture::new().sysfs()).expect("fine");
    assert!(!config.is_enabled());
    assert_eq!(config.type_of("0000:84:00.0"), None);
}

#[test]
fn a_single_type_needs_no_group_and_is_the_default() {
    let config =
        MdevConfig::new(&enabled(&["nvidia-35"]), &BTreeMap::new(), &Fixture::new().sysfs())
            .expect("fine");
    assert_eq!(config.type_of("0000:84:00.0"), Some("nvidia-35"));
    assert_eq!(config.class_of("nvidia-35"), "VGPU");
}

#[test]
fn only_the_first_type_without_addresses_is_the_default_and_it_keeps_its_class() {
    let custom = MdevGroup { mdev_class: Some("CUSTOM_SMALL".into()), ..MdevGroup::default() };
    let all = groups(&[("a", custom), ("b", group(&[])), ("c", group(&["0000:85:00.0"]))]);
    let config =
        MdevConfig::new(&enabled(&["a", "b", "c"]), &all, &Fixture::new().sysfs()).expect("fine");
    assert_eq!(config.type_of("0000:84:00.0"), Some("a"));
    assert_eq!(config.type_of("0000:85:00.0"), Some("c"));
    assert_eq!(config.class_of("a"), "CUSTOM_SMALL");
}

#[test]
fn an_address_under_two_types_is_refused_and_both_are_named() {
    let all = [("nvidia-35", group(&["0000:84:00.0"])), ("nvidia-36", group(&["0000:84:00.0"]))];
    let text = refusal(&["nvidia-35", "nvidia-36"], &all);
    assert_eq!(
        text,
        "Invalid configuration for mdev-capable devices: duplicate types for PCI ID 0000:84:00.0: \
         it is listed for nvidia-35 and for nvidia-36"
    );
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
fn addresses_are_pci_or_virtual_parents_that_are_there() {
    for wrong in ["84:00.0", "0000:84:00.9", "mtty_mtty", "../../etc_passwd"] {
        let text = refusal(&["t"], &[("t", group(&[wrong]))]);
        assert!(text.ends_with(&format!("incorrect device address: {wrong}")), "{text}");
    }
    let fixture = Fixture::new();
    fixture.mtty(24);
    let config = MdevConfig::new(
        &enabled(&["mtty-1"]),
        &groups(&[("mtty-1", group(&["mtty_mtty"]))]),
        &fixture.sysfs(),
    );
    assert_eq!(config.expect("fine").type_of("mtty_mtty"), Some("mtty-1"));
}

#[test]
fn class_cap_and_names_are_checked() {
    for class in ["vgpu", "PGPU", "CUSTOM_", "CUSTOM_a", ""] {
        let wrong = MdevGroup { mdev_class: Some(class.into()), ..MdevGroup::default() };
        assert!(refusal(&["t"], &[("t", wrong)]).contains("'[mdev_t]/mdev_class'"), "{class}");
    }
    let none = MdevGroup { max_instances: Some(0), ..MdevGroup::default() };
    assert!(
        refusal(&["t"], &[("t", none)]).contains("'[mdev_t]/max_instances' must be at least 1")
    );
    assert!(refusal(&["t", "t"], &[("t", group(&[]))]).contains("names t twice"));
    assert!(refusal(&["a/b"], &[]).contains("'a/b' is not the name"));
}

//! Entries: their meaning and their refusals.

use super::{DeviceSpec, MatchOf};
use crate::PciAddress;

fn one(text: &str) -> DeviceSpec {
    let mut all = DeviceSpec::parse(text).expect(text);
    assert_eq!(all.len(), 1, "{text}");
    all.remove(0)
}

fn refusal(text: &str) -> String {
    DeviceSpec::parse(text).expect_err(text).to_string()
}

fn pci(text: &str) -> PciAddress {
    PciAddress::parse(text).expect("the address is valid")
}

/// Matches an X710: the card, or a virtual function of the card at `physical`.
fn is_matched(spec: &DeviceSpec, address: &str, physical: Option<&str>) -> bool {
    let product_id = if physical.is_some() { "154c" } else { "1572" };
    let (address, physical) = (pci(address), physical.map(pci));
    spec.matches(&MatchOf { vendor_id: "8086", product_id, address, physical })
}

#[test]
fn ids_match_whatever_their_case_and_a_star_is_any() {
    let spec = one(r#"{"vendor_id": "8086", "product_id": "154C"}"#);
    assert!(is_matched(&spec, "0000:81:02.0", Some("0000:81:00.0")));
    assert!(!is_matched(&spec, "0000:81:00.0", None));
    let spec = one(r#"{"vendor_id": "*", "product_id": "1572", "address": "*:81:*.*"}"#);
    assert!(is_matched(&spec, "0000:81:00.0", None));
    assert!(!is_matched(&spec, "0000:82:00.0", None));
}

#[test]
fn addresses_may_be_globs_as_upstream() {
    for (glob, hits) in [
        ("0000:81:00.0", vec!["0000:81:00.0"]),
        ("*:81:00.*", vec!["0000:81:00.0", "0000:81:00.1"]),
        (":81:00", vec!["0000:81:00.0", "0000:81:00.1"]),
        ("81:00.1", vec!["0000:81:00.1"]),
        ("*:*:*.1", vec!["0000:81:00.1", "0001:82:1f.1"]),
        ("1:*:*", vec!["0001:82:1f.1"]),
        (".1", vec!["0000:81:00.1", "0001:82:1f.1"]),
    ] {
        let spec = one(&format!(r#"{{"address": "{glob}"}}"#));
        let all = ["0000:81:00.0", "0000:81:00.1", "0001:82:1f.1"];
        let found: Vec<_> = all.into_iter().filter(|one| is_matched(&spec, one, None)).collect();
        assert_eq!(found, hits, "{glob}");
    }
}

#[test]
fn addresses_may_be_regular_expressions_with_ranges() {
    let text = r#"{"vendor_id": "8086", "address":
        {"domain": ".*", "bus": "81", "slot": "0[2-3]", "function": "[0-2]"}}"#;
    let spec = one(text);
    let hit = |address| is_matched(&spec, address, Some("0000:90:00.0"));
    assert!(hit("0000:81:02.0") && hit("0000:81:03.2") && hit("0001:81:02.1"));
    assert!(!hit("0000:81:02.3") && !hit("0000:81:04.0") && !hit("0000:82:02.0"));
}

#[test]
fn a_cards_address_matches_its_virtual_functions() {
    let spec = one(r#"{"address": "0000:81:00.0"}"#);
    assert!(is_matched(&spec, "0000:81:02.5", Some("0000:81:00.0")));
    assert!(!is_matched(&spec, "0000:81:02.5", Some("0000:81:00.1")));
}

#[test]
fn classes_traits_and_flags_are_spelled_as_upstream() {
    let spec = one(r#"{"address": "0000:25:00.4", "resource_class": "a16-16.a", "managed": "no",
            "traits": "hw_gpu_api_vulkan, gold, CUSTOM_x", "live_migratable": "yes",
            "physical_network": null, "one_time_use": true}"#);
    assert_eq!(spec.resource_class.as_deref(), Some("CUSTOM_A16_16_A"));
    assert_eq!(spec.traits, ["HW_GPU_API_VULKAN", "CUSTOM_GOLD", "CUSTOM_X"]);
    assert_eq!((spec.managed, spec.live_migratable), (false, Some(true)));
    assert_eq!((spec.one_time_use, spec.physical_network), (Some(true), None));
    let plain = one(r#"{"vendor_id": "1b36", "resource_class": "fpga"}"#);
    assert_eq!((plain.managed, plain.one_time_use), (true, None));
    assert_eq!(plain.resource_class.as_deref(), Some("FPGA"));
}

#[test]
fn one_value_may_hold_several_entries_on_several_lines() {
    let all = DeviceSpec::parse(
        "[{\"vendor_id\": \"1b36\",\n  \"product_id\": \"0010\"},\n {\"vendor_id\": \"10de\"}]\n",
    );
    assert_eq!(all.expect("both entries are valid").len(), 2);
}

#[test]
fn invalid_values_are_refused_and_named() {
    for (text, part) in [
        ("{vendor_id: 8086}", "not JSON"),
        ("\"8086\"", "neither a JSON object"),
        ("[1]", "1 is not a JSON object"),
        (r#"{"vendor": "8086"}"#, "unknown key vendor"),
        (r#"{"vendor_id": 8086}"#, "vendor_id is 8086 but must be a string"),
        (r#"{"vendor_id": "80865"}"#, "up to four hex digits"),
        (r#"{"vendor_id": "80x5"}"#, "up to four hex digits"),
        (r#"{"address": "0000:81:00:00.0"}"#, "more parts"),
        (r#"{"address": "0000:81:20.0"}"#, "slot 20, but the maximum is 1f"),
        (r#"{"address": "10000:81:00.0"}"#, "the maximum is ffff"),
        (r#"{"address": "0000:81:00.8"}"#, "function 8, but the maximum is 7"),
        (r#"{"address": "0000:8[1-2]:00.0"}"#, "neither hex nor"),
        (r#"{"address": {"bus": "["}}"#, "not a valid regular expression"),
        (r#"{"address": {"device": "0"}}"#, "the unknown key device"),
        (r#"{"address": {"bus": 2}}"#, "regular expression in quotes"),
        (r#"{"address": 7}"#, "address is 7"),
        (r#"{"devname": "eth0"}"#, "whose name may change"),
        (r#"{"vendor_id": "8086", "managed": "maybe"}"#, "\"yes\" or \"no\""),
        (r#"{"vendor_id": "8086", "remote_managed": "true"}"#, "SmartNIC"),
        (r#"{"vendor_id": "8086", "trusted": "true"}"#, "trusted virtual functions are not"),
        (r#"{"vendor_id": "8086", "trusted": "maybe"}"#, "\"yes\" or \"no\""),
        (r#"{"vendor_id": "8086", "resource_class": ""}"#, "resource_class is empty"),
        (r#"{"vendor_id": "*"}"#, "every PCI function"),
        ("{}", "every PCI function"),
    ] {
        let message = refusal(text);
        assert!(message.contains(part), "{text}: {message}");
        assert!(message.starts_with("Invalid [pci]device_spec config: "), "{message}");
    }
}

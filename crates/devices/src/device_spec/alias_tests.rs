//! Aliases: their requests and their refusals.

use super::PciAlias;

fn one(text: &str) -> PciAlias {
    let mut all = PciAlias::parse(text).expect(text);
    assert_eq!(all.len(), 1, "{text}");
    all.remove(0)
}

#[test]
fn ids_request_the_class_of_their_devices() {
    let alias = one(r#"{"name": " QuickAssist ", "vendor_id": "8086", "product_id": "37C8",
        "device_type": "type-PCI", "numa_policy": "legacy", "capability_type": "pci"}"#);
    assert_eq!((&*alias.name, &*alias.resource_class), ("QuickAssist", "CUSTOM_PCI_8086_37C8"));
    assert_eq!(
        alias.required,
        ["COMPUTE_MANAGED_PCI_DEVICE", "CUSTOM_PCI_8086_37C8", "CUSTOM_PCI_TYPE_PCI"]
    );
    assert_eq!(alias.forbidden, Vec::<String>::new());
}

#[test]
fn classes_and_traits_are_spelled_as_in_device_spec() {
    let alias = one(r#"{"name": "a16", "resource_class": "a16 16a", "device_type": "type-VF",
        "traits": "gold, HW_GPU_API_VULKAN,CUSTOM_X", "live_migratable": "yes"}"#);
    assert_eq!(alias.resource_class, "CUSTOM_A16_16A");
    assert_eq!(
        alias.required,
        [
            "COMPUTE_MANAGED_PCI_DEVICE",
            "CUSTOM_GOLD",
            "CUSTOM_PCI_TYPE_VF",
            "CUSTOM_X",
            "HW_GPU_API_VULKAN",
            "HW_PCI_LIVE_MIGRATABLE",
        ]
    );
    let alias = one(r#"{"name": "card", "resource_class": "PGPU", "device_type": "type-PF"}"#);
    assert_eq!(alias.resource_class, "PGPU");
    assert!(alias.required.contains(&"CUSTOM_PCI_TYPE_PF".to_owned()), "{alias:?}");
}

#[test]
fn without_a_type_physical_functions_are_excluded() {
    let alias = one(r#"{"name": "a", "resource_class": "A", "live_migratable": "no"}"#);
    assert_eq!(alias.required, ["COMPUTE_MANAGED_PCI_DEVICE"]);
    assert_eq!(alias.forbidden, ["CUSTOM_PCI_TYPE_PF", "HW_PCI_LIVE_MIGRATABLE"]);
}

#[test]
fn several_may_come_in_a_list() {
    let all = PciAlias::parse(
        "[{\"name\": \"a\", \"resource_class\": \"A\"},\n {\"name\": \"b\", \"resource_class\": \"B\"}]",
    );
    let names: Vec<_> =
        all.expect("the aliases are valid").into_iter().map(|alias| alias.name).collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn unsupported_requests_are_refused_with_the_reason() {
    for (text, part) in [
        ("{", "it is not JSON"),
        ("'{}'", "it is not JSON"),
        ("7", "7 is not a JSON object"),
        (r#"{"vendor_id": "8086"}"#, "has no name"),
        (r#"{"name": 7}"#, "name is 7 but must be a string"),
        (r#"{"name": "  "}"#, "must have 1 to 256 characters"),
        (r#"{"name": "a:1", "resource_class": "A"}"#, "flavors write NAME:COUNT"),
        (r#"{"name": "a"}"#, "alias \"a\": it names no device; set vendor_id and product_id"),
        (r#"{"name": "a", "vendor_id": "8086"}"#, "vendor_id needs product_id"),
        (
            r#"{"name": "a", "product_id": "1", "resource_class": "A"}"#,
            "product_id needs vendor_id",
        ),
        (r#"{"name": "a", "vendor_id": "x", "product_id": "1"}"#, "up to four hex digits"),
        (r#"{"name": "a", "resource_class": "A", "address": "x"}"#, "unknown key address"),
        (
            r#"{"name": "a", "resource_class": "A", "device_type": "type-vf"}"#,
            "alias \"a\": device_type is \"type-vf\" but must be one of type-PCI, type-PF, type-VF",
        ),
        (
            r#"{"name": "a", "resource_class": "A", "numa_policy": "near"}"#,
            "one of required, legacy, preferred, socket",
        ),
        (
            r#"{"name": "a", "resource_class": "A", "live_migratable": "maybe"}"#,
            "\"yes\" or \"no\"",
        ),
        (r#"{"name": "a", "resource_class": "A", "capability_type": "usb"}"#, "one of pci"),
        (r#"{"name": "a", "resource_class": ""}"#, "resource_class is empty"),
        (
            r#"{"name": "a", "resource_class": "A", "traits": "HW_PCI_LIVE_MIGRATABLE",
                "live_migratable": "no"}"#,
            "both requires and forbids the trait HW_PCI_LIVE_MIGRATABLE",
        ),
    ] {
        let why = PciAlias::parse(text).expect_err(text).to_string();
        assert!(why.starts_with("Invalid PCI alias definition: "), "{why}");
        assert!(why.contains(part), "{text}: {why}");
    }
}

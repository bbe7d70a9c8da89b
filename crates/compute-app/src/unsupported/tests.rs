//! Tests that extra specs and image properties without effect are refused.

use super::*;

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn sized(specs: &[(&str, &str)]) -> FlavorOf {
    let mut flavor = crate::resolve::empty_flavor();
    (flavor.name, flavor.vcpus, flavor.ram) = ("pinned".to_owned(), 4, 1024);
    flavor.extra_specs = map(specs);
    flavor
}

fn refusal(specs: &[(&str, &str)], properties: &[(&str, &str)]) -> String {
    flavor(&sized(specs), &map(properties)).err().map(|fault| fault.message).unwrap_or_default()
}

#[test]
fn a_flavor_that_asks_for_what_guests_do_not_have_is_named_with_the_extra_spec() {
    for (key, value) in [
        ("hw:pmem", "one"),
        ("hw:mem_encryption", "True"),
        ("hw:tpm_version", "2.0"),
        ("hw:serial_port_count", "2"),
        ("hw:usb_model", "qemu-xhci"),
        ("hw:pmu", "false"),
        ("quota:cpu_quota", "10000"),
        ("quota:vif_outbound_burst", "1"),
        ("hw_rng:rate_bytes", "1024"),
    ] {
        let why = refusal(&[(key, value)], &[]);
        assert!(why.starts_with(&format!("Flavor pinned asks for {key}={value}, and ")), "{why}");
        let why = extra_spec(key, value).expect_err("the value is refused").message;
        assert!(why.starts_with(&format!("Extra spec {key}={value} cannot be set: ")), "{why}");
    }
}

#[test]
fn what_every_guest_has_or_upstream_ignores_too_passes() {
    for (key, value) in [
        ("hw:cpu_policy", "shared"),
        ("hw:cpu_policy", "dedicated"),
        ("hw:cpu_realtime", "no"),
        ("hw:emulator_threads_policy", "share"),
        ("hw:locked_memory", "false"),
        ("hw:mem_page_size", "1GB"),
        ("hw:numa_nodes", "2"),
        ("hw:pci_numa_affinity_policy", "required"),
        ("resources7:PCPU", "4"),
        ("hw:serial_port_count", "1"),
        ("hw:usb_model", "none"),
        ("hw:cpu_sockets", "2"),
        ("hw:watchdog_action", "reset"),
        ("resources:VCPU", "4"),
        ("resources:PCPU", "0"),
        ("quota:cpu_limit", "1"),
        ("vmware:hw_version", "11"),
        ("mine:pmem", "1"),
        ("plain", "1"),
    ] {
        assert_eq!(refusal(&[(key, value)], &[]), "", "{key}={value}");
        assert!(extra_spec(key, value).is_ok(), "{key}={value}");
    }
}

#[test]
fn combinations_that_upstream_refuses_are_refused_in_its_words() {
    type Pairs = &'static [(&'static str, &'static str)];
    let cases: &[(Pairs, Pairs, &str)] = &[
        (&[("hw:numa_nodes", "3")], &[], "cannot be evenly distributed"),
        (&[("hw:cpu_dedicated_mask", "0")], &[], "without the 'mixed' policy."),
        (&[("hw:cpu_policy", "mixed")], &[], "Dedicated CPU set can be specified from either"),
        (&[("hw:cpu_thread_policy", "isolate")], &[], "Cannot set cpu thread pinning policy in a"),
        (&[("hw:cpu_realtime", "yes")], &[], "Use of realtime CPUs requires either one"),
        (
            &[("hw:numa_nodes", "2"), ("hw:numa_cpus.0", "0-3")],
            &[],
            "must be provided for all NUMA nodes",
        ),
        (
            &[
                ("hw:numa_nodes", "1"),
                ("hw:numa_cpus.0", "0-9999999999"),
                ("hw:numa_mem.0", "1024"),
            ],
            &[],
            "CPU number 4 is larger than max 3",
        ),
        (
            &[("hw:numa_nodes", "1"), ("hw:numa_cpus.0", "0,1"), ("hw:numa_mem.0", "1024")],
            &[],
            "CPU number {2, 3} is not assigned to any node",
        ),
        (
            &[("hw:numa_nodes", "1"), ("hw:numa_cpus.0", "0-3"), ("hw:numa_mem.0", "1")],
            &[],
            "1 MB of memory assigned, but expected 1024 MB",
        ),
        (&[("hw:emulator_threads_policy", "isolate")], &[], "An isolated CPU emulator threads"),
        (&[("hw:locked_memory", "true")], &[], "forbidden when mem_page_size is not set."),
        (&[("resources:PCPU", "2")], &[], "you must allocate exactly flavor.vcpus PCPUs"),
        (
            &[("hw:cpu_policy", "shared"), ("resources:PCPU", "4")],
            &[],
            "in combination with the 'hw:cpu_policy' extra spec",
        ),
        (&[], &[("hw_mem_page_size", "large")], "Page size large forbidden against '<empty>'"),
        (
            &[("hw:cpu_policy", "shared")],
            &[("hw_cpu_policy", "dedicated")],
            "is not permitted to override CPU pinning policy",
        ),
        (&[("hw:cpu_policy", "x")], &[], "CPU policy requested from 'flavor extra specs' is"),
        (&[("hw:mem_page_size", "huge")], &[], "Invalid memory page size 'huge'"),
        (&[("hw:numa_nodes", "0")], &[], "The property 'numa_nodes' cannot be '0'."),
        (
            &[("hw:cpu_policy", "mixed"), ("hw:cpu_dedicated_mask", "^0-3")],
            &[],
            "at least 1 pinned vCPU and 1 unpinned vCPU",
        ),
        (
            &[("hw:cpu_policy", "mixed"), ("hw:cpu_dedicated_mask", "3-7")],
            &[],
            "mask is not a subset of vCPUs in the flavor",
        ),
        (&[("hw:cpu_dedicated_mask", "a")], &[], "Invalid inclusion expression 'a'"),
    ];
    for (specs, properties, words) in cases {
        let why = refusal(specs, properties);
        assert!(why.contains(words), "{specs:?} {properties:?}: {why:?}");
    }
}

#[test]
fn an_image_is_named_with_the_property_that_cannot_be_had() {
    let id = ImageId::new_v4();
    for (key, value) in [
        ("hw_tpm_model", "tpm-crb"),
        ("hw_mem_encryption", "true"),
        ("hw_firmware_stateless", "true"),
        ("hw_serial_port_count", "4"),
        ("os_require_quiesce", "yes"),
        ("img_block_device_mapping", "[{\"source_type\": \"snapshot\"}]"),
        ("hw_vm_mode", "xen"),
    ] {
        let why = image(id, &map(&[(key, value)])).expect_err("the value is refused").message;
        assert!(why.starts_with(&format!("Image {id} asks for {key}=")), "{why}");
    }
    let harmless = [
        ("hw_cpu_policy", "dedicated"),
        ("hw_numa_cpus.0", "0"),
        ("hw_disk_bus", "virtio"),
        ("os_distro", "debian"),
        ("hw_pointer_model", "usbtablet"),
        ("hw_auto_disk_config", "yes"),
        ("img_block_device_mapping", "[]"),
        ("hw_numa_cpus.x", "0"),
    ];
    assert!(image(id, &map(&harmless)).is_ok());
}

#[test]
fn the_image_of_a_rebuild_must_agree_with_the_flavor() {
    let id = ImageId::new_v4();
    let why = |specs: &[(&str, &str)], properties: &[(&str, &str)]| {
        let refused = rebuild(id, &sized(specs), &BTreeMap::new(), &map(properties)).err();
        refused.map(|fault| fault.message).unwrap_or_default()
    };
    let preferred = [("hw:pci_numa_affinity_policy", "preferred")];
    assert_eq!(why(&preferred, &[("hw_pci_numa_affinity_policy", "preferred")]), "");
    assert_eq!(
        why(&preferred, &[("hw_pci_numa_affinity_policy", "legacy")]),
        "Image property 'hw_pci_numa_affinity_policy' is not permitted to override the \
         'hw:pci_numa_affinity_policy' flavor extra spec."
    );
    let shared = [("hw:cpu_policy", "shared")];
    assert!(why(&shared, &[("hw_cpu_policy", "dedicated")]).contains("not permitted to override"));
    assert!(why(&[], &[("hw_tpm_model", "tpm-crb")]).contains("asks for hw_tpm_model="));
    let another = "An instance's NUMA topology cannot be changed as part of a rebuild. The image provided is \
                   invalid for this instance.";
    assert_eq!(why(&[], &[("hw_cpu_policy", "dedicated")]), another);
    assert_eq!(why(&[("hw:numa_nodes", "2")], &[("hw_cpu_policy", "dedicated")]), another);
    assert_eq!(why(&[("hw:cpu_policy", "dedicated")], &[("hw_cpu_policy", "dedicated")]), "");
    // The flavor is older than the check.
    assert_eq!(why(&[("hw:numa_nodes", "3")], &[("hw_disk_bus", "virtio")]), "");
}

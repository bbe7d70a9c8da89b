//! The topologies of accepted requests.

use kilonova_topology::{
    CpuPolicy, Cpus, EmulatorPolicy, GuestTopology, Needs, PageSize, PciPolicy, ThreadPolicy,
};

use crate::build::{Pairs, cpus, parsed};

fn topology(
    vcpus: i64,
    memory: i64,
    specs: &[(&str, &str)],
    image: &[(&str, &str)],
) -> Option<GuestTopology> {
    parsed(vcpus, memory, specs, image).expect("the request is valid").topology
}

/// The cells as (shared, dedicated, memory).
fn cells(guest: Option<GuestTopology>) -> Vec<(Cpus, Cpus, u64)> {
    let cells = guest.expect("there is a topology").cells;
    cells.into_iter().map(|cell| (cell.shared, cell.dedicated, cell.memory_mb)).collect()
}

#[test]
fn a_guest_without_a_reason_has_no_topology() {
    let cases: &[(Pairs, Pairs)] = &[
        (&[], &[]),
        (&[("hw:cpu_policy", "shared")], &[]),
        (&[], &[("hw_cpu_policy", "shared")]),
        (&[("resources:VCPU", "4"), ("hw:emulator_threads_policy", "share")], &[]),
        (&[("hw:pci_numa_affinity_policy", "required")], &[]),
        (&[("hw:cpu_realtime", "no"), ("hw:locked_memory", "false")], &[]),
        (&[("hw:numa_cpus.0", "0")], &[("hw_numa_mem.0", "1")]),
        (&[("resources:PCPU", "0")], &[]),
    ];
    for (specs, image) in cases {
        assert_eq!(topology(4, 2048, specs, image), None, "{specs:?} {image:?}");
    }
}

#[test]
fn cells_follow_flavor_and_image() {
    type Cells = &'static [(&'static str, &'static str, u64)];
    // vCPUs, memory, extra specs, properties, cells as (shared, dedicated, memory).
    let cases: &[(i64, i64, Pairs, Pairs, Cells)] = &[
        (8, 2048, &[("hw:numa_nodes", "2")], &[], &[("0-3", "", 1024), ("4-7", "", 1024)]),
        (8, 2048, &[("hw:numa_nodes", "1")], &[], &[("0-7", "", 2048)]),
        (8, 2048, &[], &[("hw_numa_nodes", "2")], &[("0-3", "", 1024), ("4-7", "", 1024)]),
        (
            8,
            2048,
            &[
                ("hw:numa_nodes", "3"),
                ("hw:numa_cpus.0", "0-3"),
                ("hw:numa_mem.0", "1024"),
                ("hw:numa_cpus.1", "4,6"),
                ("hw:numa_mem.1", "512"),
                ("hw:numa_cpus.2", "5,7"),
                ("hw:numa_mem.2", "512"),
            ],
            &[],
            &[("0-3", "", 1024), ("4,6", "", 512), ("5,7", "", 512)],
        ),
        (
            8,
            2048,
            &[],
            &[
                ("hw_numa_nodes", "2"),
                ("hw_numa_cpus.0", "0-3,^1"),
                ("hw_numa_mem.0", "1024"),
                ("hw_numa_cpus.1", "1,4-7"),
                ("hw_numa_mem.1", "1024"),
            ],
            &[("0,2-3", "", 1024), ("1,4-7", "", 1024)],
        ),
        (
            4,
            2048,
            &[("hw:numa_nodes", "2"), ("hw:cpu_policy", "dedicated")],
            &[],
            &[("", "0-1", 1024), ("", "2-3", 1024)],
        ),
        (4, 2048, &[("hw:cpu_policy", "dedicated")], &[], &[("", "0-3", 2048)]),
        (4, 2048, &[("resources:PCPU", "4")], &[], &[("", "0-3", 2048)]),
        (4, 2048, &[("resources1:PCPU", "2"), ("resources:PCPU", "2")], &[], &[("", "0-3", 2048)]),
        (4, 2048, &[("hw:mem_page_size", "large")], &[], &[("0-3", "", 2048)]),
        (4, 2048, &[("hw:pmem", "a")], &[], &[("0-3", "", 2048)]),
        (4, 2048, &[], &[("hw_cpu_policy", "dedicated")], &[("", "0-3", 2048)]),
        (
            8,
            2048,
            &[
                ("hw:numa_nodes", "2"),
                ("hw:cpu_policy", "mixed"),
                ("hw:cpu_dedicated_mask", "^0-1,^4"),
            ],
            &[],
            &[("0-1", "2-3", 1024), ("4", "5-7", 1024)],
        ),
        (
            4,
            2048,
            &[
                ("hw:cpu_policy", "mixed"),
                ("hw:cpu_realtime", "yes"),
                ("hw:cpu_realtime_mask", "2-3"),
            ],
            &[],
            &[("0-1", "2-3", 2048)],
        ),
        (
            5,
            2048,
            &[
                ("hw:cpu_policy", "mixed"),
                ("hw:cpu_dedicated_mask", "1-2,4"),
                ("hw:numa_nodes", "2"),
                ("hw:numa_cpus.0", "0-1,4"),
                ("hw:numa_mem.0", "512"),
                ("hw:numa_cpus.1", "2-3"),
                ("hw:numa_mem.1", "1536"),
            ],
            &[],
            &[("0", "1,4", 512), ("3", "2", 1536)],
        ),
    ];
    for (vcpus, memory, specs, image, expected) in cases {
        let expected: Vec<_> =
            expected.iter().map(|(s, d, memory)| (cpus(s), cpus(d), *memory)).collect();
        assert_eq!(cells(topology(*vcpus, *memory, specs, image)), expected, "{specs:?} {image:?}");
    }
}

#[test]
fn flavor_dedicated_wins_over_any_image() {
    for image in ["shared", "mixed", "dedicated"] {
        let image: Pairs = match image {
            "shared" => &[("hw_cpu_policy", "shared")],
            "mixed" => &[("hw_cpu_policy", "mixed")],
            _ => &[("hw_cpu_policy", "dedicated")],
        };
        let guest = topology(4, 2048, &[("hw:cpu_policy", "dedicated")], image);
        let guest = guest.expect("there is a topology");
        assert_eq!(guest.cpu_policy, Some(CpuPolicy::Dedicated));
    }
    let mixed: Pairs = &[("hw:cpu_policy", "mixed"), ("hw:cpu_dedicated_mask", "0")];
    let guest = topology(4, 2048, mixed, &[("hw_cpu_policy", "shared")]);
    assert_eq!(guest.map(|guest| guest.cpu_policy), Some(Some(CpuPolicy::Mixed)));
}

#[test]
fn thread_policies_come_from_flavor_image_or_trait() {
    let policy = |guest: Option<GuestTopology>| guest.expect("there is a topology").thread_policy;
    assert_eq!(policy(topology(4, 2048, &[("hw:cpu_policy", "dedicated")], &[])), None);
    let image: Pairs = &[("hw_cpu_thread_policy", "require")];
    let prefer: Pairs = &[("hw:cpu_policy", "dedicated"), ("hw:cpu_thread_policy", "prefer")];
    // The flavor's wins, although the image may name another.
    assert_eq!(policy(topology(4, 2048, prefer, image)), Some(ThreadPolicy::Prefer));
    assert_eq!(
        policy(topology(4, 2048, &[("hw:cpu_policy", "dedicated")], image)),
        Some(ThreadPolicy::Require)
    );
    let of_trait: Pairs =
        &[("hw:cpu_policy", "dedicated"), ("trait:HW_CPU_HYPERTHREADING", "forbidden")];
    assert_eq!(policy(topology(4, 2048, of_trait, &[])), Some(ThreadPolicy::Isolate));
    let of_image: Pairs = &[("trait:HW_CPU_HYPERTHREADING", "required")];
    let guest = topology(4, 2048, &[("hw:cpu_policy", "dedicated")], of_image);
    assert_eq!(policy(guest), Some(ThreadPolicy::Require));
}

#[test]
fn realtime_masks_exclude_and_include() {
    type Case = (Option<&'static str>, Option<&'static str>, &'static str);
    let cases: &[Case] = &[
        (Some("^1"), None, "0,2"),
        (Some("^1"), Some("^0-1"), "2"),
        (None, Some("1-2"), "1-2"),
        (None, Some(" ^1"), "0,2"),
        (None, Some("1-2,^1"), "2"),
        (Some("0-2,^0"), None, "1-2"),
    ];
    for (flavor, image, expected) in cases {
        let mut specs = vec![("hw:cpu_policy", "dedicated"), ("hw:cpu_realtime", "true")];
        specs.extend(flavor.map(|mask| ("hw:cpu_realtime_mask", mask)));
        let image: Vec<_> = image.map(|mask| ("hw_cpu_realtime_mask", mask)).into_iter().collect();
        let guest = topology(3, 2048, &specs, &image).expect("there is a topology");
        assert_eq!(guest.realtime, cpus(expected), "{flavor:?}");
    }
    let all: Pairs = &[
        ("hw:cpu_policy", "dedicated"),
        ("hw:cpu_realtime", "true"),
        ("hw:emulator_threads_policy", "isolate"),
    ];
    let guest = topology(3, 2048, all, &[]).expect("there is a topology");
    assert_eq!(
        (guest.realtime, guest.emulator_policy),
        (cpus("0-2"), Some(EmulatorPolicy::Isolate))
    );
}

#[test]
fn page_sizes_are_words_numbers_or_amounts() {
    let size = |flavor: &'static str, image: Option<&'static str>| {
        let image: Vec<_> = image.map(|size| ("hw_mem_page_size", size)).into_iter().collect();
        let guest = topology(4, 2048, &[("hw:mem_page_size", flavor)], &image);
        guest.expect("there is a topology").page_size.expect("there is a size")
    };
    let mb = |size: u64| PageSize::Bytes(size << 20);
    assert_eq!(size("small", None), PageSize::Small);
    assert_eq!(size("large", None), PageSize::Large);
    assert_eq!(size("any", None), PageSize::Any);
    for text in ["2048", "2048KB", "2048KiB", "2MB", "2MiB", "16Mbit", "2097152B"] {
        assert_eq!(size(text, None), mb(2), "{text}");
    }
    assert_eq!(size("1GB", None), mb(1024));
    assert_eq!(size("any", Some("2048")), mb(2));
    assert_eq!(size("large", Some("2MB")), mb(2));
    assert_eq!(size("large", Some("small")), PageSize::Small);
    assert_eq!(size("99999999999999999999", None), PageSize::Bytes(u64::MAX));
}

#[test]
fn locked_memory_needs_a_page_size() {
    let locked: Pairs = &[("hw:mem_page_size", "2MB"), ("hw:locked_memory", "true")];
    assert!(topology(4, 2048, locked, &[]).expect("there is a topology").locked_memory);
    let image: Pairs = &[("hw_locked_memory", "yes")];
    let guest = topology(4, 2048, &[("hw:mem_page_size", "2MB")], image);
    assert!(guest.expect("there is a topology").locked_memory);
}

#[test]
fn device_policies_come_from_flavor_or_image() {
    let policy = |specs: &[(&str, &str)], image: &[(&str, &str)]| {
        parsed(4, 2048, specs, image).expect("the request is valid").pci_policy
    };
    assert_eq!(policy(&[], &[]), None);
    for (name, expected) in [
        ("required", PciPolicy::Required),
        ("legacy", PciPolicy::Legacy),
        ("preferred", PciPolicy::Preferred),
        ("socket", PciPolicy::Socket),
    ] {
        let specs = &[("hw:pci_numa_affinity_policy", name)];
        let image = &[("hw_pci_numa_affinity_policy", name)];
        assert_eq!(policy(specs, &[]), Some(expected));
        assert_eq!(policy(&[], image), Some(expected));
        assert_eq!(policy(specs, image), Some(expected));
    }
}

#[test]
fn placement_gets_dedicated_and_shared_cpus() {
    let needs = |specs: &[(&str, &str)]| {
        topology(4, 2048, specs, &[]).expect("there is a topology").needs()
    };
    let expected = |shared, dedicated, hyperthreading| Needs { shared, dedicated, hyperthreading };
    assert_eq!(needs(&[("hw:numa_nodes", "2")]), expected(4, 0, None));
    assert_eq!(needs(&[("hw:cpu_policy", "dedicated")]), expected(0, 4, None));
    assert_eq!(
        needs(&[("hw:cpu_policy", "dedicated"), ("hw:emulator_threads_policy", "isolate")]),
        expected(0, 5, None)
    );
    assert_eq!(
        needs(&[("hw:cpu_policy", "mixed"), ("hw:cpu_dedicated_mask", "^0")]),
        expected(1, 3, None)
    );
    assert_eq!(
        needs(&[("hw:cpu_policy", "dedicated"), ("hw:cpu_thread_policy", "isolate")]),
        expected(0, 4, Some(false))
    );
    assert_eq!(
        needs(&[("hw:cpu_policy", "dedicated"), ("hw:cpu_thread_policy", "require")]),
        expected(0, 4, Some(true))
    );
}

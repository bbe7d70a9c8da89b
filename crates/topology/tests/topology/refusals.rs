//! The refused combinations of extra specs and image properties, with Nova's messages.

use crate::build::{Pairs, parsed};

const OVERRIDES_POLICY: &str = "Image property 'hw_cpu_policy' is not permitted to override CPU pinning policy set \
                                against the flavor";
const OVERRIDES_THREADS: &str = "Image property 'hw_cpu_thread_policy' is not permitted to override CPU thread pinning \
                                 policy set against the flavor";
const NO_REALTIME: &str = "Use of realtime CPUs requires either one or more non-realtime CPU(s) or offloaded \
                           emulator threads.";
const REALTIME_OUTSIDE: &str = "Realtime policy vCPU(s) mask is configured with RT vCPUs that are not a subset of the \
                                vCPUs in the flavor. See hw:cpu_realtime_mask or hw_cpu_realtime_mask";
const MIXED_MASK: &str = "Mixed instance must have at least 1 pinned vCPU and 1 unpinned vCPU. See \
                          'hw:cpu_dedicated_mask'.";
const MIXED_OUTSIDE: &str = "Mixed instance dedicated vCPU(s) mask is not a subset of vCPUs in the flavor. See \
                             \"hw:cpu_dedicated_mask\"";
const POLICY_AND_RESOURCES: &str = "It is not possible to use the 'resources:VCPU' or 'resources:PCPU' extra specs in \
                                    combination with the 'hw:cpu_policy' extra spec or 'hw_cpu_policy' image metadata \
                                    property; use one or the other";
const PCPU_MISMATCH: &str = "There is a mismatch between the number of PCPUs requested via 'resourcesNN:PCPU' and the \
                             flavor); you must allocate exactly flavor.vcpus PCPUs";
const PCPU_EMULATOR: &str = "You have requested 'hw:emulator_threads_policy=isolate' but have not requested \
                             sufficient PCPUs to handle this policy; you must allocate exactly flavor.vcpus + 1 PCPUs.";
const THREADS_AND_TRAIT: &str = "It is not possible to use the 'trait:HW_CPU_HYPERTHREADING' extra spec in combination \
                                 with the 'hw:cpu_thread_policy' extra spec or 'hw_cpu_thread_policy' image metadata \
                                 property; use one or the other";
const MIXED_ONLY: &str = "Cannot specify 'hw:cpu_dedicated_mask' without the 'mixed' policy.";
const ONE_MASK: &str = "Dedicated CPU set can be specified from either 'hw:cpu_dedicated_mask' or \
                        'hw:cpu_realtime_mask' when using 'mixed' CPU policy. 'hw:cpu_dedicated_mask' and \
                        'hw:cpu_realtime_mask' can not be specified at the same time, or be specified with none of \
                        them.";
const ASYMMETRIC: &str = "Instance CPUs and/or memory cannot be evenly distributed across instance NUMA nodes. \
                          Explicit assignment of CPUs and memory to nodes is required";
const INCOMPLETE: &str = "CPU and memory allocation must be provided for all NUMA nodes";
const LOCKED: &str =
    "locked_memory value in image or flavor is forbidden when mem_page_size is not set.";

/// A flavor with 4 vCPUs and 2048 MB.
const CASES: &[(Pairs, Pairs, &str)] = &[
    (
        &[("hw:cpu_policy", "invalid")],
        &[],
        "CPU policy requested from 'flavor extra specs' is invalid, given: 'invalid', available: \
         '('dedicated', 'shared', 'mixed')'.",
    ),
    (
        &[],
        &[("hw_cpu_policy", "invalid")],
        "CPU policy requested from 'image properties' is invalid, given: 'invalid', available: \
         '('dedicated', 'shared', 'mixed')'.",
    ),
    (
        &[("hw:cpu_policy", "dedicated"), ("hw:cpu_thread_policy", "x")],
        &[],
        "CPU thread policy requested from 'flavor extra specs' is invalid, given: 'x', available: \
         '('prefer', 'isolate', 'require')'.",
    ),
    (
        &[("hw:cpu_policy", "dedicated")],
        &[("hw_cpu_thread_policy", "x")],
        "CPU thread policy requested from 'image properties' is invalid, given: 'x', available: \
         '('prefer', 'isolate', 'require')'.",
    ),
    (&[("hw:cpu_policy", "shared")], &[("hw_cpu_policy", "dedicated")], OVERRIDES_POLICY),
    (&[("hw:cpu_policy", "shared")], &[("hw_cpu_policy", "mixed")], OVERRIDES_POLICY),
    (
        &[("hw:cpu_policy", "mixed"), ("hw:cpu_dedicated_mask", "0")],
        &[("hw_cpu_policy", "dedicated")],
        OVERRIDES_POLICY,
    ),
    (
        &[("hw:cpu_policy", "dedicated"), ("hw:cpu_thread_policy", "require")],
        &[("hw_cpu_thread_policy", "isolate")],
        OVERRIDES_THREADS,
    ),
    (
        &[("hw:cpu_policy", "dedicated"), ("hw:cpu_thread_policy", "isolate")],
        &[("hw_cpu_thread_policy", "prefer")],
        OVERRIDES_THREADS,
    ),
    (&[("hw:cpu_policy", "dedicated"), ("hw:cpu_realtime", "yes")], &[], NO_REALTIME),
    (
        &[
            ("hw:cpu_policy", "dedicated"),
            ("hw:cpu_realtime", "true"),
            ("hw:cpu_realtime_mask", "^0-3"),
        ],
        &[],
        NO_REALTIME,
    ),
    (
        &[
            ("hw:cpu_policy", "dedicated"),
            ("hw:cpu_realtime", "true"),
            ("hw:cpu_realtime_mask", "^4"),
        ],
        &[],
        NO_REALTIME,
    ),
    (
        &[
            ("hw:cpu_policy", "dedicated"),
            ("hw:cpu_realtime", "true"),
            ("hw:cpu_realtime_mask", "0-3"),
        ],
        &[],
        NO_REALTIME,
    ),
    (
        &[
            ("hw:cpu_policy", "dedicated"),
            ("hw:cpu_realtime", "true"),
            ("hw:cpu_realtime_mask", "0-4,^0"),
        ],
        &[],
        REALTIME_OUTSIDE,
    ),
    (
        &[
            ("hw:cpu_policy", "dedicated"),
            ("hw:cpu_realtime", "true"),
            ("hw:cpu_realtime_mask", "1"),
        ],
        &[("hw_cpu_realtime_mask", "0-3")],
        NO_REALTIME,
    ),
    (&[("hw:cpu_policy", "mixed"), ("hw:cpu_dedicated_mask", "^0-3")], &[], MIXED_MASK),
    (&[("hw:cpu_policy", "mixed"), ("hw:cpu_dedicated_mask", "0-3")], &[], MIXED_MASK),
    (&[("hw:cpu_policy", "mixed"), ("hw:cpu_dedicated_mask", "0-7")], &[], MIXED_MASK),
    (&[("hw:cpu_policy", "mixed"), ("hw:cpu_dedicated_mask", "3-7")], &[], MIXED_OUTSIDE),
    (
        &[("hw:cpu_policy", "mixed"), ("hw:cpu_dedicated_mask", "a")],
        &[],
        "Invalid inclusion expression 'a'",
    ),
    (
        &[("hw:emulator_threads_policy", "foo")],
        &[],
        "CPU emulator threads option requested is invalid, given: 'foo', available: \
         '('share', 'isolate')'.",
    ),
    (&[("hw:cpu_policy", "shared"), ("resources:VCPU", "4")], &[], POLICY_AND_RESOURCES),
    (&[("hw:cpu_policy", "dedicated"), ("resources2:PCPU", "4")], &[], POLICY_AND_RESOURCES),
    (&[("resources:PCPU", "4")], &[("hw_cpu_policy", "dedicated")], POLICY_AND_RESOURCES),
    (
        &[("resources:PCPU", "4"), ("resources:VCPU", "4")],
        &[],
        "It is not possible to specify both 'resources:VCPU' and 'resources:PCPU' extra specs; use \
         one or the other",
    ),
    (&[("resources:PCPU", "2")], &[], PCPU_MISMATCH),
    (&[("resources:PCPU", "5")], &[], PCPU_MISMATCH),
    (&[("resources:PCPU", "4"), ("hw:emulator_threads_policy", "isolate")], &[], PCPU_EMULATOR),
    (
        &[
            ("hw:cpu_policy", "dedicated"),
            ("hw:cpu_thread_policy", "isolate"),
            ("trait:HW_CPU_HYPERTHREADING", "forbidden"),
        ],
        &[],
        THREADS_AND_TRAIT,
    ),
    (
        &[("hw:cpu_policy", "dedicated"), ("hw:cpu_thread_policy", "require")],
        &[("trait:HW_CPU_HYPERTHREADING", "required")],
        THREADS_AND_TRAIT,
    ),
    (
        &[("hw:cpu_thread_policy", "prefer")],
        &[],
        "Cannot set cpu thread pinning policy in a non dedicated cpu pinning policy",
    ),
    (
        &[("hw:emulator_threads_policy", "isolate")],
        &[],
        "An isolated CPU emulator threads option requires a dedicated CPU policy option.",
    ),
    (&[("hw:cpu_dedicated_mask", "0")], &[], MIXED_ONLY),
    (&[("hw:cpu_policy", "dedicated"), ("hw:cpu_dedicated_mask", "0")], &[], MIXED_ONLY),
    (
        &[("hw:cpu_realtime", "1"), ("hw:cpu_realtime_mask", "^0")],
        &[],
        "Cannot set realtime policy in a non dedicated cpu pinning policy",
    ),
    (&[("hw:cpu_policy", "mixed")], &[], ONE_MASK),
    (
        &[
            ("hw:cpu_policy", "mixed"),
            ("hw:cpu_dedicated_mask", "0"),
            ("hw:cpu_realtime", "yes"),
            ("hw:cpu_realtime_mask", "^0"),
        ],
        &[],
        ONE_MASK,
    ),
    (
        &[("hw:numa_nodes", "2")],
        &[("hw_numa_nodes", "2")],
        "Image property 'hw_numa_nodes' is not permitted to override NUMA configuration set against \
         the flavor",
    ),
    (
        &[("hw:numa_nodes", "1"), ("hw:numa_cpus.0", "0-3"), ("hw:numa_mem.0", "2048")],
        &[("hw_numa_cpus.0", "0-3")],
        "Image property 'hw_numa_cpus' is not permitted to override NUMA configuration set against \
         the flavor",
    ),
    (
        &[("hw:numa_nodes", "1"), ("hw:numa_cpus.0", "0-3"), ("hw:numa_mem.0", "2048")],
        &[("hw_numa_mem.0", "2048")],
        "Image property 'hw_numa_mem' is not permitted to override NUMA configuration set against \
         the flavor",
    ),
    (
        &[("hw:numa_nodes", "0")],
        &[],
        "The property 'numa_nodes' cannot be '0'. It must be a number greater than 0",
    ),
    (
        &[],
        &[("hw_numa_nodes", "two")],
        "The property 'numa_nodes' cannot be 'two'. It must be a number greater than 0",
    ),
    (&[("hw:mem_page_size", "foo")], &[], "Invalid memory page size 'foo'"),
    (&[("hw:mem_page_size", "-42")], &[], "Invalid memory page size '-42'"),
    (&[("hw:mem_page_size", "2M")], &[], "Invalid memory page size '2M'"),
    (&[("hw:mem_page_size", "any")], &[("hw_mem_page_size", "x")], "Invalid memory page size 'x'"),
    (&[], &[("hw_mem_page_size", "2048")], "Page size 2048 forbidden against '<empty>'"),
    (
        &[("hw:mem_page_size", "small")],
        &[("hw_mem_page_size", "2048")],
        "Page size 2048 forbidden against 'small'",
    ),
    (
        &[("hw:mem_page_size", "2MB")],
        &[("hw_mem_page_size", "2MB")],
        "Page size 2MB forbidden against '2MB'",
    ),
    (&[("hw:locked_memory", "true")], &[], LOCKED),
    (&[], &[("hw_locked_memory", "true")], LOCKED),
    (
        &[("hw:mem_page_size", "large"), ("hw:locked_memory", "true")],
        &[("hw_locked_memory", "false")],
        "locked_memory value in image (False) and flavor (True) conflict. A consistent value is \
         expected if both specified.",
    ),
    (&[("hw:numa_nodes", "3")], &[], ASYMMETRIC),
    (&[("hw:numa_nodes", "8")], &[], ASYMMETRIC),
    (&[("hw:numa_nodes", "1"), ("hw:numa_cpus.0", "0-3")], &[], INCOMPLETE),
    (&[("hw:numa_nodes", "1"), ("hw:numa_mem.0", "2048")], &[], INCOMPLETE),
    (
        &[("hw:numa_nodes", "2"), ("hw:numa_cpus.0", "0-3"), ("hw:numa_mem.0", "2048")],
        &[],
        INCOMPLETE,
    ),
    (
        &[("hw:numa_nodes", "1"), ("hw:numa_cpus.0", "0-9999999999"), ("hw:numa_mem.0", "2048")],
        &[],
        "CPU number 4 is larger than max 3",
    ),
    (
        &[
            ("hw:numa_nodes", "2"),
            ("hw:numa_cpus.0", "0-1"),
            ("hw:numa_cpus.1", "1-3"),
            ("hw:numa_mem.0", "1024"),
            ("hw:numa_mem.1", "1024"),
        ],
        &[],
        "CPU number 1 is assigned to two nodes",
    ),
    (
        &[("hw:numa_nodes", "1"), ("hw:numa_cpus.0", "0,1"), ("hw:numa_mem.0", "2048")],
        &[],
        "CPU number {2, 3} is not assigned to any node",
    ),
    (
        &[("hw:numa_nodes", "1"), ("hw:numa_cpus.0", "0-3"), ("hw:numa_mem.0", "1024")],
        &[],
        "1024 MB of memory assigned, but expected 2048 MB",
    ),
    (
        &[("hw:numa_nodes", "1"), ("hw:numa_cpus.0", "0-3"), ("hw:numa_mem.0", "much")],
        &[],
        "Invalid memory 'much' of a NUMA node. It must be a number of MB greater than 0",
    ),
    (
        &[("hw:pci_numa_affinity_policy", "preferred")],
        &[("hw_pci_numa_affinity_policy", "required")],
        "Image property 'hw_pci_numa_affinity_policy' is not permitted to override the \
         'hw:pci_numa_affinity_policy' flavor extra spec.",
    ),
    (&[("hw:pci_numa_affinity_policy", "near")], &[], "Invalid PCI NUMA affinity configured: near"),
];

#[test]
fn each_refused_combination_has_novas_message() {
    for (specs, image, words) in CASES {
        let refused = parsed(4, 2048, specs, image).expect_err("the combination is refused");
        assert_eq!(refused.to_string(), *words, "{specs:?} {image:?}");
    }
}

#[test]
fn the_first_error_in_novas_order_is_named() {
    let refused = |specs: &[(&str, &str)]| {
        parsed(4, 2048, specs, &[]).expect_err("the request is refused").to_string()
    };
    let all: Pairs = &[
        ("hw:cpu_thread_policy", "prefer"),
        ("hw:numa_nodes", "3"),
        ("hw:mem_page_size", "x"),
        ("hw:pci_numa_affinity_policy", "x"),
    ];
    assert!(refused(all).starts_with("Cannot set cpu thread pinning policy"));
    assert!(refused(&all[1..]).starts_with("Invalid memory page size"));
    assert!(refused(&[all[1], all[3]]).starts_with("Instance CPUs and/or memory"));
}

#[test]
fn huge_numbers_cost_nothing() {
    let huge = i64::from(i32::MAX);
    let refused = |specs: &[(&str, &str)]| {
        parsed(huge, 1 << 40, specs, &[]).expect_err("the request is refused").to_string()
    };
    let words = "A server with a NUMA topology or dedicated CPUs has at most 4096 vCPUs";
    assert_eq!(refused(&[("hw:cpu_policy", "dedicated")]), words);
    assert_eq!(refused(&[("hw:cpu_policy", "mixed"), ("hw:cpu_dedicated_mask", "^0")]), words);
    assert_eq!(refused(&[("hw:numa_nodes", "2147483647")]), words);
    assert!(parsed(huge, 1 << 40, &[("hw:cpu_policy", "shared")], &[]).is_ok());
    let masks: Pairs =
        &[("hw:cpu_policy", "mixed"), ("hw:cpu_dedicated_mask", "0-18446744073709551615")];
    assert!(parsed(4096, 4096, masks, &[]).is_err());
}

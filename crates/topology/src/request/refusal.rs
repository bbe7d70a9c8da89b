//! Refusals: Nova's exceptions with their messages.

use crate::InvalidCpus;

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Source {
    /// The flavor.
    #[error("flavor extra specs")]
    Flavor,
    /// The image.
    #[error("image properties")]
    Image,
}

/// Why a flavor with an image is refused; named as Nova's exceptions. Every one is a 400.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A list of CPUs is malformed.
    #[error(transparent)]
    InvalidCpus(#[from] InvalidCpus),
    /// The CPU policy is unknown.
    #[error("CPU policy requested from '{}' is invalid, given: '{}', available: '{available}'.", from, given.escape_debug())]
    InvalidCpuAllocationPolicy {
        /// Where it is requested.
        from: Source,
        /// The value.
        given: String,
        /// The known policies.
        available: String,
    },
    /// The CPU thread policy is unknown.
    #[error("CPU thread policy requested from '{}' is invalid, given: '{}', available: '{available}'.", from, given.escape_debug())]
    InvalidCpuThreadAllocationPolicy {
        /// Where it is requested.
        from: Source,
        /// The value.
        given: String,
        /// The known policies.
        available: String,
    },
    /// The emulator threads policy is unknown.
    #[error("CPU emulator threads option requested is invalid, given: '{}', available: '{available}'.", given.escape_debug())]
    InvalidEmulatorThreadsPolicy {
        /// The value.
        given: String,
        /// The known policies.
        available: String,
    },
    /// The image requests more dedicated CPUs than the flavor.
    #[error(
        "Image property 'hw_cpu_policy' is not permitted to override CPU pinning policy set against the flavor"
    )]
    ImageCpuPinningForbidden,
    /// Image and flavor differ.
    #[error(
        "Image property 'hw_cpu_thread_policy' is not permitted to override CPU thread pinning policy set against the flavor"
    )]
    ImageCpuThreadPolicyForbidden,
    /// No vCPU is left for the emulator, or none is realtime.
    #[error(
        "Use of realtime CPUs requires either one or more non-realtime CPU(s) or offloaded emulator threads."
    )]
    RealtimeMaskNotFoundOrInvalid,
    /// The realtime mask names vCPUs that the guest does not have.
    #[error(
        "Realtime policy vCPU(s) mask is configured with RT vCPUs that are not a subset of the vCPUs in the flavor. See hw:cpu_realtime_mask or hw_cpu_realtime_mask"
    )]
    RealtimeMaskOutside,
    /// The dedicated mask names no vCPU or all.
    #[error(
        "Mixed instance must have at least 1 pinned vCPU and 1 unpinned vCPU. See 'hw:cpu_dedicated_mask'."
    )]
    InvalidMixedInstanceDedicatedMask,
    /// The dedicated mask names vCPUs that the guest does not have.
    #[error(
        "Mixed instance dedicated vCPU(s) mask is not a subset of vCPUs in the flavor. See \"hw:cpu_dedicated_mask\""
    )]
    DedicatedMaskOutside,
    /// A CPU policy and CPU resources.
    #[error(
        "It is not possible to use the 'resources:VCPU' or 'resources:PCPU' extra specs in combination with the 'hw:cpu_policy' extra spec or 'hw_cpu_policy' image metadata property; use one or the other"
    )]
    PolicyAndResources,
    /// Both CPU resources.
    #[error(
        "It is not possible to specify both 'resources:VCPU' and 'resources:PCPU' extra specs; use one or the other"
    )]
    VcpuAndPcpu,
    /// Too few or too many `PCPU` for the vCPUs and the emulator.
    #[error(
        "You have requested 'hw:emulator_threads_policy=isolate' but have not requested sufficient PCPUs to handle this policy; you must allocate exactly flavor.vcpus + 1 PCPUs."
    )]
    PcpusOfEmulator,
    /// Too few or too many `PCPU` for the vCPUs.
    #[error(
        "There is a mismatch between the number of PCPUs requested via 'resourcesNN:PCPU' and the flavor); you must allocate exactly flavor.vcpus PCPUs"
    )]
    PcpuMismatch,
    /// A thread policy and the hyperthreading trait.
    #[error(
        "It is not possible to use the 'trait:HW_CPU_HYPERTHREADING' extra spec in combination with the 'hw:cpu_thread_policy' extra spec or 'hw_cpu_thread_policy' image metadata property; use one or the other"
    )]
    ThreadPolicyAndTrait,
    /// A thread policy without dedicated CPUs.
    #[error("Cannot set cpu thread pinning policy in a non dedicated cpu pinning policy")]
    CpuThreadPolicyConfigurationInvalid,
    /// An isolated emulator without dedicated CPUs.
    #[error("An isolated CPU emulator threads option requires a dedicated CPU policy option.")]
    BadRequirementEmulatorThreadsPolicy,
    /// A dedicated mask without the mixed policy.
    #[error("Cannot specify 'hw:cpu_dedicated_mask' without the 'mixed' policy.")]
    RequiredMixedInstancePolicy,
    /// Realtime without dedicated CPUs.
    #[error("Cannot set realtime policy in a non dedicated cpu pinning policy")]
    RealtimeConfigurationInvalid,
    /// The mixed policy with both masks or none.
    #[error(
        "Dedicated CPU set can be specified from either 'hw:cpu_dedicated_mask' or 'hw:cpu_realtime_mask' when using 'mixed' CPU policy. 'hw:cpu_dedicated_mask' and 'hw:cpu_realtime_mask' can not be specified at the same time, or be specified with none of them."
    )]
    RequiredMixedOrRealtimeCpuMask,
    /// Flavor and image both describe the cells.
    #[error(
        "Image property '{name}' is not permitted to override NUMA configuration set against the flavor"
    )]
    ImageNumaTopologyForbidden {
        /// The property.
        name: String,
    },
    /// The number of cells is not a number above 0.
    #[error("The property 'numa_nodes' cannot be '{}'. It must be a number greater than 0", nodes.escape_debug())]
    InvalidNumaNodesNumber {
        /// The value.
        nodes: String,
    },
    /// The page size is malformed.
    #[error("Invalid memory page size '{}'", pagesize.escape_debug())]
    MemoryPageSizeInvalid {
        /// The value.
        pagesize: String,
    },
    /// The flavor does not allow the image's page size.
    #[error("Page size {} forbidden against '{}'", pagesize.escape_debug(), against.escape_debug())]
    MemoryPageSizeForbidden {
        /// The image's.
        pagesize: String,
        /// The flavor's.
        against: String,
    },
    /// Locked memory without a page size.
    #[error("locked_memory value in image or flavor is forbidden when mem_page_size is not set.")]
    LockMemoryForbidden,
    /// Flavor and image differ.
    #[error("locked_memory value in image ({}) and flavor ({}) conflict. A consistent value is expected if both specified.", word(*.image), word(*.flavor))]
    FlavorImageLockedMemoryConflict {
        /// The image's.
        image: bool,
        /// The flavor's.
        flavor: bool,
    },
    /// The cells would not be equal.
    #[error(
        "Instance CPUs and/or memory cannot be evenly distributed across instance NUMA nodes. Explicit assignment of CPUs and memory to nodes is required"
    )]
    ImageNumaTopologyAsymmetric,
    /// Some cells have no CPUs or no memory.
    #[error("CPU and memory allocation must be provided for all NUMA nodes")]
    ImageNumaTopologyIncomplete,
    /// A cell has a vCPU that the guest does not have.
    #[error("CPU number {cpunum} is larger than max {cpumax}")]
    ImageNumaTopologyCpuOutOfRange {
        /// The vCPU.
        cpunum: u64,
        /// The guest's last.
        cpumax: i64,
    },
    /// Two cells have the same vCPU.
    #[error("CPU number {cpunum} is assigned to two nodes")]
    ImageNumaTopologyCpuDuplicates {
        /// The vCPU.
        cpunum: u32,
    },
    /// Some vCPUs are in no cell.
    #[error("CPU number {{{cpus}}} is not assigned to any node")]
    ImageNumaTopologyCpusUnassigned {
        /// The vCPUs.
        cpus: String,
    },
    /// The cells have more or less memory than the guest.
    #[error("{memsize} MB of memory assigned, but expected {memtotal} MB")]
    ImageNumaTopologyMemoryOutOfRange {
        /// The memory of the cells.
        memsize: u64,
        /// The guest's.
        memtotal: i64,
    },
    /// Image and flavor differ.
    #[error(
        "Image property 'hw_pci_numa_affinity_policy' is not permitted to override the 'hw:pci_numa_affinity_policy' flavor extra spec."
    )]
    ImagePciNumaPolicyForbidden,
    /// The policy is unknown.
    #[error("Invalid PCI NUMA affinity configured: {}", policy.escape_debug())]
    InvalidPciNumaAffinity {
        /// The value.
        policy: String,
    },
    /// The memory of a cell is not a number above 0; Nova has no message for this.
    #[error("Invalid memory '{}' of a NUMA node. It must be a number of MB greater than 0", memory.escape_debug())]
    InvalidNodeMemory {
        /// The value.
        memory: String,
    },
    /// There are more vCPUs than can be placed one by one; Nova has no such limit.
    #[error(
        "A server with a NUMA topology or dedicated CPUs has at most {} vCPUs",
        super::MOST_VCPUS
    )]
    TooManyVcpus,
}

/// A truth value as Python prints it.
fn word(yes: bool) -> &'static str {
    if yes { "True" } else { "False" }
}

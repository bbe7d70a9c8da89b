//! The built-in metadata definitions: the extra specs, image properties, metadata of aggregates and scheduler hints that
//! Kilonova reads, and those that it only keeps, which say so.
//!
//! Namespaces and properties have the names of Glance's definitions (`etc/metadefs`) where it has them. The tests of the
//! wire crate check that the compute service accepts each value.

/// A namespace.
pub(super) struct Namespace {
    pub name: &'static str,
    pub title: &'static str,
    pub about: &'static str,
    /// The resource types that have its properties.
    pub of: &'static [Association],
    pub properties: &'static [Property],
}

/// A resource type that has the properties of a namespace.
pub(super) struct Association {
    pub name: &'static str,
    /// Precedes the name of each property.
    pub prefix: Option<&'static str>,
    /// The part of the resource that has the properties, if it has several.
    pub target: Option<&'static str>,
}

/// A property.
pub(super) struct Property {
    pub name: &'static str,
    pub title: &'static str,
    pub about: &'static str,
    pub form: Form,
    pub default: Option<&'static str>,
}

/// The values of a property.
#[derive(Clone, Copy)]
pub(super) enum Form {
    Text,
    /// An integer that is not less than this.
    Number(i64),
    OneOf(&'static [&'static str]),
}

use Form::{Number, OneOf, Text};

const YES_OR_NO: Form = OneOf(&["true", "false"]);
const BUSES: Form = OneOf(&["virtio", "scsi", "sata", "ide", "usb", "fdc"]);

const fn of(name: &'static str, prefix: Option<&'static str>) -> Association {
    Association { name, prefix, target: None }
}

const FLAVOR: Association = of("OS::Nova::Flavor", None);
const FLAVOR_HW: Association = of("OS::Nova::Flavor", Some("hw:"));
const IMAGE: Association = of("OS::Glance::Image", None);
const IMAGE_HW: Association = of("OS::Glance::Image", Some("hw_"));
/// Servers that boot from a volume have the properties of its image.
const VOLUME: Association =
    Association { name: "OS::Cinder::Volume", prefix: None, target: Some("image") };
const VOLUME_HW: Association = Association { prefix: Some("hw_"), ..VOLUME };
const AGGREGATE: Association = of("OS::Nova::Aggregate", None);
const SERVER: Association =
    Association { name: "OS::Nova::Server", prefix: None, target: Some("metadata") };
const HINTS: Association =
    Association { name: "OS::Nova::Server", prefix: None, target: Some("scheduler_hints") };

const fn property(
    name: &'static str,
    title: &'static str,
    about: &'static str,
    form: Form,
) -> Property {
    Property { name, title, about, form, default: None }
}

impl Property {
    const fn or(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }
}

/// All namespaces.
pub(super) const TABLE: &[Namespace] = &[
    Namespace {
        name: "OS::Compute::CPUPinning",
        title: "Pinned CPUs",
        about: "How the virtual CPUs of a server share the CPUs of its host.",
        of: &[FLAVOR_HW, IMAGE_HW, VOLUME_HW],
        properties: &[
            property(
                "cpu_policy",
                "CPU policy",
                "dedicated: each virtual CPU has a CPU of its own. shared: all run on the shared \
                 CPUs. mixed: the flavor's cpu_dedicated_mask selects those that have their own.",
                OneOf(&["shared", "dedicated", "mixed"]),
            ),
            property(
                "cpu_thread_policy",
                "CPU thread policy",
                "prefer: dedicated CPUs are threads of one core where possible. require: always. isolate: \
                 no other server uses the second thread.",
                OneOf(&["prefer", "isolate", "require"]),
            ),
        ],
    },
    Namespace {
        name: "OS::Compute::FlavorCPU",
        title: "Real-time and emulator CPUs",
        about: "Extra specs of flavors with dedicated CPUs.",
        of: &[FLAVOR_HW],
        properties: &[
            property(
                "cpu_dedicated_mask",
                "Dedicated virtual CPUs",
                "The virtual CPUs with a CPU of their own, for the policy mixed. Example: 2-3 or ^0.",
                Text,
            ),
            property(
                "cpu_realtime",
                "Real-time",
                "Schedules dedicated virtual CPUs in real time.",
                YES_OR_NO,
            ),
            property(
                "cpu_realtime_mask",
                "Real-time virtual CPUs",
                "The virtual CPUs that run in real time. Example: ^0, all except the first one.",
                Text,
            ),
            property(
                "emulator_threads_policy",
                "Emulator threads",
                "isolate: the emulator has one more CPU of its own. share: it runs on shared CPUs.",
                OneOf(&["share", "isolate"]),
            ),
        ],
    },
    Namespace {
        name: "OS::Compute::NUMATopology",
        title: "NUMA topology",
        about: "The NUMA cells of a server, and the distance of its PCI devices. Extra specs such \
                as hw:numa_cpus.0 and hw:numa_mem.0 divide the CPUs and the memory unevenly.",
        of: &[FLAVOR_HW, IMAGE_HW, VOLUME_HW],
        properties: &[
            property("numa_nodes", "NUMA cells", "The number of cells of the guest.", Number(1)),
            property(
                "pci_numa_affinity_policy",
                "PCI affinity",
                "How strictly PCI devices must be on the NUMA cells of the guest.",
                OneOf(&["required", "socket", "preferred", "legacy"]),
            ),
        ],
    },
    Namespace {
        name: "OS::Compute::GuestMemoryBacking",
        title: "Memory pages",
        about: "The pages of the host that hold the memory of a server.",
        of: &[FLAVOR_HW, IMAGE_HW, VOLUME_HW],
        properties: &[property(
            "mem_page_size",
            "Page size",
            "small, large, any, or a size such as 2MB or 1GB. The image may choose only if the \
             flavor allows it with large or any.",
            Text,
        )],
    },
    Namespace {
        name: "OS::Compute::VirtCPUTopology",
        title: "CPU topology of the guest",
        about: "Sockets, cores and threads that the guest sees. The image's preference wins, within \
                the flavor's limits.",
        of: &[FLAVOR_HW, IMAGE_HW, VOLUME_HW],
        properties: &[
            property("cpu_sockets", "Sockets", "The preferred number of sockets.", Number(1)),
            property("cpu_cores", "Cores", "The preferred number of cores per socket.", Number(1)),
            property(
                "cpu_threads",
                "Threads",
                "The preferred number of threads per core.",
                Number(1),
            ),
            property("cpu_max_sockets", "Most sockets", "The limit of sockets.", Number(1)),
            property("cpu_max_cores", "Most cores", "The limit of cores per socket.", Number(1)),
            property(
                "cpu_max_threads",
                "Most threads",
                "The limit of threads per core.",
                Number(1),
            ),
        ],
    },
    Namespace {
        name: "OS::Compute::Watchdog",
        title: "Watchdog",
        about: "The watchdog device of a server.",
        of: &[FLAVOR_HW, IMAGE_HW, VOLUME_HW],
        properties: &[property(
            "watchdog_action",
            "Action",
            "The reaction to a guest that no longer serves its watchdog. disabled: the guest has no \
             watchdog. The image wins.",
            OneOf(&["disabled", "none", "pause", "reset", "poweroff"]),
        )],
    },
    Namespace {
        name: "OS::Compute::Libvirt",
        title: "Boot menu and network queues",
        about: "Options of the guest that a flavor or an image may set.",
        of: &[FLAVOR_HW, IMAGE_HW, VOLUME_HW],
        properties: &[
            property("boot_menu", "Boot menu", "Shows a boot menu on the console.", YES_OR_NO),
            property(
                "vif_multiqueue_enabled",
                "Network queues",
                "Gives network interfaces a queue for each virtual CPU.",
                YES_OR_NO,
            ),
        ],
    },
    Namespace {
        name: "OS::Compute::FlavorHardware",
        title: "Hardware of the flavor",
        about: "Virtual hardware that only flavors choose or limit.",
        of: &[FLAVOR],
        properties: &[
            property(
                "os:secure_boot",
                "Secure boot",
                "Starts guests with UEFI secure boot, or never. The image must not disagree.",
                OneOf(&["required", "disabled"]),
            ),
            property(
                "hw:hide_hypervisor_id",
                "Hidden hypervisor",
                "Hides the signature of KVM from the guest, for drivers that refuse to run on it.",
                YES_OR_NO,
            ),
            property(
                "hw_video:ram_max_mb",
                "Most video memory",
                "The limit of hw_video_ram of an image, in MiB.",
                Number(0),
            ),
        ],
    },
    Namespace {
        name: "OS::Compute::RandomNumberGenerator",
        title: "Random numbers",
        about: "The virtio random number generator of a server.",
        of: &[FLAVOR],
        properties: &[property(
            "hw_rng:allowed",
            "Random number generator",
            "Guests have the device unless this is false.",
            YES_OR_NO,
        )
        .or("true")],
    },
    Namespace {
        name: "OS::Compute::Devices",
        title: "GPUs and other devices",
        about: "Devices of the host for the server, and their distance from each other.",
        of: &[FLAVOR],
        properties: &[
            property(
                "accel:device_profile",
                "Device profile",
                "The name of a device profile of the accelerator service.",
                Text,
            ),
            property("resources:VGPU", "Virtual GPUs", "The number of virtual GPUs.", Number(1)),
            property("resources:PGPU", "Whole GPUs", "The number of whole GPUs.", Number(1)),
            property(
                "pci_passthrough:alias",
                "PCI devices",
                "Aliases of [pci] alias with numbers. Example: nic:2,ssd:1.",
                Text,
            ),
            property(
                "hw:gpu_topology",
                "Distance",
                "How near all devices of the flavor must be to each other.",
                OneOf(&[
                    "any",
                    "same-numa",
                    "same-switch",
                    "nvlink",
                    "nvlink-full",
                    "exclusive-island",
                ]),
            ),
            property(
                "group_policy",
                "Request groups",
                "isolate: numbered groups such as resources1:VGPU and resources2:VGPU are on \
                 different devices.",
                OneOf(&["none", "isolate"]),
            ),
            property(
                "trait:HW_CPU_HYPERTHREADING",
                "Hyper-threading",
                "The host must have threads, or must not. Other traits work in the same way.",
                OneOf(&["required", "forbidden"]),
            ),
        ],
    },
    Namespace {
        name: "OS::Compute::LibvirtImage",
        title: "Hardware of the image",
        about: "Virtual hardware of the servers that are created from an image.",
        of: &[IMAGE, VOLUME],
        properties: &[
            property(
                "hw_machine_type",
                "Machine type",
                "A machine type of QEMU, such as q35 or pc. Without it the host's default applies.",
                Text,
            ),
            property("hw_firmware_type", "Firmware", "BIOS or UEFI.", OneOf(&["bios", "uefi"])),
            property(
                "os_secure_boot",
                "Secure boot",
                "Secure boot of guests with UEFI. optional: if the host can.",
                OneOf(&["required", "optional", "disabled"]),
            ),
            property("hw_disk_bus", "Disk bus", "The bus of disks. q35 has no IDE.", BUSES),
            property("hw_cdrom_bus", "CD-ROM bus", "The bus of the config drive.", BUSES),
            property(
                "hw_scsi_model",
                "SCSI controller",
                "The controller of disks with the bus scsi.",
                OneOf(&["virtio-scsi", "lsilogic", "lsisas1068", "lsisas1078", "vmpvscsi"]),
            )
            .or("virtio-scsi"),
            property(
                "hw_vif_model",
                "Network card",
                "The model of network interfaces.",
                OneOf(&[
                    "virtio", "e1000", "e1000e", "igb", "rtl8139", "ne2k_pci", "pcnet", "vmxnet3",
                ]),
            ),
            property(
                "hw_video_model",
                "Graphics card",
                "none: the guest has no graphics card.",
                OneOf(&["virtio", "vga", "qxl", "bochs", "cirrus", "vmvga", "none"]),
            ),
            property(
                "hw_video_ram",
                "Video memory",
                "In MiB, at most hw_video:ram_max_mb of the flavor.",
                Number(0),
            ),
            property(
                "hw_rng_model",
                "Random number generator",
                "The model of the device.",
                OneOf(&["virtio"]),
            )
            .or("virtio"),
            property(
                "hw_qemu_guest_agent",
                "Guest agent",
                "The image has the QEMU guest agent: gives the guest a channel for it.",
                YES_OR_NO,
            ),
            property(
                "img_hide_hypervisor_id",
                "Hidden hypervisor",
                "Hides the signature of KVM from the guest.",
                YES_OR_NO,
            ),
            property(
                "os_type",
                "Kind of system",
                "Chooses the clock, and the file system of ephemeral disks.",
                OneOf(&["linux", "windows"]),
            ),
            property(
                "os_command_line",
                "Kernel command line",
                "The command line of the kernel, for an image with kernel_id.",
                Text,
            ),
            property(
                "hw_rescue_device",
                "Rescue device",
                "The kind of device for this image when it rescues a server.",
                OneOf(&["disk", "cdrom", "floppy"]),
            ),
            property("hw_rescue_bus", "Rescue bus", "The bus of the rescue device.", BUSES),
        ],
    },
    Namespace {
        name: "OS::Compute::InstanceData",
        title: "Config drive",
        about: "The guest metadata that a server gets on a drive.",
        of: &[IMAGE, VOLUME],
        properties: &[property(
            "img_config_drive",
            "Config drive",
            "mandatory: servers from this image always have a config drive.",
            OneOf(&["optional", "mandatory"]),
        )],
    },
    Namespace {
        name: "OS::Compute::Hypervisor",
        title: "Required hypervisor",
        about: "The hosts on which servers from an image may run (ImagePropertiesFilter).",
        of: &[IMAGE, VOLUME],
        properties: &[
            property("img_hv_type", "Hypervisor", "Its type.", OneOf(&["kvm", "qemu"])),
            property(
                "img_hv_requested_version",
                "Version",
                "A condition on its version as a number. Example: >=7002000.",
                Text,
            ),
        ],
    },
    Namespace {
        name: "OS::Glance::CommonImageProperties",
        title: "Kernel",
        about: "Images that are started directly with a kernel.",
        of: &[IMAGE, VOLUME],
        properties: &[
            property("kernel_id", "Kernel", "The id of the image with the kernel.", Text),
            property("ramdisk_id", "Ramdisk", "The id of the image with the ramdisk.", Text),
        ],
    },
    Namespace {
        name: "OS::OperatingSystem",
        title: "Operating system",
        about: "Describes the system in an image or a server, for people and their tools. The cloud \
                keeps it and does not read it.",
        of: &[IMAGE, VOLUME, SERVER],
        properties: &[
            property("os_distro", "Distribution", "Example: debian.", Text),
            property("os_version", "Version", "The version of the distribution.", Text),
            property("os_admin_user", "Administrator", "The name of the administrator.", Text),
        ],
    },
    Namespace {
        name: "OS::Compute::SchedulerHints",
        title: "Host of other servers",
        about: "Places a new server by the hosts of other servers. Hints need the filters \
                SameHostFilter and DifferentHostFilter, which the operator enables.",
        of: &[HINTS],
        properties: &[
            property("same_host", "Same host", "The id of a server on the wanted host.", Text),
            property(
                "different_host",
                "Different host",
                "The id of a server whose host is not used.",
                Text,
            ),
        ],
    },
    Namespace {
        name: "OS::Compute::AggregateNumInstancesFilter",
        title: "Servers per host",
        about: "The limit of AggregateNumInstancesFilter, if the operator enables it.",
        of: &[AGGREGATE],
        properties: &[property(
            "max_instances_per_host",
            "Most servers",
            "A host of the aggregate takes no more servers.",
            Number(0),
        )],
    },
    Namespace {
        name: "OS::Compute::AggregateIoOpsFilter",
        title: "Operations per host",
        about: "The limit of AggregateIoOpsFilter, if the operator enables it.",
        of: &[AGGREGATE],
        properties: &[property(
            "max_io_ops_per_host",
            "Most operations",
            "The number of servers that a host of the aggregate may create, resize or move at once.",
            Number(1),
        )],
    },
    Namespace {
        name: "OS::Compute::AggregateIsolation",
        title: "Reserved hosts",
        about: "Reserves the hosts of an aggregate, if the operator enables the filters.",
        of: &[AGGREGATE],
        properties: &[
            property(
                "filter_tenant_id",
                "Projects",
                "The ids of the projects that may use the hosts, separated by commas \
                 (AggregateMultiTenancyIsolation).",
                Text,
            ),
            property(
                "instance_type",
                "Flavors",
                "The names of the flavors that may use the hosts, separated by commas \
                 (AggregateTypeAffinityFilter).",
                Text,
            ),
        ],
    },
];

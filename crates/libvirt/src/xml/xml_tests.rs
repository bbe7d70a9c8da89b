//! Golden XML per kind of device and machine, and the round trip.

use kilonova_disks::{Format, RescueVolumes, Volume, Volumes};
use kilonova_ids::{ImageId, OperationId, ServerId};
use kilonova_node_api::{
    Attachment, Boot, Bus, DomainConfig, Firmware, GuestMetadata, GuestNuma, GuestNumaCell,
    GuestVcpu, Interface, Machine, MacvtapMode, Medium, Rescue, RescueDevice, SecureBoot, Topology,
    Vif,
};

use super::*;
use crate::config::{CpuMode, VirtType};
use crate::files::layout;

pub(crate) fn definition() -> Definition {
    Definition {
        server: "11111111-1111-4111-8111-111111111111"
            .parse::<ServerId>()
            .expect("the value is a UUID"),
        config: DomainConfig {
            name: "instance-0000001a".into(),
            display_name: "db & <cache>".into(),
            vcpus: 2,
            memory_mb: 512,
            boot: Boot {
                image: Some(
                    "22222222-2222-4222-8222-222222222222"
                        .parse::<ImageId>()
                        .expect("the value is a UUID"),
                ),
                root_gb: 1,
                ephemeral_gb: 0,
                swap_mb: 0,
                rebuilt: None,
            },
            machine: Machine::default(),
            guest: GuestMetadata::default(),
            devices: Vec::new(),
            interfaces: Vec::new(),
            rescue: None,
            volumes: Vec::new(),
            numa: None,
        },
        done: Some(
            "44444444-4444-4444-8444-444444444444"
                .parse::<OperationId>()
                .expect("the value is a UUID"),
        ),
        sources: Default::default(),
        kept_machine_type: None,
    }
}

pub(crate) fn changed(change: impl FnOnce(&mut DomainConfig)) -> Definition {
    let mut definition = definition();
    change(&mut definition.config);
    definition
}

pub(crate) fn volumes() -> Volumes {
    let file = |name: &str, format| {
        Some(Volume { path: format!("/instances/11111111/{name}").into(), format })
    };
    Volumes {
        folder: "/instances/11111111".into(),
        root: file("disk", Format::Qcow2),
        ephemeral: None,
        swap: None,
        config: file("disk.config", Format::Raw),
        kernel: None,
        ramdisk: None,
        rescue: None,
        console: "/instances/11111111/console.log".into(),
    }
}

#[test]
fn a_backup_copies_one_disk_in_the_requested_format() {
    let others = ["vdb".to_owned(), "sda".to_owned()];
    for format in [Format::Raw, Format::Qcow2] {
        let xml = backup("vda", &others, format, "/instances/11111111/disk.snapshot".as_ref());
        insta::assert_snapshot!(format!("backup_{}", format.as_str()), xml);
    }
}

pub(crate) fn host(config: LibvirtConfig) -> HostProfile {
    HostProfile {
        config,
        arch: "x86_64".into(),
        emulator: None,
        cpu_model: None,
        secure_boot: true,
        machine_types: Default::default(),
    }
}

fn devices() -> Vec<Attachment> {
    let mdev = |uuid: &str| Attachment::Mdev {
        uuid: uuid.parse().expect("the value is a UUID"),
        parent: "0000:84:00.0".into(),
        mdev_type: "nvidia-35".into(),
    };
    vec![
        mdev("33333333-3333-4333-8333-333333333333"),
        mdev("33333333-3333-4333-8333-333333333334"),
        Attachment::Pci { address: "0000:0c:1f.3".into() },
        Attachment::Vfio {
            address: "0000:25:00.4".into(),
            vgpu_type: "nvidia-558".into(),
            instance: None,
        },
        Attachment::TestPci { address: "0000:0c:00.1".into() },
    ]
}

pub(super) fn interface(id: char, device: Option<&str>) -> Interface {
    let id = |tail: &str| format!("{}{tail}", id.to_string().repeat(8));
    serde_json::from_value(serde_json::json!({
        "port": id("-5555-4555-8555-555555555555"),
        "mac": "fa:16:3e:00:00:01",
        "network": "66666666-6666-4666-8666-666666666666",
        "network_type": "vlan",
        "physical_network": "physnet1",
        "vlan": 100,
        "mtu": 1450,
        "addresses": [],
        "device": device,
    }))
    .expect("the interface is a tap")
}

/// The XML of a definition. Asserts that it parses back to the definition.
fn raw(
    host: &HostProfile,
    definition: &Definition,
    volumes: Volumes,
    numa_placement: &NumaPlacement,
) -> String {
    let layout = layout(definition, volumes);
    let xml = domain(host, definition, &layout, numa_placement, None, &Kept::default());
    assert_eq!(Definition::from_xml(&xml).as_ref(), Ok(definition));
    xml
}

#[test]
fn a_plain_guest() {
    let xml =
        raw(&host(LibvirtConfig::default()), &definition(), volumes(), &NumaPlacement::default());
    insta::assert_snapshot!("plain", xml);
}

#[test]
fn every_kind_of_device_near_its_node() {
    let guest = changed(|config| config.devices = devices());
    let numa_placement =
        NumaPlacement { cpus: Some("0-7,16-23".into()), node: Some(1), distances: vec![] };
    let xml = raw(&host(LibvirtConfig::default()), &guest, volumes(), &numa_placement);
    insta::assert_snapshot!("devices", xml);
}

#[test]
fn a_guest_with_cells_has_its_cpus_nodes_and_pages() {
    let vcpu = |id: u32, cpus: &str| GuestVcpu { id, cpus: cpus.into() };
    let cell = |host, vcpus, page_kib| GuestNumaCell { host, vcpus, memory_mb: 256, page_kib };
    let guest = changed(|config| {
        config.vcpus = 4;
        config.numa = Some(Box::new(GuestNuma {
            cells: vec![
                cell(1, vec![vcpu(0, "8"), vcpu(3, "9")], Some(1_048_576)),
                cell(0, vec![vcpu(1, "0-1"), vcpu(2, "4")], None),
            ],
            emulator: "0-1".into(),
            realtime: "2-3".into(),
            ..GuestNuma::default()
        }));
    });
    // The placement near devices has no effect, because the cells are already near them.
    let near = NumaPlacement { cpus: Some("0-7".into()), node: Some(0), distances: vec![] };
    let xml = raw(&host(LibvirtConfig::default()), &guest, volumes(), &near);
    insta::assert_snapshot!("numa", xml);
    let locked = changed(|config| {
        config.numa = Some(Box::new(GuestNuma {
            cells: vec![cell(0, vec![vcpu(0, "2"), vcpu(1, "3")], None)],
            emulator: "2-3".into(),
            locked_memory: true,
            ..GuestNuma::default()
        }));
    });
    let xml = raw(&host(LibvirtConfig::default()), &locked, volumes(), &NumaPlacement::default());
    assert!(xml.contains("<locked/>") && !xml.contains("hugepages"), "{xml}");
    assert!(!xml.contains("vcpusched") && !xml.contains("memAccess"), "{xml}");
}

/// A guest with two cells: its second mediated device and the function are at cell 0, the function of its interface is
/// at cell 1, and its first mediated device has no cell.
pub(super) fn with_cells() -> Definition {
    let vcpu = |id: u32| GuestVcpu { id, cpus: format!("{id}") };
    let cell =
        |host, id| GuestNumaCell { host, vcpus: vec![vcpu(id)], memory_mb: 256, page_kib: None };
    let at = [
        ("33333333-3333-4333-8333-333333333334", 0),
        ("0000:0c:1f.3", 0),
        ("0000:25:00.4", 1),
        ("0000:0c:00.1", 1),
    ];
    changed(|config| {
        config.devices = devices();
        config.interfaces = vec![interface('a', None), interface('b', Some("0000:25:00.4"))];
        config.numa = Some(Box::new(GuestNuma {
            cells: vec![cell(1, 0), cell(0, 1)],
            emulator: "0-1".into(),
            devices: at.map(|(key, cell)| (key.to_owned(), cell)).into(),
            ..GuestNuma::default()
        }));
    })
}

pub(super) fn distances() -> NumaPlacement {
    NumaPlacement { distances: vec![vec![10, 21], vec![31, 10]], ..NumaPlacement::default() }
}

#[test]
fn a_guest_sees_its_devices_at_its_cells() {
    let xml = |num_pcie_ports| {
        let config = LibvirtConfig { num_pcie_ports, ..LibvirtConfig::default() };
        raw(&host(config), &with_cells(), volumes(), &distances())
    };
    insta::assert_snapshot!("expanders", xml(2));
    // The disk, the interface, the device without a cell, the tablet's controller, the balloon, and a free one.
    let main_ports = |xml: &str| xml.matches("model='pcie-root-port'/>").count();
    assert_eq!((main_ports(&xml(0)), main_ports(&xml(16))), (6, 16));
    assert_eq!(xml(0), xml(6));
}

#[test]
fn a_guest_sees_no_cells_of_devices_without_expander_buses() {
    let xml = |guest: &Definition| {
        let host = host(LibvirtConfig::default());
        let xml =
            domain(&host, guest, &layout(guest, volumes()), &distances(), None, &Kept::default());
        xml.split("</metadata>").nth(1).expect("there is metadata").to_owned()
    };
    let mut earlier = with_cells();
    if let Some(numa) = &mut earlier.config.numa {
        numa.devices.clear();
    }
    assert!(!xml(&earlier).contains("controller type='pci'"), "{}", xml(&earlier));
    for machine in ["pc", "pc-i440fx-8.2"] {
        let on = |mut guest: Definition| {
            guest.config.machine.machine_type = Some(machine.into());
            xml(&guest)
        };
        assert_eq!(on(with_cells()), on(earlier.clone()));
        assert!(on(with_cells()).contains("<sibling id='1' value='21'/>"));
    }
}

#[test]
fn interfaces_are_taps_or_functions() {
    let guest = changed(|config| {
        config.devices = devices();
        config.interfaces = vec![
            interface('a', None),
            interface('b', Some("0000:25:00.4")),
            interface('c', Some("0000:0c:00.1")),
        ];
        config.machine = Machine {
            vif_model: Some("virtio".into()),
            vif_multiqueue: true,
            ..Machine::default()
        };
    });
    let xml = raw(&host(LibvirtConfig::default()), &guest, volumes(), &NumaPlacement::default());
    insta::assert_snapshot!("interfaces", xml);
    let missing = missing_hostdevs(&guest, "<domain/>", |_| false);
    assert_eq!(missing.len(), 3, "interfaces are not detached as host devices");
}

#[test]
fn interfaces_of_neutron() {
    let guest = changed(|config| {
        config.interfaces = vec![
            Interface { vif: Some(Vif::Ovs { bridge: "br-int".into() }), ..interface('a', None) },
            Interface {
                vif: Some(Vif::Macvtap { source: "up0.100".into(), mode: MacvtapMode::Bridge }),
                ..interface('b', None)
            },
            Interface {
                vif: Some(Vif::OvsHybrid { bridge: "br-int".into() }),
                ..interface('c', None)
            },
        ];
    });
    let xml = raw(&host(LibvirtConfig::default()), &guest, volumes(), &NumaPlacement::default());
    let from = xml.find("<interface ").expect("there are interfaces");
    let to = xml.rfind("</interface>").expect("they end");
    insta::assert_snapshot!(xml[from..to]);
    for interface in &guest.config.interfaces {
        let alone = plug(&guest, interface).expect("it can be attached to a running guest");
        assert!(alone.contains(&interface.tap()), "{alone}");
    }
}

#[test]
fn a_machine_that_its_image_describes() {
    let machine = Machine {
        machine_type: Some("q35".into()),
        firmware: Some(Firmware::Uefi),
        secure_boot: Some(SecureBoot::Required),
        disk_bus: Some(Bus::Scsi),
        cdrom_bus: Some(Bus::Scsi),
        scsi_model: Some("virtio-scsi".into()),
        video_model: Some("virtio".into()),
        video_ram_mb: Some(16),
        rng: true,
        watchdog: Some("reset".into()),
        guest_agent: true,
        boot_menu: true,
        hide_hypervisor: true,
        topology: Some(Topology { sockets: 1, cores: 1, threads: 2 }),
        os_type: Some("windows".into()),
        ..Machine::default()
    };
    let config = LibvirtConfig {
        cpu_mode: Some(CpuMode::HostPassthrough),
        cpu_model_extra_flags: vec!["+vmx".into(), "-MTRR".into(), "pcid".into()],
        disk_cache: Some("none".into()),
        num_pcie_ports: 2,
        ..LibvirtConfig::default()
    };
    let guest = changed(|config| config.machine = machine);
    let xml = raw(&host(config), &guest, volumes(), &NumaPlacement::default());
    insta::assert_snapshot!("described", xml);
}

#[test]
fn direct_kernel_boot_on_an_old_machine_without_kvm() {
    let config = LibvirtConfig {
        virt_type: VirtType::Qemu,
        cpu_mode: Some(CpuMode::Custom),
        cpu_models: vec!["Nehalem".into()],
        ..LibvirtConfig::default()
    };
    let host = HostProfile { cpu_model: Some("Nehalem".into()), ..host(config) };
    let machine = Machine {
        machine_type: Some("pc".into()),
        command_line: Some("console=ttyS0 quiet 'x' & y".into()),
        ..Machine::default()
    };
    let guest = changed(|config| config.machine = machine);
    let files = Volumes {
        kernel: Some("/instances/11111111/kernel".into()),
        ramdisk: Some("/instances/11111111/ramdisk".into()),
        ..volumes()
    };
    let xml = raw(&host, &guest, files, &NumaPlacement::default());
    insta::assert_snapshot!("kernel", xml);
}

#[test]
fn a_kernel_without_a_command_line_finds_its_root_disk() {
    let line = |host: &HostProfile, guest: &Definition| {
        let kernel = Some("/instances/11111111/kernel".into());
        let xml = raw(host, guest, Volumes { kernel, ..volumes() }, &NumaPlacement::default());
        let line = xml.split("<cmdline>").nth(1).expect("there is a command line");
        line.split("</cmdline>").next().expect("it ends").to_owned()
    };
    let consoles = "console=tty0 console=ttyS0 console=hvc0";
    let host = host(LibvirtConfig::default());
    assert_eq!(line(&host, &definition()), format!("root=/dev/vda {consoles}"));
    let scsi = changed(|config| config.machine.disk_bus = Some(Bus::Scsi));
    assert_eq!(line(&host, &scsi), format!("root=/dev/sda {consoles}"));
    let emulated = LibvirtConfig { virt_type: VirtType::Qemu, ..LibvirtConfig::default() };
    let emulated = HostProfile { config: emulated, ..host };
    assert_eq!(line(&emulated, &definition()), format!("root=/dev/vda {consoles} no_timer_check"));
}

#[test]
fn guests_of_other_architectures_have_no_smbios_tables() {
    let host = HostProfile { arch: "aarch64".into(), ..host(LibvirtConfig::default()) };
    let xml = raw(&host, &definition(), volumes(), &NumaPlacement::default());
    assert!(!xml.contains("<sysinfo") && !xml.contains("<smbios"), "{xml}");
    assert!(xml.contains("<vmcoreinfo/>"), "{xml}");
}

#[test]
fn a_guest_may_have_no_display() {
    let guest = changed(|config| config.machine.video_model = Some("none".into()));
    let xml = raw(&host(LibvirtConfig::default()), &guest, volumes(), &NumaPlacement::default());
    for device in ["<graphics", "<video", "<input"] {
        assert!(!xml.contains(device), "{xml}");
    }
    assert!(xml.contains("<controller type='usb' model='none'/>"), "{xml}");
}

#[test]
fn a_guest_in_rescue() {
    let rescue = Volume { path: "/instances/11111111/disk.rescue".into(), format: Format::Qcow2 };
    let rescue_volumes = Some(RescueVolumes { root: rescue, kernel: None, ramdisk: None });
    let files = || Volumes { rescue: rescue_volumes.clone(), ..volumes() };
    let old = changed(|config| config.rescue = Some(Rescue::default()));
    let disks = layout(&old, files()).disks;
    let names: Vec<_> = disks.iter().map(|disk| (disk.path.clone(), disk.boots)).collect();
    assert_eq!(names[0], ("/instances/11111111/disk.rescue".into(), true));
    assert_eq!(names[1], ("/instances/11111111/disk".into(), false));
    let device = RescueDevice { medium: Medium::Cdrom, bus: Some(Bus::Usb) };
    let stable = Rescue { device: Some(device), ..Rescue::default() };
    let guest = changed(|config| config.rescue = Some(stable));
    let xml = raw(&host(LibvirtConfig::default()), &guest, files(), &NumaPlacement::default());
    insta::assert_snapshot!("rescue", xml);
}

#[test]
fn marks_are_part_of_the_xml() {
    let guest = definition();
    let layout = layout(&guest, volumes());
    for mark in [Mark::Incoming, Mark::MigratingOut, Mark::MigratedOut] {
        let host = host(LibvirtConfig::default());
        let xml =
            domain(&host, &guest, &layout, &NumaPlacement::default(), Some(mark), &Kept::default());
        assert_eq!(Mark::of(&xml), Some(mark));
        assert_eq!(Definition::from_xml(&xml), Ok(guest.clone()));
    }
}

#[test]
fn usable_cpu_models() {
    let text = "<domainCapabilities><cpu><mode name='custom' supported='yes'>
        <model usable='yes'>Nehalem</model><model usable='no'>EPYC</model></mode></cpu></domainCapabilities>";
    assert_eq!(usable_models(text), ["Nehalem"]);
    assert!(usable_models("no XML").is_empty());
}

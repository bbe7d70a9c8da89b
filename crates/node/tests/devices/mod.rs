//! The example with one host for each kind of device: the registration of each, and a guest with
//! one device until its deletion.

mod mig_tables;
mod orders;

use std::path::Path;
use std::sync::Arc;

use kilonova_devices::Sysfs;
use kilonova_ids::ServerId;
use kilonova_node::topology::{Host, Topology};
use kilonova_node::{Node, Parts};
use kilonova_node_api::{
    Attachment, Boot, Desired, Device, Domain, DomainConfig, HandleSlot, Health, Outcome, Power,
};
use tokio::sync::watch;

use crate::agent::control::{Control, State};

fn example() -> Topology {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/nodes/devices.toml");
    Topology::parse(&std::fs::read_to_string(&path).expect("the file is read"), &path)
        .expect("the topology is valid")
}

fn host(name: &str) -> Host {
    let found = example().hosts.into_iter().find(|host| host.name == name);
    found.unwrap_or_else(|| panic!("no host {name}"))
}

struct Running {
    control: Arc<Control>,
    parts: Parts,
    _stop: watch::Sender<bool>,
}

impl Running {
    async fn start(host: &Host, folder: &Path) -> (Self, Vec<Device>) {
        let control = Control::new();
        let node = Node::simulated(host, folder).expect("the agent starts");
        let parts = node.parts().clone();
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(node.run(control.clone(), stopped));
        let registered = |state: &State| {
            state.registrations.first().map(|registration| registration.devices.clone())
        };
        let devices = control.until("a registration", registered).await;
        (Self { control, parts, _stop: stop }, devices)
    }
}

fn guest(devices: Vec<Attachment>) -> Desired {
    Desired::Present(Box::new(Domain {
        config: DomainConfig {
            name: "instance-00000001".into(),
            display_name: "one".into(),
            vcpus: 1,
            memory_mb: 512,
            boot: Boot { image: None, root_gb: 1, ephemeral_gb: 0, swap_mb: 0, rebuilt: None },
            machine: Default::default(),
            guest: Default::default(),
            devices,
            rescue: None,
            volumes: Vec::new(),
            numa: None,
            interfaces: Vec::new(),
        },
        power: Power::On,
        starts_paused: false,
        existing: false,
        verb: None,
        outgoing_migration: None,
        kept_machine_type: None,
        from: None,
    }))
}

/// The device that the controller would attach for a slot.
fn attachment(device: &Device, slot: &HandleSlot) -> Attachment {
    match slot {
        HandleSlot::Mdev { mdev_type, .. } => Attachment::Mdev {
            uuid: uuid::Uuid::new_v4(),
            parent: device.address.clone(),
            mdev_type: mdev_type.clone(),
        },
        HandleSlot::Pci { address } => Attachment::Pci { address: address.clone() },
        HandleSlot::Vfio { address, vgpu_type } => Attachment::Vfio {
            address: address.clone(),
            vgpu_type: vgpu_type.clone(),
            instance: None,
        },
        HandleSlot::TestPci { address } => Attachment::TestPci { address: address.clone() },
    }
}

fn vgpu_type(sysfs: &dyn Sysfs, address: &str) -> String {
    sysfs
        .read(&format!("bus/pci/devices/{address}/nvidia/current_vgpu_type"))
        .expect("the function has a vGPU type file")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_host_of_the_example_registers_its_devices() {
    let units = |devices: &[Device]| -> Vec<(String, usize)> {
        let parts = devices.iter().flat_map(|device| &device.deployables);
        parts.map(|part| (part.resource_class.to_string(), part.slots.len())).collect()
    };
    let expected: [(&str, &[(&str, usize)]); 10] = [
        ("gpu-whole", &[("PGPU", 1), ("PGPU", 1)]),
        ("vgpu-vfio", &[("VGPU", 24)]),
        ("vgpu-mig", &[("CUSTOM_MIG_1G", 7)]),
        ("fpga-intel", &[("FPGA", 1)]),
        ("fpga-xilinx", &[("FPGA", 1)]),
        ("qat", &[("CUSTOM_QAT", 1), ("CUSTOM_QAT", 1), ("CUSTOM_QAT", 1), ("CUSTOM_QAT", 1)]),
        ("nic", &[("CUSTOM_NIC", 1), ("CUSTOM_NIC", 1)]),
        (
            "pci",
            &[("CUSTOM_NVME", 1), ("CUSTOM_NVME", 1), ("CUSTOM_X710", 1), ("CUSTOM_X710_VF", 4)],
        ),
        ("mtty", &[("CUSTOM_SERIAL", 1)]),
        ("fake", &[("FPGA", 16)]),
    ];
    assert_eq!(example().hosts.len(), expected.len());
    for (name, classes) in expected {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let (_node, devices) = Running::start(&host(name), folder.path()).await;
        let classes: Vec<_> = classes.iter().map(|(class, n)| ((*class).to_owned(), *n)).collect();
        assert_eq!(units(&devices), classes, "{name}");
        assert!(devices.iter().all(|device| device.health == Health::Healthy), "{devices:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_of_each_kind_leaves_nothing_behind() {
    for host in example().hosts {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let (node, devices) = Running::start(&host, folder.path()).await;
        let part = &devices[0].deployables[0];
        let device = attachment(&devices[0], &part.slots[0]);
        let server = ServerId::new_v4();
        let generation = node.control.want(server, guest(vec![device.clone()]));
        assert_eq!(node.control.outcome(generation).await, Outcome::Running, "{}", host.name);
        let found = node
            .parts
            .hypervisor
            .domain(server)
            .await
            .expect("the lookup succeeds")
            .expect("the domain exists");
        let address = match &device {
            Attachment::Mdev { uuid, .. } => format!("<address uuid='{uuid}'/>"),
            Attachment::Pci { address } | Attachment::Vfio { address, .. } => {
                let (bus, rest) = (&address[5..7], &address[8..]);
                format!("bus='0x{bus}' slot='0x{}' function='0x{}'", &rest[..2], &rest[3..])
            }
            Attachment::TestPci { address } => format!("kind='test_pci' address='{address}'"),
        };
        assert!(found.xml.contains(&address), "{}: {}", host.name, found.xml);
        let generation = node.control.want(server, Desired::Absent);
        node.control.expect(generation, Outcome::Absent).await;
        assert_eq!(
            kilonova_devices::mdevs(&*node.parts.sysfs).expect("the directory is readable"),
            []
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_has_its_vgpu_type_while_in_use() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let (node, devices) = Running::start(&host("vgpu-vfio"), folder.path()).await;
    let slots = &devices[0].deployables[0].slots;
    let [first, second] = [0, 1].map(|at| attachment(&devices[0], &slots[at]));
    let (one, other) = (ServerId::new_v4(), ServerId::new_v4());
    let generation = node.control.want(one, guest(vec![first.clone()]));
    assert_eq!(node.control.outcome(generation).await, Outcome::Running);
    let generation = node.control.want(other, guest(vec![second]));
    assert_eq!(node.control.outcome(generation).await, Outcome::Running);
    let types = |node: &Running| {
        ["0000:25:00.4", "0000:25:00.5", "0000:25:00.6"]
            .map(|address| vgpu_type(&*node.parts.sysfs, address))
    };
    assert_eq!(types(&node), ["558", "558", "0"]);
    let found = node
        .parts
        .hypervisor
        .domain(one)
        .await
        .expect("the lookup succeeds")
        .expect("the domain exists");
    assert!(found.xml.contains("type='pci' managed='no'"), "{}", found.xml);

    let generation = node.control.want(one, Desired::Absent);
    node.control.expect(generation, Outcome::Absent).await;
    assert_eq!(types(&node), ["0", "558", "0"]);
    let wrong = Attachment::Vfio {
        address: "0000:25:00.6".into(),
        vgpu_type: "nvidia-557".into(),
        instance: None,
    };
    let generation = node.control.want(one, guest(vec![wrong]));
    match node.control.outcome(generation).await {
        Outcome::Failed { step, message } => {
            assert_eq!(step, "create_mdev");
            assert!(message.contains("can be set now are: nvidia-558"), "{message}");
        }
        other => panic!("a card accepted a second type: {other:?}"),
    }
    assert_eq!(types(&node), ["0", "558", "0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn types_survive_a_restart_and_are_cleared_later() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let server = ServerId::new_v4();
    let address = {
        let (node, devices) = Running::start(&host("vgpu-mig"), folder.path()).await;
        let device = attachment(&devices[0], &devices[0].deployables[0].slots[0]);
        let generation = node.control.want(server, guest(vec![device.clone()]));
        assert_eq!(node.control.outcome(generation).await, Outcome::Running);
        match device {
            Attachment::Vfio { address, .. } => address,
            other => panic!("{other:?}"),
        }
    };
    let (node, devices) = Running::start(&host("vgpu-mig"), folder.path()).await;
    assert_eq!(vgpu_type(&*node.parts.sysfs, &address), "1021");
    assert_eq!(devices[0].deployables[0].slots.len(), 7, "functions in use are still registered");
    let generation = node.control.want(server, Desired::Absent);
    node.control.expect(generation, Outcome::Absent).await;
    assert_eq!(vgpu_type(&*node.parts.sysfs, &address), "0");
}

//! Validation of a registration. A host may be broken, misconfigured or malicious, and its data
//! becomes inventory, traits and text that others read. Therefore everything is validated before
//! anything is stored, and all errors are reported together.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::IpAddr;

use kilonova_compute_db::cells;
use kilonova_ids::{HostName, ResourceClass};
use kilonova_node_api::{
    Connector, Deployable, Device, HandleSlot, Mig, MigProfile, NumaCell, Registration,
};

/// The maximum of an amount in Placement.
const MAX_AMOUNT: i64 = i32::MAX as i64;
/// Exceeds any overcommit ratio in use. Its product with [`MAX_AMOUNT`] is still exact as `f64`.
const MAX_RATIO: f64 = 1_000_000.0;
/// Maximum length of a name or an address.
const MAX_NAME: usize = 255;
/// Maximum length of a text for display.
const MAX_TEXT: usize = 4096;
/// Maximum number of traits of a host or a deployable.
const MAX_TRAITS: usize = 1000;
/// Maximum number of ports of a host's Fibre Channel adapters.
const MAX_PORTS: usize = 256;
/// Maximum number of cards that a card is connected to.
const MAX_PEERS: usize = 256;
/// Maximum number of MIG profiles and of foreign instances of a GPU, and of placements and of vGPU
/// types of each profile.
const MAX_MIG: usize = 64;
/// The highest NUMA node number of a Linux kernel.
const MAX_NODE: i64 = 1023;
/// Maximum number of NUMA cells.
const MAX_CELLS: usize = 1024;
/// Maximum total length of the lists in all NUMA cells of a host.
const MAX_CELLS_SIZE: usize = 1 << 20;
/// Maximum number of errors reported.
const MAX_PROBLEMS: usize = 20;

/// Validates a registration.
///
/// # Errors
/// One sentence per error.
pub(super) fn check(registration: &Registration) -> Result<(), String> {
    let mut problems = Problems(Vec::new());
    host(&mut problems, registration);
    let (mut addresses, mut deployables) = (BTreeSet::new(), BTreeSet::new());
    for device in &registration.devices {
        if !addresses.insert(device.address.as_str()) {
            problems.add(format!("two devices have the address {:?}", device.address));
        }
        check_device(&mut problems, device);
        for deployable in &device.deployables {
            if !deployables.insert(deployable.name.as_str()) {
                problems.add(format!("two deployables have the name {:?}", deployable.name));
            }
            check_deployable(&mut problems, &device.address, deployable);
        }
    }
    problems.into_result(&registration.host)
}

struct Problems(Vec<String>);

impl Problems {
    fn add(&mut self, problem: String) {
        self.0.push(problem);
    }

    fn unless(&mut self, is_valid: bool, problem: impl FnOnce() -> String) {
        if !is_valid {
            self.add(problem());
        }
    }

    fn number(&mut self, what: impl Display, number: i64, min: i64, max: i64) {
        let is_valid = (min..=max).contains(&number);
        self.unless(is_valid, || format!("{what} is {number}; it must be between {min} and {max}"));
    }

    /// Checks a name: one word.
    fn word(&mut self, what: impl Display, word: &str) {
        let is_valid = |c: char| !c.is_control() && !c.is_whitespace();
        let good =
            !word.is_empty() && word.chars().count() <= MAX_NAME && word.chars().all(is_valid);
        self.unless(good, || {
            let word = shorten(word);
            format!("{what} is {word:?}; it must be one word of at most {MAX_NAME} characters")
        });
    }

    fn text(&mut self, what: impl Display, text: &str) {
        let is_valid = text.chars().count() <= MAX_TEXT
            && !text.chars().any(|c| c.is_control() && c != '\n' && c != '\t');
        self.unless(is_valid, || {
            let text = shorten(text);
            format!("{what} is {text:?}; it must be text of at most {MAX_TEXT} characters")
        });
    }

    fn traits(&mut self, what: impl Display, traits: &[String]) {
        self.unless(traits.len() <= MAX_TRAITS, || {
            format!("{what} has more than {MAX_TRAITS} traits")
        });
        for one in traits {
            self.unless(is_symbol(one), || {
                let one = shorten(one);
                format!("{what} has the trait {one:?}; traits have the letters A-Z, 0-9 and _")
            });
        }
    }

    fn into_result(self, host: &HostName) -> Result<(), String> {
        if self.0.is_empty() {
            return Ok(());
        }
        let more = self.0.len().saturating_sub(MAX_PROBLEMS);
        let mut text = self.0.into_iter().take(MAX_PROBLEMS).collect::<Vec<_>>().join("; ");
        if more > 0 {
            text.push_str(&format!("; and {more} more"));
        }
        Err(format!("The registration of host {:?} is refused: {text}.", shorten(host)))
    }
}

/// The beginning of a text, for messages.
fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
}

/// True if a text is a valid trait in Placement.
fn is_symbol(text: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(is_valid)
}

fn host(problems: &mut Problems, registration: &Registration) {
    let Registration {
        host,
        machine_id,
        hypervisor_type,
        hypervisor_version,
        host_ip,
        vcpus,
        memory_mb,
        disk_gb,
        ratios,
        initial_ratios: _,
        reserved_memory_mb,
        reserved_cpus,
        reserved_disk_gb,
        traits,
        devices: _,
        agent_version,
        attempt: _,
        connector,
        routes,
        cells,
        numa_in_placement: _,
    } = registration;
    problems.unless(HostName::parse(host).is_ok(), || {
        "its name is not a host name; it must consist of letters, digits, dots and hyphens and must not be an IP address".into()
    });
    if !machine_id.is_empty() {
        problems.word("its machine id", machine_id);
    }
    problems.word("its hypervisor type", hypervisor_type);
    if let Some(version) = agent_version {
        problems.word("the version of its agent", version);
    }
    problems.number("its hypervisor version", *hypervisor_version, 0, MAX_AMOUNT);
    problems.unless(host_ip.parse::<IpAddr>().is_ok(), || {
        format!("its address is {:?}; it must be an IP address", shorten(host_ip))
    });
    for (what, number) in [("vcpus", *vcpus), ("memory_mb", *memory_mb), ("disk_gb", *disk_gb)] {
        problems.number(what, number, 0, MAX_AMOUNT);
    }
    for (what, ratio) in ["VCPU", "MEMORY_MB", "DISK_GB"].into_iter().zip(ratios) {
        let is_valid = ratio.is_finite() && *ratio > 0.0 && *ratio <= MAX_RATIO;
        problems.unless(is_valid, || {
            format!("the ratio of {what} is {ratio}; it must be above 0 and at most {MAX_RATIO}")
        });
    }
    for (what, reserved, total) in [
        ("reserved_memory_mb", *reserved_memory_mb, *memory_mb),
        ("reserved_cpus", *reserved_cpus, *vcpus),
        ("reserved_disk_gb", *reserved_disk_gb, *disk_gb),
    ] {
        problems.number(what, reserved, 0, total.clamp(0, MAX_AMOUNT));
    }
    problems.traits("the host", traits);
    for name in routes.iter().flatten() {
        problems.word("a physical network of the host", name);
        problems.unless(!name.contains(','), || {
            format!("its physical network {:?} has a comma in its name", shorten(name))
        });
    }
    if let Some(connector) = connector {
        check_connector(problems, connector);
    }
    if let Some(cells) = cells {
        check_cells(problems, cells);
    }
}

fn check_cells(problems: &mut Problems, cells: &[NumaCell]) {
    problems.unless(cells.len() <= MAX_CELLS, || {
        format!("it has {} NUMA cells; {MAX_CELLS} are allowed", cells.len())
    });
    let sizes = cells.iter().map(|cell| {
        let lists = cell.cores.iter().chain([&cell.shared, &cell.dedicated]);
        lists.map(String::len).sum::<usize>() + cell.pages.len() + cell.distances.len()
    });
    if cells.len() > MAX_CELLS || sizes.sum::<usize>() > MAX_CELLS_SIZE {
        return problems.add("its NUMA cells have too many CPUs or pages".to_owned());
    }
    for cell in cells {
        let amounts = cell.pages.iter().flat_map(|pages| [pages.size_kib, pages.total]);
        for amount in amounts.chain([cell.memory_mb]) {
            let number = i64::try_from(amount).unwrap_or(i64::MAX);
            problems.number(
                format_args!("an amount of memory of NUMA cell {}", cell.id),
                number,
                0,
                1 << 48,
            );
        }
    }
    if let Err(why) = cells::topology(cells) {
        problems.add(shorten(&why));
    }
}

/// Checks every text of the connector, because the controller sends it to Cinder unchanged.
fn check_connector(problems: &mut Problems, connector: &Connector) {
    let Connector {
        host,
        ip,
        platform,
        os_type,
        initiator,
        multipath: _,
        enforce_multipath: _,
        do_local_attach: _,
        nqn,
        nvme_hostid,
        nvme_native_multipath: _,
        system_uuid,
        wwpns,
        wwnns,
    } = connector;
    problems.word("the host of its connector", host);
    let words = [
        ("ip", ip),
        ("platform", platform),
        ("os_type", os_type),
        ("initiator", initiator),
        ("nqn", nqn),
        ("nvme_hostid", nvme_hostid),
        ("system uuid", system_uuid),
    ];
    for (name, word) in words {
        if let Some(word) = word {
            problems.word(format_args!("the {name} of its connector"), word);
        }
    }
    for (name, ports) in [("wwpns", wwpns), ("wwnns", wwnns)] {
        problems.unless(ports.len() <= MAX_PORTS, || {
            format!("its connector has more than {MAX_PORTS} {name}")
        });
        for port in ports {
            problems.word(format_args!("one of the {name} of its connector"), port);
        }
    }
}

fn check_device(problems: &mut Problems, device: &Device) {
    let Device {
        address,
        card,
        one_type: _,
        mig,
        kind: _,
        vendor_id,
        product_id,
        model,
        numa_node,
        switch,
        peers,
        health,
        deployables: _,
    } = device;
    problems.word("the address of a device", address);
    let name = shorten(address);
    if let Some(card) = card {
        problems.word(format_args!("the card of device {name:?}"), card);
    }
    for (what, id) in [("vendor_id", vendor_id), ("product_id", product_id)] {
        let is_valid = id.len() <= 16 && id.bytes().all(|byte| byte.is_ascii_graphic());
        problems.unless(is_valid, || format!("the {what} of device {name:?} is {:?}", shorten(id)));
    }
    problems.text(format_args!("the model of device {name:?}"), model);
    problems.number(format_args!("the NUMA node of device {name:?}"), *numa_node, -1, MAX_NODE);
    if let Some(switch) = switch {
        problems.word(format_args!("the PCIe switch of device {name:?}"), switch);
    }
    problems.unless(peers.len() <= MAX_PEERS, || {
        format!("device {name:?} is connected to more than {MAX_PEERS} others")
    });
    for peer in peers {
        problems.word(format_args!("a peer of device {name:?}"), peer);
    }
    if let Some(mig) = mig {
        check_mig(problems, address, mig);
    }
    if let Some(reason) = health.reason() {
        let is_valid = reason.chars().count() <= 64 * 1024;
        problems.unless(is_valid, || {
            format!("the health of device {name:?} has a reason that is too long")
        });
    }
}

/// Checks the lengths and names; the device ledger checks the geometry.
fn check_mig(problems: &mut Problems, device: &str, mig: &Mig) {
    let Mig { slices: _, profiles, foreign } = mig;
    let what = format!("GPU {:?} in MIG mode", shorten(device));
    problems.unless(profiles.len() <= MAX_MIG && foreign.len() <= MAX_MIG, || {
        format!("{what} has more than {MAX_MIG} profiles or instances")
    });
    for MigProfile { name, vgpu_types, most: _, placements } in profiles {
        problems.word(format_args!("a profile of {what}"), name);
        let few = placements.len() <= MAX_MIG && vgpu_types.len() <= MAX_MIG;
        problems.unless(few, || {
            format!("profile {:?} of {what} has more than {MAX_MIG} types or places", shorten(name))
        });
        for vgpu_type in vgpu_types {
            problems.word(format_args!("a vGPU type of {what}"), vgpu_type);
        }
    }
}

fn check_deployable(problems: &mut Problems, device: &str, deployable: &Deployable) {
    let Deployable { name, resource_class, traits, driver, facts, slots } = deployable;
    let device = shorten(device);
    problems.word(format_args!("the name of a deployable of device {device:?}"), name);
    let what = format!("deployable {:?} of device {device:?}", shorten(name));
    problems.unless(ResourceClass::parse(resource_class).is_ok(), || {
        let class = shorten(resource_class);
        format!("{what} is of the class {class:?}; classes have the letters A-Z, 0-9 and _")
    });
    problems.traits(&what, traits);
    // The driver is empty if no driver is bound.
    if !driver.is_empty() {
        problems.word(format_args!("the driver of {what}"), driver);
    }
    for (key, value) in facts {
        problems.word(format_args!("the name of a fact of {what}"), key);
        problems.text(format_args!("the fact {:?} of {what}", shorten(key)), value);
    }
    for slot in slots {
        let (word, address) = match slot {
            HandleSlot::Mdev { mdev_type, count } => {
                problems.number(
                    format_args!("the number of slots of {what}"),
                    i64::from(*count),
                    0,
                    65536,
                );
                ("the type of mediated devices", mdev_type)
            }
            HandleSlot::Pci { address } | HandleSlot::TestPci { address } => ("a slot", address),
            HandleSlot::Vfio { address, vgpu_type } => {
                problems.text(format_args!("the vGPU type of {what}"), vgpu_type);
                ("a slot", address)
            }
        };
        problems.word(format_args!("{word} of {what}"), address);
    }
}

#[cfg(test)]
mod tests {
    use kilonova_node_api::{DeviceKind, Health};

    use super::*;

    fn valid() -> Registration {
        let slot = HandleSlot::Pci { address: "0000:84:00.0".into() };
        let deployable = Deployable {
            name: "0000:84:00.0".into(),
            resource_class: kilonova_ids::ResourceClass::verbatim("PGPU"),
            traits: vec!["CUSTOM_GPU_NVIDIA".into()],
            driver: "nvidia".into(),
            facts: [("physical_network".to_owned(), "physnet1".to_owned())].into(),
            slots: vec![slot],
        };
        let device = Device {
            address: "0000:84:00.0".into(),
            card: None,
            one_type: false,
            switch: None,
            peers: Vec::new(),
            mig: None,
            kind: DeviceKind::Gpu,
            vendor_id: "10de".into(),
            product_id: "2235".into(),
            model: "NVIDIA A40".into(),
            numa_node: -1,
            health: Health::Healthy,
            deployables: vec![deployable],
        };
        Registration {
            host: HostName::verbatim("gpu-1.rack"),
            machine_id: "abc".into(),
            hypervisor_type: "QEMU".into(),
            hypervisor_version: 8_002_002,
            host_ip: "192.0.2.1".into(),
            vcpus: 64,
            memory_mb: 1024,
            disk_gb: 100,
            ratios: [16.0, 1.5, 1.0],
            initial_ratios: [false; 3],
            reserved_memory_mb: 512,
            reserved_cpus: 0,
            reserved_disk_gb: 0,
            traits: vec!["COMPUTE_NODE".into()],
            devices: vec![device],
            agent_version: Some("1.2.3".into()),
            attempt: None,
            connector: None,
            routes: None,
            cells: None,
            numa_in_placement: false,
        }
    }

    fn cell(shared: &str, dedicated: &str) -> NumaCell {
        NumaCell {
            id: 0,
            shared: shared.into(),
            dedicated: dedicated.into(),
            cores: Vec::new(),
            socket: None,
            memory_mb: 1024,
            pages: Vec::new(),
            distances: Vec::new(),
        }
    }

    fn connector(registration: &mut Registration) -> &mut Connector {
        registration.connector.get_or_insert_with(|| {
            Box::new(Connector { host: "gpu-1.rack".into(), ..Connector::default() })
        })
    }

    #[test]
    fn a_valid_registration_is_accepted() {
        assert_eq!(check(&valid()), Ok(()));
        let mut idle = valid();
        idle.devices[0].deployables[0].driver = String::new();
        assert_eq!(check(&idle), Ok(()), "a function without a driver is valid");
        connector(&mut idle);
        assert_eq!(check(&idle), Ok(()), "a host may attach volumes");
        idle.cells = Some(vec![cell("0", "1-63")]);
        assert_eq!(check(&idle), Ok(()), "a host may report NUMA cells");
    }

    #[test]
    fn refusals_name_every_invalid_value() {
        type Corrupt = fn(&mut Registration);
        let cases: [(&str, Corrupt); 37] = [
            ("its name", |r| r.host = HostName::verbatim("127.0.0.1")),
            ("its name", |r| r.host = HostName::verbatim("a\nb")),
            ("its name", |r| r.host = HostName::verbatim("")),
            ("initiator of its connector", |r| connector(r).initiator = Some("iqn a".into())),
            ("one of the wwpns", |r| connector(r).wwpns.push(String::new())),
            ("its machine id", |r| r.machine_id = "a b".into()),
            ("hypervisor type", |r| r.hypervisor_type = "a\u{1b}b".into()),
            ("hypervisor version", |r| r.hypervisor_version = -1),
            ("its address", |r| r.host_ip = "192.0.2.1\n".into()),
            ("vcpus is -5", |r| r.vcpus = -5),
            ("memory_mb is", |r| r.memory_mb = i64::MAX),
            ("disk_gb is", |r| r.disk_gb = -1),
            ("ratio of VCPU", |r| r.ratios[0] = 1e308),
            ("ratio of MEMORY_MB", |r| r.ratios[1] = f64::NAN),
            ("ratio of DISK_GB", |r| r.ratios[2] = 0.0),
            ("reserved_memory_mb is 2000", |r| r.reserved_memory_mb = 2000),
            ("reserved_cpus is -1", |r| r.reserved_cpus = -1),
            ("reserved_disk_gb is 5000", |r| r.reserved_disk_gb = 5000),
            ("CPU 1 is reported twice", |r| r.cells = Some(vec![cell("0-1", "1")])),
            ("the dedicated CPUs of NUMA cell 0", |r| r.cells = Some(vec![cell("0", "x\n")])),
            ("NUMA cells; 1024 are allowed", |r| r.cells = Some(vec![cell("", ""); 1025])),
            ("the trait \"<x>\"", |r| r.traits.push("<x>".into())),
            ("two devices have the address", |r| r.devices.push(r.devices[0].clone())),
            ("address of a device", |r| r.devices[0].address = "0000:84\n".into()),
            ("vendor_id", |r| r.devices[0].vendor_id = "10 de".into()),
            ("model", |r| r.devices[0].model = "a\0b".into()),
            ("NUMA node", |r| r.devices[0].numa_node = -2),
            ("NUMA node", |r| r.devices[0].numa_node = 1024),
            ("PCIe switch", |r| r.devices[0].switch = Some("0000:16\n".into())),
            ("a peer", |r| r.devices[0].peers.push("two words\0".into())),
            ("connected to more", |r| r.devices[0].peers = vec!["0000:84:00.0".into(); 257]),
            ("class", |r| {
                r.devices[0].deployables[0].resource_class =
                    kilonova_ids::ResourceClass::verbatim("pgpu")
            }),
            ("the trait", |r| r.devices[0].deployables[0].traits.push("lower".into())),
            ("driver", |r| r.devices[0].deployables[0].driver = "nvidia\n".into()),
            ("fact", |r| {
                r.devices[0].deployables[0].facts.insert("a b".into(), "c".into());
            }),
            ("a slot", |r| {
                r.devices[0].deployables[0].slots.push(HandleSlot::Pci { address: "a\n".into() });
            }),
            ("number of slots", |r| {
                let slot = HandleSlot::Mdev { mdev_type: "nvidia-35".into(), count: u32::MAX };
                r.devices[0].deployables[0].slots.push(slot);
            }),
        ];
        for (words, corrupt) in cases {
            let mut registration = valid();
            corrupt(&mut registration);
            let message = check(&registration).expect_err(words);
            assert!(message.contains(words), "{words}: {message}");
            assert!(!message.contains('\n'), "the message has one line: {message}");
        }
        let mut all = valid();
        for (_, corrupt) in cases {
            corrupt(&mut all);
        }
        let message = check(&all).expect_err("a registration with every error is refused");
        for words in ["vcpus", "disk_gb", "ratio", "trait"] {
            assert!(message.contains(words), "{words}: {message}");
        }
        assert!(message.contains("; and "), "{message}");
    }
}

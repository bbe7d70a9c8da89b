//! Each kind on a directory with the kernel's layout.

mod allowed;
mod drivers;
mod kernel;
mod mig;
mod retyping;
mod robust;
mod vgpu;

use kilonova_node_api::{Deployable, Device, HandleSlot};

use crate::testing::Fixture;
use crate::{DeviceSpec, Discovery, Driver, Found, MdevConfig, MdevGroup, MdevOptions, NicOptions};

fn look(fixture: &Fixture, discovery: &Discovery) -> Found {
    discovery.scan(&fixture.sysfs(), &|_| false).expect("the bus is readable")
}

fn allowed(specs: &[&str]) -> Discovery {
    let specs = specs.iter().flat_map(|text| DeviceSpec::parse(text).expect(text)).collect();
    Discovery { specs, ..Discovery::default() }
}

fn driven(driver: Driver) -> Discovery {
    Discovery { drivers: vec![driver], ..Discovery::default() }
}

fn cut_into(fixture: &Fixture, types: &[(&str, &[&str], Option<u32>)]) -> Discovery {
    let mut options = MdevOptions::default();
    for (name, addresses, max_instances) in types {
        options.enabled.push((*name).to_owned());
        let group = MdevGroup {
            device_addresses: addresses.iter().map(|one| (*one).to_owned()).collect(),
            mdev_class: None,
            max_instances: *max_instances,
            min_instances: None,
        };
        options.groups.insert((*name).to_owned(), group);
    }
    let mdev = MdevConfig::new(&options, &fixture.sysfs()).expect("the options are valid");
    Discovery { mdev, ..Discovery::default() }
}

/// Name, class and slots of each deployable, abbreviated.
fn short(devices: &[Device]) -> Vec<String> {
    let slot = |slot: &HandleSlot| match slot {
        HandleSlot::Mdev { mdev_type, count } => format!("{count}x{mdev_type}"),
        HandleSlot::Pci { address } => address.clone(),
        HandleSlot::Vfio { address, vgpu_type } => format!("{address}={vgpu_type}"),
        HandleSlot::TestPci { address } => format!("test {address}"),
    };
    let part = |part: &Deployable| {
        let slots: Vec<String> = part.slots.iter().map(slot).collect();
        format!("{} {} [{}]", part.name, part.resource_class, slots.join(" "))
    };
    devices.iter().flat_map(|device| device.deployables.iter().map(part)).collect()
}

fn reasons(found: &Found) -> Vec<String> {
    found.problems.iter().map(|one| format!("{}: {}", one.address, one.reason)).collect()
}

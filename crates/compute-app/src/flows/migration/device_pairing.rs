//! Devices in a live migration: whether they can move, the hosts that can send and receive them,
//! and the pairing of the source's devices with the destination's.
//!
//! The state of a vGPU can be migrated if the hypervisors of both hosts support it. A host reports its support as
//! traits of its root provider, one for each vGPU technology.

use kilonova_compute_db::moves::{Kind, Move};
use kilonova_compute_db::servers::Server;
use kilonova_ids::HostName;
use kilonova_node_api::{Attachment, GuestNuma, VARIANT_LIVE_MIGRATION, VGPU_LIVE_MIGRATION};
use kilonova_wire::Refusal;

use crate::{Compute, Error};

/// The support that a kind of device needs from both hosts.
struct Support {
    /// The trait of hosts with this support.
    name: &'static str,
    what: &'static str,
    qemu: &'static str,
    libvirt: &'static str,
    needs: fn(&Attachment) -> bool,
}

const SUPPORTS: [Support; 2] = [
    Support {
        name: VGPU_LIVE_MIGRATION,
        what: "mediated devices",
        qemu: "8.1.0",
        libvirt: "8.6.0",
        needs: |device| matches!(device, Attachment::Mdev { .. }),
    },
    Support {
        name: VARIANT_LIVE_MIGRATION,
        what: "PCI functions with a variant driver",
        qemu: "8.2.2",
        libvirt: "10.0.0",
        needs: |device| matches!(device, Attachment::Vfio { .. }),
    },
];

fn supports_for(devices: &[Attachment]) -> impl Iterator<Item = &'static Support> {
    SUPPORTS.iter().filter(|support| devices.iter().any(support.needs))
}

/// Traits that the destination must have.
pub(super) fn required_traits(migration: &Move) -> Vec<&'static str> {
    if migration.kind != Kind::Live {
        return Vec::new();
    }
    supports_for(&migration.old_domain.config.devices).map(|support| support.name).collect()
}

/// Traits that the destination of a running guest with these devices must have. `None` if one of the devices
/// cannot be live-migrated, or the source cannot send it.
pub fn required_for_running(
    compute: &Compute,
    source: &HostName,
    devices: &[Attachment],
) -> Option<Vec<&'static str>> {
    if unmigratable_device(devices).is_some() {
        return None;
    }
    supports_for(devices)
        .map(|support| compute.host_has_trait(source, support.name).then_some(support.name))
        .collect()
}

/// Refuses a guest whose devices the source cannot send.
pub(super) fn check_source(
    compute: &Compute,
    server: &Server,
    source: &HostName,
    devices: &[Attachment],
) -> Result<(), Error> {
    let Some(Support { qemu, libvirt, .. }) =
        supports_for(devices).find(|support| !compute.host_has_trait(source, support.name))
    else {
        return Ok(());
    };
    Err(Refusal::bad_request(format!(
        "Unable to migrate {}: Either libvirt or QEMU version for compute service source are too \
         old than the supported ones : (QEMU: {qemu}, libvirt: {libvirt}). Upgrade {source}, or \
         use a cold migration: `openstack server migrate`.",
        server.id
    ))
    .into())
}

/// Names the hosts that cannot receive the guest's devices, to explain a failed search. Considers the requested host,
/// or all hosts except the source.
pub(super) fn unfit_hosts(
    compute: &Compute,
    migration: &Move,
    requested: Option<&HostName>,
) -> Option<String> {
    let all: Vec<HostName> = match requested {
        Some(host) => vec![host.clone()],
        None => compute.fleet.all().iter().map(|host| host.name.clone()).collect(),
    };
    supports_for(&migration.old_domain.config.devices).find_map(|support| {
        let is_unfit = |host: &&HostName| {
            **host != migration.source && !compute.host_has_trait(host, support.name)
        };
        let mut unfit: Vec<&HostName> = all.iter().filter(is_unfit).collect();
        unfit.sort_unstable();
        let (first, more) = (unfit.first()?, unfit.len() - 1);
        let who = if more == 0 { first.to_string() } else { format!("{first} and {more} more") };
        let Support { name, what, qemu, libvirt, .. } = support;
        Some(format!(
            "{who} cannot receive {what} of a running guest: that requires QEMU {qemu}, libvirt \
             {libvirt} and Linux 5.18 (trait {name})."
        ))
    })
}

/// The address of the first device that cannot be live-migrated.
pub fn unmigratable_device(devices: &[Attachment]) -> Option<&str> {
    devices.iter().find_map(|device| match device {
        Attachment::Pci { address } | Attachment::TestPci { address } => Some(address.as_str()),
        Attachment::Mdev { .. } | Attachment::Vfio { .. } => None,
    })
}

/// The address of a device; for an mdev, the parent's.
pub fn address_of(device: &Attachment) -> &str {
    match device {
        Attachment::Mdev { parent: address, .. }
        | Attachment::Pci { address }
        | Attachment::Vfio { address, .. }
        | Attachment::TestPci { address } => address,
    }
}

/// Refuses devices that cannot be live-migrated.
pub(super) fn check_movable(server: &Server, devices: &[Attachment]) -> Result<(), Error> {
    let Some(address) = unmigratable_device(devices) else { return Ok(()) };
    Err(Refusal::bad_request(format!(
        "Unable to migrate {}: its device {address} is passed through whole and cannot \
         live-migrate. Use a cold migration: `openstack server migrate`.",
        server.id
    ))
    .into())
}

/// Pairs each device of the source with one of its kind at the destination; `None` if a device of either side has no
/// partner. If `cells` gives the guest's cells on both hosts, prefers a partner at the same guest cell.
pub(super) fn pair_devices(
    from: &[Attachment],
    to: &[Attachment],
    cells: Option<(&GuestNuma, &GuestNuma)>,
) -> Option<Vec<(Attachment, Attachment)>> {
    let at_same_cell = |one: &Attachment, other: &Attachment| {
        cells.is_none_or(|(from, to)| from.cell_of(one) == to.cell_of(other))
    };
    let mut left: Vec<&Attachment> = to.iter().collect();
    let mut pairs: Vec<Option<&Attachment>> = vec![None; from.len()];
    for must_be_near in [true, false] {
        for (device, pair) in from.iter().zip(&mut pairs).filter(|(_, pair)| pair.is_none()) {
            let is_partner = |other: &&Attachment| {
                other.kind() == device.kind() && (!must_be_near || at_same_cell(device, other))
            };
            *pair = left.iter().position(is_partner).map(|at| left.remove(at));
        }
    }
    if !left.is_empty() {
        return None;
    }
    let pairs = from.iter().zip(pairs);
    pairs.map(|(device, partner)| Some((device.clone(), partner?.clone()))).collect()
}

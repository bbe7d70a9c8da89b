//! What a running guest can take along to another host, and which hosts can send and receive it.
//!
//! A vGPU's state goes along where the hypervisors of both hosts know how; a host whose hypervisor does
//! says so by traits of its root provider, one for each way in which vGPUs are made.

use kilonova_node_api::{Attachment, VARIANT_LIVE_MIGRATION, VGPU_LIVE_MIGRATION};
use kilonova_wire::Fault;

use crate::db::moves::{Kind, Move};
use crate::db::servers::Server;
use crate::{Compute, Error};

/// What a host needs to take a kind of device along.
struct Skill {
    /// The trait of hosts that can.
    name: &'static str,
    what: &'static str,
    qemu: &'static str,
    libvirt: &'static str,
    needs: fn(&Attachment) -> bool,
}

const SKILLS: [Skill; 2] = [
    Skill {
        name: VGPU_LIVE_MIGRATION,
        what: "mediated devices",
        qemu: "8.1.0",
        libvirt: "8.6.0",
        needs: |device| matches!(device, Attachment::Mdev { .. }),
    },
    Skill {
        name: VARIANT_LIVE_MIGRATION,
        what: "PCI functions with a driver of their kind",
        qemu: "8.2.2",
        libvirt: "10.0.0",
        needs: |device| matches!(device, Attachment::Vfio { .. }),
    },
];

fn skills(devices: &[Attachment]) -> impl Iterator<Item = &'static Skill> {
    SKILLS.iter().filter(|skill| devices.iter().any(skill.needs))
}

/// Traits that the host must have that a server moves to.
pub(super) fn required(migration: &Move) -> Vec<&'static str> {
    if migration.kind != Kind::Live {
        return Vec::new();
    }
    skills(&migration.old_domain.devices).map(|skill| skill.name).collect()
}

/// Whether a host says that it can; one that nobody knows does not say that it cannot.
fn can(compute: &Compute, host: &str, skill: &Skill) -> bool {
    let Some(host) = compute.fleet.by_name(host) else { return true };
    let snapshot = compute.world.snapshot();
    let root =
        snapshot.tree(host.root).and_then(|tree| tree.providers().find(|p| p.id == host.root));
    root.is_some_and(|root| root.traits.iter().any(|name| **name == *skill.name))
}

/// Refuses a guest with vGPUs on a host that cannot send them.
pub(super) fn able(
    compute: &Compute,
    server: &Server,
    source: &str,
    devices: &[Attachment],
) -> Result<(), Error> {
    let Some(Skill { qemu, libvirt, .. }) =
        skills(devices).find(|skill| !can(compute, source, skill))
    else {
        return Ok(());
    };
    Err(Fault::bad_request(format!(
        "Unable to migrate {}: Either libvirt or QEMU version for compute service source are too old \
         than the supported ones : (QEMU: {qemu}, libvirt: {libvirt}). Upgrade {source}, or migrate the \
         server shut off: `openstack server migrate`.",
        server.id
    ))
    .into())
}

/// Which hosts cannot take a guest in because of what it has, for whoever found no host: the one that
/// was asked for, or any but its own.
pub(super) fn unable(compute: &Compute, migration: &Move, asked: Option<&str>) -> Option<String> {
    let all: Vec<String> = match asked {
        Some(host) => vec![host.to_owned()],
        None => compute.fleet.all().iter().map(|host| host.name.to_string()).collect(),
    };
    skills(&migration.old_domain.devices).find_map(|skill| {
        let cannot = |host: &&String| **host != migration.source && !can(compute, host, skill);
        let mut unable: Vec<&String> = all.iter().filter(cannot).collect();
        unable.sort_unstable();
        let (first, more) = (unable.first()?, unable.len() - 1);
        let who = if more == 0 { first.to_string() } else { format!("{first} and {more} more") };
        let Skill { name, what, qemu, libvirt, .. } = skill;
        Some(format!(
            "{who} cannot take in {what} of a running guest, for which it takes QEMU {qemu}, \
             libvirt {libvirt} and Linux 5.18 (trait {name})."
        ))
    })
}

/// The first device whose state cannot be taken along, by its address.
pub fn stays(devices: &[Attachment]) -> Option<&str> {
    devices.iter().find_map(|device| match device {
        Attachment::Pci { address } | Attachment::TestPci { address } => Some(address.as_str()),
        Attachment::Mdev { .. } | Attachment::Vfio { .. } => None,
    })
}

/// The address of a device; of a mediated one, its parent's.
pub fn address_of(device: &Attachment) -> &str {
    match device {
        Attachment::Mdev { parent: address, .. }
        | Attachment::Pci { address }
        | Attachment::Vfio { address, .. }
        | Attachment::TestPci { address } => address,
    }
}

/// Refuses devices whose state cannot be taken along.
pub(super) fn movable(server: &Server, devices: &[Attachment]) -> Result<(), Error> {
    let Some(address) = stays(devices) else { return Ok(()) };
    Err(Fault::bad_request(format!(
        "Unable to migrate {}: its device {address} is given to it whole and cannot be moved while the \
         server runs. Migrate it shut off: `openstack server migrate`.",
        server.id
    ))
    .into())
}

/// For each device the one of its kind that takes its place; `None` when one has none.
pub(super) fn pairs(
    from: &[Attachment],
    to: &[Attachment],
) -> Option<Vec<(Attachment, Attachment)>> {
    let kind = |device: &Attachment| match device {
        Attachment::Mdev { mdev_type, .. } => ("mdev", mdev_type.clone()),
        Attachment::Vfio { vgpu_type, .. } => ("vfio", vgpu_type.clone()),
        Attachment::Pci { .. } => ("pci", String::new()),
        Attachment::TestPci { .. } => ("test", String::new()),
    };
    let mut left: Vec<&Attachment> = to.iter().collect();
    let mut pairs = Vec::with_capacity(from.len());
    for device in from {
        let at = left.iter().position(|other| kind(other) == kind(device))?;
        pairs.push((device.clone(), left.remove(at).clone()));
    }
    left.is_empty().then_some(pairs)
}

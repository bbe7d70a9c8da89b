//! A domain as the node wants it: the guest and what the node must remember with it.

use kilonova_ids::{OperationId, ServerId};
use kilonova_node_api::{Attachment, Boot, Domain, Guest, Interface, Machine, Rescue};

/// What a domain's XML says. The XML is the only place where it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// Whose; also the domain's uuid.
    pub server: ServerId,
    /// `instance-0000001a`.
    pub name: String,
    /// What the user calls it.
    pub display_name: String,
    /// Processors.
    pub vcpus: i64,
    /// Memory, MiB.
    pub memory_mb: i64,
    /// Disks.
    pub boot: Boot,
    /// What the machine is like beyond its size.
    pub machine: Machine,
    /// What the guest is told of itself.
    pub guest: Guest,
    /// The devices.
    pub devices: Vec<Attachment>,
    /// The connections to networks.
    pub interfaces: Vec<Interface>,
    /// What the guest starts from to be mended.
    pub rescue: Option<Rescue>,
    /// The last one-shot verb that was carried out.
    pub done: Option<OperationId>,
}

impl Definition {
    /// The definition that a document asks for, with the verb it carries as done.
    pub fn of(server: ServerId, domain: &Domain) -> Self {
        Self {
            server,
            name: domain.name.clone(),
            display_name: domain.display_name.clone(),
            vcpus: domain.vcpus,
            memory_mb: domain.memory_mb,
            boot: domain.boot.clone(),
            machine: domain.machine.clone(),
            guest: domain.guest.clone(),
            devices: domain.devices.clone(),
            interfaces: domain.interfaces.clone(),
            rescue: domain.rescue.clone(),
            done: domain.verb.map(|(operation, _)| operation),
        }
    }

    /// Whether a guest of the other definition would see the same machine. Names for people, what
    /// the guest is told, the remembered verb and connections to networks can change under a running
    /// guest; this cannot.
    pub fn same_machine(&self, other: &Self) -> bool {
        self.server == other.server
            && self.name == other.name
            && self.vcpus == other.vcpus
            && self.memory_mb == other.memory_mb
            && self.boot == other.boot
            && self.machine == other.machine
            && self.devices == other.devices
            && self.rescue == other.rescue
    }

    /// Uuids of its mediated devices.
    pub fn mdevs(&self) -> impl Iterator<Item = uuid::Uuid> {
        self.devices.iter().filter_map(|device| match device {
            Attachment::Mdev { uuid, .. } => Some(*uuid),
            Attachment::Pci { .. } | Attachment::Vfio { .. } | Attachment::TestPci { .. } => None,
        })
    }
}

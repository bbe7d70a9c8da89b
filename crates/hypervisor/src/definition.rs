//! A domain's definition: the guest, and what the agent must remember with it.

use kilonova_ids::{OperationId, ServerId};
use kilonova_node_api::{Attachment, Boot, Domain, GuestMetadata, Interface, Machine, Rescue};

/// The content of a domain's XML, which is its only copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The server, whose id is also the domain's uuid.
    pub server: ServerId,
    /// `instance-0000001a`.
    pub name: String,
    /// The server's name.
    pub display_name: String,
    /// Number of vCPUs.
    pub vcpus: i64,
    /// Memory, MiB.
    pub memory_mb: i64,
    /// Disks.
    pub boot: Boot,
    /// Hardware properties beyond the size.
    pub machine: Machine,
    /// The metadata on the guest's config drive.
    pub guest: GuestMetadata,
    /// Attached host devices.
    pub devices: Vec<Attachment>,
    /// Network interfaces.
    pub interfaces: Vec<Interface>,
    /// The rescue configuration, while the server is rescued.
    pub rescue: Option<Rescue>,
    /// The last one-shot verb that was carried out.
    pub done: Option<OperationId>,
}

impl Definition {
    /// The definition for a document, with the document's verb recorded as done.
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

    /// True if both definitions describe the same hardware. Names, guest metadata, the recorded
    /// verb and network interfaces can change under a running guest; hardware cannot.
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

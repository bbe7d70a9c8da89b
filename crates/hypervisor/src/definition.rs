//! A domain's definition: its configuration, and what the agent must remember with it.

use kilonova_ids::{OperationId, ServerId};
use kilonova_node_api::{Attachment, Domain, DomainConfig, Machine};

/// The content of a domain's XML, which is its only copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The server, whose id is also the domain's uuid.
    pub server: ServerId,
    /// The configuration.
    pub config: DomainConfig,
    /// The last one-shot verb that was carried out.
    pub done: Option<OperationId>,
}

impl Definition {
    /// The definition for a document, with the document's verb recorded as done.
    pub fn of(server: ServerId, domain: &Domain) -> Self {
        let done = domain.verb.map(|(operation, _)| operation);
        Self { server, config: domain.config.clone(), done }
    }

    /// True if both definitions describe the same hardware. The display name, guest metadata, the
    /// recorded verb and network interfaces can change under a running guest; hardware cannot.
    pub fn same_machine(&self, other: &Self) -> bool {
        let Self { server, config, done: _ } = self;
        let DomainConfig {
            name,
            display_name: _,
            vcpus,
            memory_mb,
            boot,
            machine,
            guest: _,
            devices,
            interfaces: _,
            rescue,
        } = config;
        *server == other.server
            && *name == other.config.name
            && *vcpus == other.config.vcpus
            && *memory_mb == other.config.memory_mb
            && *boot == other.config.boot
            && *machine == other.config.machine
            && *devices == other.config.devices
            && *rescue == other.config.rescue
    }

    /// The machine in effect: the rescue machine while rescued.
    pub fn machine(&self) -> &Machine {
        self.config.rescue.as_ref().map_or(&self.config.machine, |rescue| &rescue.machine)
    }

    /// True if the guest gets a display, which `hw_video_model=none` refuses.
    pub fn has_display(&self) -> bool {
        self.machine().video_model.as_deref() != Some("none")
    }

    /// Uuids of its mediated devices.
    pub fn mdevs(&self) -> impl Iterator<Item = uuid::Uuid> {
        self.config.devices.iter().filter_map(|device| match device {
            Attachment::Mdev { uuid, .. } => Some(*uuid),
            Attachment::Pci { .. } | Attachment::Vfio { .. } | Attachment::TestPci { .. } => None,
        })
    }
}

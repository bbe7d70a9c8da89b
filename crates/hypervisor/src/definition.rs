//! A domain's definition: its configuration, and the agent's records about it.

use std::collections::BTreeMap;

use kilonova_ids::{OperationId, ServerId, VolumeId};
use kilonova_node_api::{Attachment, Domain, DomainConfig, Machine, Volume, VolumeSource};

/// The content of a domain's XML, which is its only copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The server, whose id is also the domain's UUID.
    pub server: ServerId,
    /// The configuration.
    pub config: DomainConfig,
    /// The last one-shot verb that was carried out.
    pub done: Option<OperationId>,
    /// The source of each connected volume of the configuration, for the hypervisor.
    pub sources: BTreeMap<VolumeId, VolumeSource>,
    /// The machine type of the domain, if the configuration names none and the host has no domain of the server. A
    /// definition that is read from a domain has none: the driver finds the type there.
    pub kept_machine_type: Option<String>,
}

impl Definition {
    /// The definition for a document, with the document's verb recorded as done.
    pub fn of(server: ServerId, domain: &Domain) -> Self {
        let done = domain.verb.map(|(operation, _)| operation);
        Self {
            server,
            config: domain.config.clone(),
            done,
            sources: BTreeMap::new(),
            kept_machine_type: None,
        }
    }

    /// The definition as the domain's XML records it: without the secrets of volumes, and without the files of the config
    /// drive, which the drive has.
    #[must_use]
    pub fn without_secrets(&self) -> Self {
        let mut plain = self.clone();
        for volume in &mut plain.config.volumes {
            *volume = volume.without_secrets();
        }
        plain.config.guest = plain.config.guest.without_files();
        plain
    }

    /// The connected volumes, each with its source.
    pub fn connected(&self) -> impl Iterator<Item = (&Volume, &VolumeSource)> {
        let source = |volume: &Volume| self.sources.get(&volume.volume_id);
        self.config.volumes.iter().filter_map(move |volume| Some((volume, source(volume)?)))
    }

    /// True if both definitions describe the same hardware. The display name, guest metadata, the
    /// recorded verb, network interfaces and volumes can change under a running guest; hardware
    /// cannot. The cells at which a guest sees its devices are not compared, because definitions of
    /// earlier builds do not record them.
    pub fn same_machine(&self, other: &Self) -> bool {
        let Self { server, config, done: _, sources: _, kept_machine_type: _ } = self;
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
            volumes: _,
            numa,
        } = config;
        *server == other.server
            && *name == other.config.name
            && *vcpus == other.config.vcpus
            && *memory_mb == other.config.memory_mb
            && *boot == other.config.boot
            && *machine == other.config.machine
            && *devices == other.config.devices
            && *rescue == other.config.rescue
            && match (numa, &other.config.numa) {
                (Some(one), Some(other)) => one.same_cells(other),
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            }
    }

    /// The machine in effect: the rescue machine while rescued.
    pub fn machine(&self) -> &Machine {
        self.config.rescue.as_ref().map_or(&self.config.machine, |rescue| &rescue.machine)
    }

    /// True if the guest has a display, that is, unless `hw_video_model=none`.
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

//! The volumes of a simulated host: a record of each attachment, and nothing else exists. The file
//! `volume_fault` in the host's directory contains the reason why volumes cannot be connected.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kilonova_ids::{AttachmentId, HostName, ServerId, VolumeId};
use kilonova_node_api::{Connector, Nfs, Rbd, Target, Volume, VolumeSource};

use crate::volumes::{DisconnectFuture, StuckVolume, VolumeFuture, VolumeRecords, Volumes};

/// Connects volumes immediately.
pub(crate) struct SimulatedVolumes {
    connector: Connector,
    records: VolumeRecords,
    fault: PathBuf,
}

impl SimulatedVolumes {
    pub fn open(host: &HostName, address: &str, folder: &Path) -> std::io::Result<Self> {
        let connector = Connector {
            host: host.to_string(),
            ip: Some(address.to_owned()),
            platform: Some("x86_64".to_owned()),
            os_type: Some("linux".to_owned()),
            initiator: Some(format!("iqn.2026-01.org.kilonova:{host}")),
            ..Connector::default()
        };
        let records = VolumeRecords::open(folder.join("volumes"))?;
        Ok(Self { connector, records, fault: folder.join("volume_fault") })
    }

    fn source(&self, server: ServerId, volume: &Volume) -> Result<VolumeSource, String> {
        self.records.put(server, volume).map_err(|error| error.to_string())?;
        if let Ok(fault) = std::fs::read_to_string(&self.fault)
            && !fault.trim().is_empty()
        {
            return Err(fault.trim().to_owned());
        }
        Ok(match &volume.connection.target {
            Target::Rbd(Rbd { name, hosts, user, secret, .. }) => VolumeSource::Rbd {
                name: name.clone(),
                hosts: hosts.clone(),
                user: user.clone(),
                secret: *secret,
            },
            Target::Nfs(Nfs { name, format, .. }) => VolumeSource::File {
                path: Path::new("/var/lib/nova/mnt").join(name),
                format: format.clone(),
            },
            Target::Iscsi(_) | Target::Nvmeof(_) => {
                VolumeSource::Block { path: format!("/dev/disk/by-id/{}", volume.volume_id).into() }
            }
            Target::Local { device_path } => VolumeSource::Block { path: device_path.into() },
            Target::Unknown => return Err(UNKNOWN.to_owned()),
        })
    }
}

/// Why a volume from a newer controller cannot be connected.
const UNKNOWN: &str = "this agent does not know the volume's protocol: install a newer agent";

impl Volumes for SimulatedVolumes {
    fn connector(&self) -> Option<Connector> {
        Some(self.connector.clone())
    }

    fn connect<'a>(
        &'a self,
        server: ServerId,
        volume: &'a Volume,
    ) -> VolumeFuture<'a, VolumeSource> {
        Box::pin(async move { self.source(server, volume) })
    }

    fn disconnect_others<'a>(
        &'a self,
        server: ServerId,
        keep: &'a BTreeSet<AttachmentId>,
    ) -> DisconnectFuture<'a> {
        Box::pin(async move {
            let mut stuck = Vec::new();
            for record in self.records.of(server) {
                let volume = record.volume;
                if !keep.contains(&volume.attachment_id)
                    && let Err(error) = self.records.remove(volume.attachment_id)
                {
                    stuck.push(StuckVolume { volume, reason: error.to_string() });
                }
            }
            stuck
        })
    }

    fn attachments(&self, server: ServerId) -> Vec<(AttachmentId, VolumeId)> {
        let of = |volume: Volume| (volume.attachment_id, volume.volume_id);
        self.records.of(server).into_iter().map(|record| of(record.volume)).collect()
    }

    fn servers(&self) -> BTreeSet<ServerId> {
        self.records.servers()
    }
}

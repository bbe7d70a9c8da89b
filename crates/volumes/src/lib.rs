//! The volumes of a real host: connects and disconnects them.
//!
//! ```text
//!   config    the operator's options
//!   identity  the host's connector for Cinder
//!   system    programs, sysfs and /dev, behind a trait
//!   locks     one step at a time for each target and each mount
//!   scsi      SCSI devices in sysfs
//!   iscsi     sessions by `iscsiadm`, or none where QEMU is the initiator
//!   multipath maps of several paths by `multipathd`
//!   nfs       mounts
//!   nvmeof    controllers by `nvme`
//!   rbd       nothing to connect: librbd in QEMU does it
//! ```
//!
//! A record of each attachment exists before its first step and until after its last one
//! ([`VolumeRecords`]). The records also count the users of shared resources: a session, a mount or
//! a subsystem is removed with the last record that uses it. Every step is idempotent, so it may be
//! repeated after a crash. The crate must never change anything else on the host: a session with a
//! foreign device stays.

mod config;
mod identity;
mod iscsi;
mod locks;
mod multipath;
mod nfs;
mod nvmeof;
mod rbd;
mod scsi;
mod system;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kilonova_ids::{AttachmentId, ServerId, VolumeId};
use kilonova_node::{
    DisconnectFuture, StuckVolume, VolumeFuture, VolumeRecord, VolumeRecords, Volumes,
};
use kilonova_node_api::{Connector, Target, Volume, VolumeSource};

pub use config::{IscsiInitiator, VolumesConfig};
use locks::Locks;
use system::{Host, System};

/// The volumes of this host.
pub struct HostVolumes {
    config: VolumesConfig,
    system: Arc<dyn System>,
    records: VolumeRecords,
    locks: Locks,
    /// True if volumes are connected over several paths.
    multipath: bool,
}

impl HostVolumes {
    /// Opens the volumes of this host with the operator's options, and the records that earlier
    /// agents left in a directory.
    ///
    /// # Errors
    /// If a record cannot be read, or if multipath is enforced and `multipathd` does not answer.
    pub async fn open(config: VolumesConfig, records: PathBuf) -> Result<Self, String> {
        Self::on(Arc::new(Host), config, records).await
    }

    async fn on(
        system: Arc<dyn System>,
        config: VolumesConfig,
        records: PathBuf,
    ) -> Result<Self, String> {
        let records = VolumeRecords::open(records).map_err(|error| error.to_string())?;
        let multipath = match multipath::is_available(&*system, &config).await {
            Ok(available) => available,
            Err(why) if config.enforce_multipath => {
                return Err(format!("[libvirt] volume_enforce_multipath is set, but {why}"));
            }
            Err(why) => {
                tracing::warn!(%why, "[libvirt] volume_use_multipath has no effect: volumes have one path");
                false
            }
        };
        Ok(Self { config, system, records, locks: Locks::default(), multipath })
    }

    async fn connect_one(&self, server: ServerId, volume: &Volume) -> Result<VolumeSource, String> {
        let file = |error: std::io::Error| format!("cannot record the attachment: {error}");
        self.records.put(server, volume).map_err(file)?;
        match &volume.connection.target {
            Target::Rbd(image) => rbd::source(&self.config, image),
            Target::Iscsi(lun) => self.connect_iscsi(volume, lun).await,
            Target::Nfs(export) => self.mount(export).await,
            Target::Nvmeof(namespace) => self.connect_nvmeof(volume, namespace).await,
            Target::Local { device_path } => {
                let path = Path::new(device_path);
                match self.system.resolve(path) {
                    Ok(_) => Ok(VolumeSource::Block { path: path.to_owned() }),
                    Err(error) => Err(format!("{device_path}: {error}")),
                }
            }
            Target::Unknown => {
                Err("this agent does not know the volume's protocol: install a newer agent".into())
            }
        }
    }

    async fn disconnect_one(&self, record: &VolumeRecord) -> Result<(), String> {
        let attachment = record.volume.attachment_id;
        match &record.volume.connection.target {
            Target::Iscsi(lun) => self.disconnect_iscsi(attachment, lun).await?,
            Target::Nvmeof(namespace) => self.disconnect_nvmeof(attachment, namespace).await?,
            Target::Nfs(_) | Target::Rbd(_) | Target::Local { .. } | Target::Unknown => {}
        }
        self.records.remove(attachment).map_err(|error| error.to_string())?;
        if matches!(record.volume.connection.target, Target::Nfs(_)) {
            self.unmount_unused().await;
        }
        Ok(())
    }

    /// The targets of all other attachments.
    fn others(&self, attachment: AttachmentId) -> Vec<Target> {
        let others = self.records.list().into_iter().map(|record| record.volume);
        others
            .filter(|volume| volume.attachment_id != attachment)
            .map(|volume| volume.connection.target)
            .collect()
    }
}

impl Volumes for HostVolumes {
    fn connector(&self) -> Option<Connector> {
        Some(identity::connector(&*self.system, &self.config, self.multipath))
    }

    fn connect<'a>(
        &'a self,
        server: ServerId,
        volume: &'a Volume,
    ) -> VolumeFuture<'a, VolumeSource> {
        Box::pin(self.connect_one(server, volume))
    }

    fn disconnect_others<'a>(
        &'a self,
        server: ServerId,
        keep: &'a BTreeSet<AttachmentId>,
    ) -> DisconnectFuture<'a> {
        Box::pin(async move {
            let mut stuck = Vec::new();
            for record in self.records.of(server) {
                if keep.contains(&record.volume.attachment_id) {
                    continue;
                }
                if let Err(reason) = self.disconnect_one(&record).await {
                    stuck.push(StuckVolume { volume: record.volume, reason });
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

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

//! SCSI devices in sysfs.

use std::path::{Path, PathBuf};

use crate::system::System;

/// A SCSI device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScsiDevice {
    /// Host, channel, target and LUN: `2:0:0:1`.
    pub address: String,
    /// Its name: `sdb`.
    pub name: String,
}

impl ScsiDevice {
    /// Its device node.
    pub(crate) fn node(&self) -> PathBuf {
        Path::new("/dev").join(&self.name)
    }

    fn attribute(&self, name: &str) -> PathBuf {
        Path::new("/sys/bus/scsi/devices").join(&self.address).join(name)
    }

    /// Makes the kernel re-read its size, if that is less than expected.
    pub(crate) async fn grow(&self, system: &dyn System, gib: i64) {
        if size(system, &self.name).is_some_and(|bytes| bytes < bytes_of(gib))
            && let Err(error) = system.write(&self.attribute("rescan"), "1").await
        {
            tracing::warn!(device = %self.name, %error, "could not re-read the size of a volume");
        }
    }

    /// Removes it from the kernel.
    pub(crate) async fn delete(&self, system: &dyn System) -> Result<(), String> {
        match system.write(&self.attribute("delete"), "1").await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(format!("cannot remove the device {}: {error}", self.name))
            }
            _ => Ok(()),
        }
    }

    /// The device-mapper device that uses it: `dm-0`.
    pub(crate) fn map(&self, system: &dyn System) -> Option<String> {
        let holders = system.list(&Path::new("/sys/class/block").join(&self.name).join("holders"));
        holders.into_iter().find(|holder| holder.starts_with("dm-"))
    }
}

/// The size of a block device in bytes.
pub(crate) fn size(system: &dyn System, name: &str) -> Option<u64> {
    let sectors = system.read(&Path::new("/sys/class/block").join(name).join("size")).ok()?;
    sectors.trim().parse::<u64>().ok()?.checked_mul(512)
}

/// Bytes of a size in GiB.
pub(crate) fn bytes_of(gib: i64) -> u64 {
    u64::try_from(gib).unwrap_or_default() << 30
}

/// The target of a session: its SCSI host, and the session's directory.
pub(crate) struct ScsiTarget {
    host: String,
    session: PathBuf,
    /// `target2:0:0`; `None` until the kernel has found a LUN: only a scan creates the target.
    name: Option<String>,
}

impl ScsiTarget {
    /// The target of an iSCSI session; `None` until the kernel has created the session.
    pub(crate) fn of_session(system: &dyn System, session: u32) -> Option<Self> {
        let hosts = Path::new("/sys/class/iscsi_host");
        let own = format!("session{session}");
        system.list(hosts).into_iter().find_map(|host| {
            let device = hosts.join(&host).join("device");
            if !system.list(&device).contains(&own) {
                return None;
            }
            let session = device.join(&own);
            let mut names = system.list(&session).into_iter();
            let name = names.find(|name| name.starts_with("target"));
            Some(Self { session, name, host })
        })
    }

    /// Makes the kernel scan for this LUN only. The SCSI host has only this session, so without a target every channel
    /// and target may be scanned.
    pub(crate) async fn scan(&self, system: &dyn System, lun: u64) -> Result<(), String> {
        let name = self.name.as_deref().unwrap_or_default();
        let mut parts = name.trim_start_matches("target").split(':').skip(1);
        let (channel, target) = (parts.next().unwrap_or("-"), parts.next().unwrap_or("-"));
        let file = Path::new("/sys/class/scsi_host").join(&self.host).join("scan");
        system
            .write(&file, &format!("{channel} {target} {lun}"))
            .await
            .map_err(|error| format!("cannot scan {}: {error}", self.host))
    }

    /// The device of a LUN.
    pub(crate) fn device(&self, system: &dyn System, lun: u64) -> Option<ScsiDevice> {
        self.devices(system).into_iter().find(|device| {
            device.address.rsplit(':').next().and_then(|number| number.parse().ok()) == Some(lun)
        })
    }

    /// All its devices with a node.
    pub(crate) fn devices(&self, system: &dyn System) -> Vec<ScsiDevice> {
        let device = |address: String| {
            let block = self.folder()?.join(&address).join("block");
            let name = system.list(&block).into_iter().next()?;
            Some(ScsiDevice { address, name })
        };
        self.addresses(system).into_iter().filter_map(device).collect()
    }

    /// True if it has no device at all.
    pub(crate) fn is_empty(&self, system: &dyn System) -> bool {
        self.addresses(system).is_empty()
    }

    fn addresses(&self, system: &dyn System) -> Vec<String> {
        let Some(folder) = self.folder() else { return Vec::new() };
        let is_address = |name: &String| name.split(':').count() == 4;
        system.list(&folder).into_iter().filter(is_address).collect()
    }

    fn folder(&self) -> Option<PathBuf> {
        self.name.as_ref().map(|name| self.session.join(name))
    }
}

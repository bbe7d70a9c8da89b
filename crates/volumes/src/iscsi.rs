//! iSCSI LUNs through the kernel's initiator.
//!
//! ```text
//!   connect      node record ─► login, CHAP ─► session ─► scan for the one LUN ─► device ─► map
//!   disconnect   map flushed ─► device flushed ─► device deleted ─► logout ─► node record deleted
//! ```
//!
//! A session does not scan automatically (`node.session.scan = manual`), so that a target's other LUNs do not appear
//! here. A device stays while another attachment has the same LUN, and a session stays while another attachment has the
//! same target or the session has any device.

use std::path::{Path, PathBuf};

use kilonova_ids::AttachmentId;
use kilonova_node_api::{Chap, Iscsi, IscsiPath, Target, Volume, VolumeSource};

use crate::HostVolumes;
use crate::config::{IscsiInitiator, VolumesConfig};
use crate::scsi::{ScsiDevice, ScsiTarget};
use crate::system::{Argument, Failure, System, arguments, lasting_path};
use crate::{identity, multipath};

/// `iscsiadm` found no record or session.
const NO_OBJECTS: i32 = 21;
/// `iscsiadm` has logged in before.
const SESSION_EXISTS: i32 = 15;

impl HostVolumes {
    pub(crate) async fn connect_iscsi(
        &self,
        volume: &Volume,
        lun: &Iscsi,
    ) -> Result<VolumeSource, String> {
        if self.config.iscsi == IscsiInitiator::Qemu {
            return self.leave_to_qemu(volume, lun);
        }
        let system = &*self.system;
        let locks = self.locks.take(names(lun)).await;
        let (mut devices, mut last) = (Vec::new(), String::new());
        for path in &lun.paths {
            match self.connect_path(path, lun.chap.as_ref()).await {
                Ok(device) => devices.push((path, device)),
                Err(why) => {
                    tracing::warn!(portal = %path.portal, target = %path.iqn, %why, "could not connect a path of a volume");
                    last = why;
                }
            }
            if !devices.is_empty() && !self.multipath {
                break;
            }
        }
        let Some((first, device)) = devices.first() else {
            return Err(if last.is_empty() { "the volume has no path".into() } else { last });
        };
        for (_, device) in &devices {
            device.grow(system, volume.size_gb).await;
        }
        if !self.multipath {
            drop(locks);
            let path = node(system, &self.config, first, device).await;
            return Ok(VolumeSource::Block { path });
        }
        let all: Vec<ScsiDevice> = devices.iter().map(|(_, device)| device.clone()).collect();
        match multipath::map(system, &self.config, &all).await {
            Some(map) => {
                multipath::grow(system, &map, volume.size_gb).await;
                drop(locks);
                let path = multipath::node(system, &self.config, &map).await;
                Ok(VolumeSource::Block { path })
            }
            None if self.config.enforce_multipath => {
                Err("multipathd created no map of the volume's paths".into())
            }
            None => {
                tracing::warn!(volume = %volume.volume_id, "multipathd created no map of a volume's paths; the guest uses one of them");
                drop(locks);
                let path = node(system, &self.config, first, device).await;
                Ok(VolumeSource::Block { path })
            }
        }
    }

    /// Lets QEMU log in, with this host's initiator name and the password from the libvirt secret that has the
    /// attachment's id.
    fn leave_to_qemu(&self, volume: &Volume, lun: &Iscsi) -> Result<VolumeSource, String> {
        let path = lun.paths.first().ok_or("the volume has no path")?;
        let portal = path.host().ok_or_else(|| format!("the portal {} is invalid", path.portal))?;
        let user = lun.chap.as_ref().map(|chap| chap.user.clone());
        let secret = user.as_ref().map(|_| {
            let id = volume.attachment_id.to_string();
            uuid::Uuid::try_parse(&id).unwrap_or_default()
        });
        Ok(VolumeSource::Iscsi {
            iqn: path.iqn.clone(),
            lun: path.lun,
            portal,
            initiator: identity::initiator(&*self.system),
            user,
            secret,
        })
    }

    /// Connects one path and returns its device.
    async fn connect_path(
        &self,
        path: &IscsiPath,
        chap: Option<&Chap>,
    ) -> Result<ScsiDevice, String> {
        let system = &*self.system;
        let session = match session(system, path).await? {
            Some(session) => session,
            None => {
                login(system, path, chap).await?;
                let found = session(system, path).await?;
                found.ok_or_else(|| format!("the login at {} created no session", path.portal))?
            }
        };
        for attempt in 0..self.config.scan_tries.max(1) {
            if attempt > 0 {
                tokio::time::sleep(self.config.look).await;
            }
            let Some(target) = ScsiTarget::of_session(system, session) else {
                continue;
            };
            if let Some(device) = target.device(system, path.lun) {
                return Ok(device);
            }
            target.scan(system, path.lun).await?;
            // The scan may also have created the target.
            let target = ScsiTarget::of_session(system, session);
            if let Some(device) = target.and_then(|target| target.device(system, path.lun)) {
                return Ok(device);
            }
        }
        Err(format!("the target {} at {} shows no LUN {}", path.iqn, path.portal, path.lun))
    }

    /// Disconnects the paths of an attachment that no other attachment uses.
    pub(crate) async fn disconnect_iscsi(
        &self,
        attachment: AttachmentId,
        lun: &Iscsi,
    ) -> Result<(), String> {
        if self.config.iscsi == IscsiInitiator::Qemu {
            return Ok(());
        }
        let system = &*self.system;
        let _locks = self.locks.take(names(lun)).await;
        let others: Vec<IscsiPath> =
            self.others(attachment).into_iter().filter_map(paths).flatten().collect();
        let mut devices = Vec::new();
        for path in &lun.paths {
            let is_used = |other: &IscsiPath| other.iqn == path.iqn && other.lun == path.lun;
            if others.iter().any(is_used) {
                continue;
            }
            if let Some(session) = session(system, path).await?
                && let Some(target) = ScsiTarget::of_session(system, session)
                && let Some(device) = target.device(system, path.lun)
            {
                devices.push(device);
            }
        }
        if let Some(map) = devices.iter().find_map(|device| device.map(system)) {
            multipath::flush(system, &self.config, &map).await?;
        }
        for device in &devices {
            let node = device.node().display().to_string();
            let flushed = system.run("blockdev", arguments(&["--flushbufs", &node])).await;
            if let Err(failure) = flushed {
                // QEMU writes without a cache, so no data can be lost on a dead path.
                tracing::warn!(device = %device.name, why = %failure.message, "could not flush a volume");
            }
            device.delete(system).await?;
        }
        for path in &lun.paths {
            let is_used = |other: &IscsiPath| other.iqn == path.iqn && other.portal == path.portal;
            if !others.iter().any(is_used) {
                self.logout(path).await?;
            }
        }
        Ok(())
    }

    /// Ends the session of a path, unless it has devices.
    async fn logout(&self, path: &IscsiPath) -> Result<(), String> {
        let system = &*self.system;
        if let Some(session) = session(system, path).await? {
            for attempt in 0..self.config.scan_tries.max(1) {
                match ScsiTarget::of_session(system, session) {
                    Some(target) if !target.is_empty(system) => {}
                    Some(_) | None => break,
                }
                if attempt + 1 == self.config.scan_tries.max(1) {
                    tracing::info!(portal = %path.portal, target = %path.iqn, "keeping a session that has other devices");
                    return Ok(());
                }
                tokio::time::sleep(self.config.look).await;
            }
            ignore(node_command(system, path, &["--logout"]).await, &[NO_OBJECTS])?;
        }
        ignore(node_command(system, path, &["--op", "delete"]).await, &[NO_OBJECTS])
    }
}

/// The lock names of a LUN: one for each of its targets.
fn names(lun: &Iscsi) -> Vec<String> {
    lun.paths.iter().map(|path| format!("iscsi {}", path.iqn)).collect()
}

fn paths(target: Target) -> Option<Vec<IscsiPath>> {
    match target {
        Target::Iscsi(lun) => Some(lun.paths),
        Target::Rbd(_)
        | Target::Nfs(_)
        | Target::Nvmeof(_)
        | Target::Local { .. }
        | Target::Unknown => None,
    }
}

/// The session of a path, from lines such as `tcp: [1] 192.0.2.9:3260,1 iqn.a (non-flash)`.
async fn session(system: &dyn System, path: &IscsiPath) -> Result<Option<u32>, String> {
    let listed = match system.run("iscsiadm", arguments(&["-m", "session"])).await {
        Ok(listed) => listed,
        Err(failure) if failure.code == Some(NO_OBJECTS) => return Ok(None),
        Err(failure) => return Err(failure.message),
    };
    Ok(listed.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (session, portal, iqn) = (words.next()?, words.next()?, words.next()?);
        let is_of = iqn == path.iqn && address(portal) == address(&path.portal);
        let number = session.trim_start_matches('[').trim_end_matches(']');
        if is_of { number.parse().ok() } else { None }
    }))
}

/// A portal without its group number.
fn address(portal: &str) -> &str {
    portal.split_once(',').map_or(portal, |(address, _)| address)
}

async fn login(system: &dyn System, path: &IscsiPath, chap: Option<&Chap>) -> Result<(), String> {
    match node_command(system, path, &[]).await {
        Ok(_) => {}
        Err(failure) if failure.code == Some(NO_OBJECTS) => {
            let new = ["--interface", "default", "--op", "new"];
            node_command(system, path, &new).await.map_err(|failure| failure.message)?;
        }
        Err(failure) => return Err(failure.message),
    }
    let mut settings: Vec<(&str, Argument)> =
        vec![("node.startup", "manual".into()), ("node.session.scan", "manual".into())];
    if let Some(chap) = chap {
        settings.push(("node.session.auth.authmethod", "CHAP".into()));
        settings.push(("node.session.auth.username", chap.user.clone().into()));
        settings.push(("node.session.auth.password", Argument::Secret(chap.password.clone())));
    }
    for (name, value) in settings {
        let mut words = node_words(path);
        words.extend(arguments(&["--op", "update", "-n", name, "-v"]));
        words.push(value);
        system.run("iscsiadm", words).await.map_err(|failure| failure.message)?;
    }
    ignore(node_command(system, path, &["--login"]).await, &[SESSION_EXISTS])
}

fn node_words(path: &IscsiPath) -> Vec<Argument> {
    arguments(&["-m", "node", "-T", &path.iqn, "-p", address(&path.portal)])
}

async fn node_command(
    system: &dyn System,
    path: &IscsiPath,
    more: &[&str],
) -> Result<String, Failure> {
    let mut words = node_words(path);
    words.extend(arguments(more));
    system.run("iscsiadm", words).await
}

/// Treats these exit codes as success.
fn ignore(result: Result<String, Failure>, codes: &[i32]) -> Result<(), String> {
    match result {
        Err(failure) if failure.code.is_some_and(|code| codes.contains(&code)) => Ok(()),
        result => result.map(drop).map_err(|failure| failure.message),
    }
}

/// The path of a device ([`lasting_path`]).
async fn node(
    system: &dyn System,
    config: &VolumesConfig,
    path: &IscsiPath,
    device: &ScsiDevice,
) -> PathBuf {
    let lun = match path.lun {
        lun if lun < 256 => lun.to_string(),
        lun => format!("0x{lun:04x}000000000000"),
    };
    let portal = address(&path.portal);
    // udev writes an IPv6 address without brackets.
    let lasting = [portal.to_owned(), portal.replace(['[', ']'], "")].map(|portal| {
        Path::new("/dev/disk/by-path").join(format!("ip-{portal}-iscsi-{}-lun-{lun}", path.iqn))
    });
    lasting_path(system, config, &lasting, device.node()).await
}

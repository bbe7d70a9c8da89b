//! Volumes of a running guest, and the libvirt secrets with which QEMU opens volumes itself.
//!
//! A disk is detached only when the guest releases it, which a busy guest or one without an operating
//! system may not do. The request is repeated, and the detachment has succeeded once the disk is
//! gone, even if another process removed it.
//!
//! A secret of an attachment is named after server and attachment, and removed with the attachment.
//! The key of a Ceph user belongs to the host, so it stays.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kilonova_hypervisor::{Definition, Error, HeldVolume, PluggedVolumes, Step};
use kilonova_ids::{ServerId, VolumeId};
use kilonova_node_api::{Iscsi, Target, Volume, VolumeSource};
use roxmltree::Document;
use tokio::time::{Instant, timeout};
use uuid::Uuid;
use virt::connect::Connect;
use virt::domain::Domain;
use virt::error::{Error as VirtError, ErrorNumber};
use virt::secret::Secret;
use virt_sys as sys;

use super::save::POLL_INTERVAL;
use super::{Driver, domain_state};
use crate::connection::{QUICK, SLOW, error_text, has_code};
use crate::xml::{self, VolumeDisk};

/// Start of the names of secrets that belong to an attachment.
const USAGE: &str = "kilonova";

impl Driver {
    /// Attaches and detaches volumes of a guest that is up.
    pub(super) async fn plug_guest_volumes(
        &self,
        definition: &Definition,
    ) -> Result<PluggedVolumes, Error> {
        let (step, server) = (Step::Volume, definition.server);
        let mut plugged = PluggedVolumes::default();
        let has = self.with(step, QUICK, server, |_, domain| live(domain)).await?;
        for disk in has.iter().filter(|disk| !definition.sources.contains_key(&disk.volume)) {
            if let Err(reason) = self.detach_volume(server, disk).await? {
                let (volume, device) = (disk.volume, disk.device.clone());
                plugged.held.push(HeldVolume { volume, device, reason });
            }
        }
        for (volume, source) in definition.connected() {
            if let Some(disk) = has.iter().find(|disk| disk.volume == volume.volume_id) {
                if disk.source != xml::name_of(source) {
                    plugged.elsewhere.push(volume.volume_id);
                }
                if let Err(error) = self.grow_volume(server, volume).await {
                    plugged.not_grown.push((volume.volume_id, error.message));
                }
            } else if let Err(error) = self.attach_volume(definition, volume, source).await {
                plugged.refused.push((volume.volume_id, error.message));
            }
        }
        if !plugged.refused.is_empty() {
            self.remove_refused_secrets(definition, &plugged.refused).await;
        }
        Ok(plugged)
    }

    /// Removes the secrets of volumes that the guest did not get, because it may never be defined with them. A
    /// failure is only logged: the next definition removes them too.
    async fn remove_refused_secrets(
        &self,
        definition: &Definition,
        refused: &[(VolumeId, String)],
    ) {
        let mut left = definition.clone();
        left.config.volumes.retain(|one| refused.iter().all(|(id, _)| *id != one.volume_id));
        let server = left.server;
        let forget = move |connect: &Connect| keep_secrets(connect, server, Some(&left), true);
        if let Err(error) = self.link.call(Step::Volume, QUICK, forget).await {
            tracing::warn!(%server, %error, "could not remove the secret of a volume that was not attached");
        }
    }

    async fn attach_volume(
        &self,
        definition: &Definition,
        volume: &Volume,
        source: &VolumeSource,
    ) -> Result<(), Error> {
        let (server, id) = (definition.server, volume.volume_id);
        let xml = xml::volume_xml(&self.host, volume, source);
        let (definition, volume) = (definition.clone(), volume.clone());
        let attach = move |_: &Connect, domain: &Domain| {
            // An earlier call may have succeeded although its answer was lost.
            if live(domain)?.iter().any(|disk| disk.volume == id) {
                return Ok(());
            }
            let running = domain.get_xml_desc(0)?;
            if let Some(controller) = xml::missing_controller(&definition, &volume, &running) {
                domain.attach_device_flags(&controller, sys::VIR_DOMAIN_AFFECT_LIVE)?;
            }
            domain.attach_device_flags(&xml, sys::VIR_DOMAIN_AFFECT_LIVE).map(drop)
        };
        self.with(Step::Volume, SLOW, server, attach).await
    }

    /// Detaches a volume. The inner error is the reason why the guest still has it.
    async fn detach_volume(
        &self,
        server: ServerId,
        disk: &VolumeDisk,
    ) -> Result<Result<(), String>, Error> {
        let (step, config) = (Step::Volume, &self.host.config);
        let mut last = None;
        for _ in 0..config.detach_attempts.max(1) {
            let mut events = self.link.events();
            let (id, xml) = (disk.volume, disk.xml.clone());
            let ask = move |_: &Connect, domain: &Domain| {
                if !live(domain)?.iter().any(|one| one.volume == id) {
                    return Ok(Ok(()));
                }
                let asked = domain.detach_device_flags(&xml, sys::VIR_DOMAIN_AFFECT_LIVE);
                Ok(match asked {
                    Ok(_) => Ok(()),
                    Err(error) if is_unplugging(&error) => Ok(()),
                    Err(error) => Err(error_text(&error)),
                })
            };
            last = self.with(step, SLOW, server, ask).await?.err();
            let end = Instant::now() + config.detach_timeout;
            loop {
                let left = move |_: &Connect, domain: &Domain| {
                    Ok(live(domain)?.iter().any(|one| one.volume == id))
                };
                if !self.with(step, QUICK, server, left).await? {
                    return Ok(Ok(()));
                }
                if last.is_some() || Instant::now() >= end {
                    break;
                }
                let _ = timeout(POLL_INTERVAL, events.recv()).await;
            }
            if last.is_some() {
                // libvirt refused immediately, and would refuse an immediate retry too.
                let _ = timeout(POLL_INTERVAL, events.recv()).await;
            }
        }
        let usual = || "the guest did not release it".to_owned();
        Ok(Err(last.unwrap_or_else(usual)))
    }

    /// Grows the disk of a volume that has grown. After a failure, the guest sees the new size at its next start.
    async fn grow_volume(&self, server: ServerId, volume: &Volume) -> Result<(), Error> {
        let id = volume.volume_id;
        let size = u64::try_from(volume.size_gb).unwrap_or_default() << 30;
        let grow = move |_: &Connect, domain: &Domain| {
            let disks = live(domain)?;
            let Some(disk) = disks.iter().find(|disk| disk.volume == id) else { return Ok(false) };
            if domain.get_block_info(&disk.device, 0)?.capacity >= size {
                return Ok(false);
            }
            let bytes = sys::VIR_DOMAIN_BLOCK_RESIZE_BYTES;
            domain.block_resize(&disk.device, size, bytes).map(|_| true)
        };
        if self.with(Step::Volume, SLOW, server, grow).await? {
            tracing::info!(%server, volume = %id, size, "a guest's volume has grown");
        }
        Ok(())
    }

    /// Passes libvirt the secret of a volume that QEMU opens itself.
    pub(super) async fn give_volume_secret(
        &self,
        server: ServerId,
        volume: &Volume,
        source: &VolumeSource,
    ) -> Result<(), Error> {
        let step = Step::Volume;
        match source {
            VolumeSource::Iscsi { secret: Some(uuid), .. } => {
                let Target::Iscsi(Iscsi { chap: Some(chap), .. }) = &volume.connection.target
                else {
                    return Err(Error::new(step, "the volume's connection has no login"));
                };
                let usage = format!("{USAGE}/{server}/{}", volume.attachment_id);
                let xml = xml::secret(*uuid, "iscsi", &usage);
                let password = chap.password.clone();
                self.link
                    .call(step, QUICK, move |connect| {
                        Secret::define_xml(connect, &xml, 0)?
                            .set_value(password.reveal().as_bytes(), 0)
                    })
                    .await
            }
            VolumeSource::Rbd { user: Some(user), secret: Some(uuid), .. } => {
                self.give_ceph_key(user, *uuid).await
            }
            VolumeSource::Rbd { .. }
            | VolumeSource::Iscsi { .. }
            | VolumeSource::Block { .. }
            | VolumeSource::File { .. } => Ok(()),
        }
    }

    /// Creates the secret of a Ceph user from the host's keyring, unless the operator has created
    /// it.
    async fn give_ceph_key(&self, user: &str, uuid: Uuid) -> Result<(), Error> {
        let step = Step::Volume;
        let there = move |connect: &Connect| match Secret::lookup_by_uuid(connect, uuid) {
            Ok(_) => Ok(true),
            Err(error) if has_code(&error, ErrorNumber::NoSecret) => Ok(false),
            Err(error) => Err(error),
        };
        if self.link.call(step, QUICK, there).await? {
            return Ok(());
        }
        let ceph = &self.host.config.ceph;
        let key = keyring_key(ceph, user).map_err(|why| {
            let why = format!(
                "libvirt has no secret {uuid} for the Ceph user {user}, and there is no key to create \
                 it from: {why}"
            );
            Error::new(step, why)
        })?;
        let xml = xml::secret(uuid, "ceph", &format!("client.{user} secret"));
        self.link
            .call(step, QUICK, move |connect| {
                Secret::define_xml(connect, &xml, 0)?.set_value(&key, 0)
            })
            .await?;
        tracing::info!(user, %uuid, "created the libvirt secret of a Ceph user from the host's keyring");
        Ok(())
    }
}

/// Removes the secrets of a server's attachments except those in `definition`. Without `has_some` the
/// server probably has none, so a failure to list them is ignored: libvirt's driver for secrets may
/// not be installed.
pub(super) fn keep_secrets(
    connect: &Connect,
    server: ServerId,
    definition: Option<&Definition>,
    has_some: bool,
) -> Result<(), VirtError> {
    let prefix = format!("{USAGE}/{server}/");
    let volumes = definition.map(|definition| &definition.config.volumes);
    let keep: BTreeSet<String> = volumes
        .into_iter()
        .flatten()
        .map(|volume| format!("{prefix}{}", volume.attachment_id))
        .collect();
    let all = match connect.list_all_secrets(0) {
        // Some of libvirt's drivers have no secrets.
        Err(error) if has_code(&error, ErrorNumber::NoSupport) => return Ok(()),
        Err(error) if !has_some => {
            tracing::debug!(%server, %error, "could not list libvirt's secrets for a server without any");
            return Ok(());
        }
        all => all?,
    };
    for secret in all {
        match secret.get_xml_desc(0).map(|xml| usage_of(&xml)) {
            Ok(Some(usage)) if usage.starts_with(&prefix) && !keep.contains(&usage) => {
                match secret.undefine() {
                    Err(error) if has_code(&error, ErrorNumber::NoSecret) => {}
                    result => result?,
                }
            }
            // A secret that is kept, not ours, or deleted in the meantime.
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

/// True if a definition has a volume with a login, for which libvirt has a secret.
pub(super) fn has_login(definition: &Definition) -> bool {
    definition
        .config
        .volumes
        .iter()
        .any(|volume| matches!(&volume.connection.target, Target::Iscsi(lun) if lun.chap.is_some()))
}

/// True if a domain has a disk with such a login.
pub(super) fn has_login_in(xml: &str) -> bool {
    let Ok(document) = Document::parse(xml) else { return true };
    let is_login = |node: roxmltree::Node<'_, '_>| {
        node.has_tag_name("secret") && node.attribute("type") == Some("iscsi")
    };
    document.descendants().any(is_login)
}

/// The usage name of a secret, from its XML. (`virt`'s own call frees libvirt's memory.)
fn usage_of(xml: &str) -> Option<String> {
    let document = Document::parse(xml).ok()?;
    let usage = document.descendants().find(|node| node.has_tag_name("usage"))?;
    let name = usage.children().find(|node| node.is_element())?;
    Some(name.text()?.to_owned())
}

/// The disks of volumes in an active domain; none if it is not active.
fn live(domain: &Domain) -> Result<Vec<VolumeDisk>, VirtError> {
    if !domain_state(domain)?.is_up() {
        return Ok(Vec::new());
    }
    Ok(xml::volume_disks(&domain.get_xml_desc(0)?))
}

/// True if a device is being unplugged, or is gone.
pub(super) fn is_unplugging(error: &VirtError) -> bool {
    has_code(error, ErrorNumber::DeviceMissing)
        || error.message().contains("already in the process of unplug")
}

/// The key in `<cluster>.client.<user>.keyring`.
fn keyring_key(folder: &std::path::Path, user: &str) -> Result<Vec<u8>, String> {
    let path = folder.join(format!("ceph.client.{user}.keyring"));
    let text =
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let value = |line: &str| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == "key").then(|| value.trim().to_owned())
    };
    let key = text.lines().find_map(value);
    key.and_then(|key| STANDARD.decode(key).ok())
        .ok_or_else(|| format!("{} has no key", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_use_of_a_secret_is_in_its_xml() {
        let xml = xml::secret(Uuid::nil(), "iscsi", "kilonova/a/b");
        assert_eq!(usage_of(&xml).as_deref(), Some("kilonova/a/b"));
        assert_eq!(usage_of("<secret><uuid/></secret>"), None);
    }

    #[test]
    fn a_login_is_seen_in_a_domain() {
        let disk = |kind: &str| {
            format!(
                "<domain><disk><source><auth><secret type='{kind}'/></auth></source></disk></domain>"
            )
        };
        assert!(has_login_in(&disk("iscsi")));
        assert!(!has_login_in(&disk("ceph")) && !has_login_in("<domain/>"));
        assert!(has_login_in("<domain"), "nobody knows");
    }

    #[test]
    fn the_key_of_a_ceph_user_is_read() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().join("ceph.client.cinder.keyring");
        std::fs::write(&path, "[client.cinder]\n\tkey = c2VjcmV0\n\tcaps mon = \"x\"\n")
            .expect("the file is written");
        assert_eq!(keyring_key(folder.path(), "cinder"), Ok(b"secret".to_vec()));
        std::fs::write(&path, "[client.cinder]\nkey = !\n").expect("the file is written");
        assert!(keyring_key(folder.path(), "cinder").is_err_and(|why| !why.contains('!')));
        assert!(keyring_key(folder.path(), "nova").is_err_and(|why| why.contains("client.nova")));
    }
}

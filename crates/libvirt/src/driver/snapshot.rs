//! Snapshots of the root disk, even of a running guest.
//!
//! A backup job of QEMU copies the disk as it was at the job's start while the guest keeps writing. A job
//! that an earlier attempt left behind is aborted first. The file systems of a guest with an agent are frozen
//! while the job begins, so that the copy has what the guest's programs have written. The driver never
//! leaves them frozen: it thaws them whether the job begins or not, and before another attempt.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kilonova_hypervisor::{Error, Step};
use kilonova_ids::ServerId;
use kilonova_node_api::DiskFormat;
use roxmltree::Document;
use virt::connect::Connect;
use virt::domain::Domain;
use virt::error::{Error as VirtError, ErrorNumber};
use virt_sys as sys;

use super::{Driver, disks_error, domain_state};
use crate::connection::{QUICK, SLOW, has_code};
use crate::xml;

/// Name of the copy in the guest's directory, where QEMU may write.
const COPY: &str = "disk.snapshot";
const POLL_INTERVAL: Duration = Duration::from_millis(500);

impl Driver {
    pub(super) async fn copy_disk(
        &self,
        server: ServerId,
        file: PathBuf,
    ) -> Result<DiskFormat, Error> {
        let step = Step::Snapshot;
        let up =
            self.with(step, QUICK, server, |_, domain| Ok(domain_state(domain)?.is_up())).await?;
        let format = self.host.config.snapshot_image_format;
        if !up {
            return self.disks.snapshot(server, format, &file).await.map_err(disks_error(step));
        }
        let volumes = self.disks.volumes(server);
        let root = volumes
            .root
            .ok_or_else(|| Error::new(step, format!("server {server} has no root disk here")))?;
        let copy = volumes.folder.join(COPY);
        let format = format.unwrap_or(root.format);
        let copied = self.copy_running(server, &root.path, format, &copy).await;
        let moved = match copied {
            Ok(()) => {
                let (from, to) = (copy.clone(), file.clone());
                let moved = tokio::task::spawn_blocking(move || move_file(&from, &to)).await;
                moved
                    .unwrap_or_else(|error| Err(error.into()))
                    .map_err(|error| Error::new(step, format!("{}: {error}", file.display())))
            }
            Err(error) => Err(error),
        };
        // The copy still exists only if the move failed.
        let _ = std::fs::remove_file(&copy);
        moved.map(|()| format)
    }

    async fn copy_running(
        &self,
        server: ServerId,
        disk: &Path,
        format: DiskFormat,
        copy: &Path,
    ) -> Result<(), Error> {
        let step = Step::Snapshot;
        let (disk, to) = (disk.to_owned(), copy.to_owned());
        let begin = move |_: &Connect, domain: &Domain| {
            let description = domain.get_xml_desc(0)?;
            let has_agent = has_guest_agent(&description);
            if has_agent {
                // An earlier attempt whose process died may have left the guest frozen. A guest
                // that is not frozen ignores this.
                let _ = crate::sys::thaw(domain);
            }
            abort_backup(domain)?;
            match std::fs::remove_file(&to) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Ok(Err(format!("{}: {error}", to.display())));
                }
                _ => {}
            }
            match target(&description, &disk) {
                None => Ok(Err(format!("the running guest has no disk {}", disk.display()))),
                Some((name, others)) => {
                    let backup = xml::backup(&name, &others, format, &to);
                    let begin = || crate::sys::begin_backup(domain, &backup).map(Ok);
                    if has_agent { while_frozen(server, domain, begin) } else { begin() }
                }
            }
        };
        let begun = self.with(step, SLOW, server, begin).await?;
        begun.map_err(|why| Error::new(step, why))?;
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let look = |_: &Connect, domain: &Domain| {
                if is_backing_up(domain)? {
                    return Ok(None);
                }
                let job = crate::sys::job(domain, sys::VIR_DOMAIN_JOB_STATS_COMPLETED)?;
                Ok(Some(if job.has_failed() { Err(job.message) } else { Ok(()) }))
            };
            match self.with(step, QUICK, server, look).await? {
                None => {}
                Some(Ok(())) => return Ok(()),
                Some(Err(why)) => {
                    let why = why.unwrap_or_else(|| "the backup job failed".to_owned());
                    return Err(Error::new(step, format!("could not copy the disk: {why}")));
                }
            }
        }
    }
}

/// How often the driver tries to thaw a guest.
const THAW_ATTEMPTS: u32 = 5;

/// Runs `work` while the guest's file systems are frozen. As in Nova, `work` also runs if the freeze fails: the guest's
/// agent may not be running yet, or may not be installed.
fn while_frozen<T>(
    server: ServerId,
    domain: &Domain,
    work: impl FnOnce() -> Result<T, VirtError>,
) -> Result<T, VirtError> {
    if let Err(error) = crate::sys::freeze(domain) {
        tracing::info!(%server, %error, "the guest's file systems are not frozen for its snapshot");
        // It may have frozen some of them.
        let _ = crate::sys::thaw(domain);
        return work();
    }
    let done = work();
    for attempt in 1..=THAW_ATTEMPTS {
        match crate::sys::thaw(domain) {
            Ok(()) => break,
            Err(error) if attempt == THAW_ATTEMPTS => tracing::error!(
                %server, %error,
                "cannot thaw the guest's file systems after its snapshot began: run virsh domfsthaw, or reboot the server"
            ),
            Err(_) => std::thread::sleep(POLL_INTERVAL),
        }
    }
    done
}

/// True if a domain has the channel of QEMU's guest agent.
fn has_guest_agent(xml: &str) -> bool {
    let Ok(document) = Document::parse(xml) else { return false };
    let channels = document.descendants().filter(|node| node.has_tag_name("channel"));
    let mut targets = channels.flat_map(|node| node.children());
    targets
        .any(|node| node.has_tag_name("target") && node.attribute("name") == Some(xml::GUEST_AGENT))
}

/// Aborts a backup job that an earlier attempt started.
fn abort_backup(domain: &Domain) -> Result<(), VirtError> {
    for _ in 0..20 {
        if !is_backing_up(domain)? {
            break;
        }
        crate::sys::abort_job(domain)?;
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

fn is_backing_up(domain: &Domain) -> Result<bool, VirtError> {
    match crate::sys::job(domain, 0) {
        Ok(job) => Ok(job.is_running(sys::VIR_DOMAIN_JOB_OPERATION_BACKUP)),
        Err(error) if has_code(&error, ErrorNumber::OperationInvalid) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The target name of the disk with that file in a running domain, and the names of all other
/// disks.
fn target(xml: &str, disk: &Path) -> Option<(String, Vec<String>)> {
    let document = Document::parse(xml).ok()?;
    let (mut found, mut others) = (None, Vec::new());
    for node in document.descendants().filter(|node| node.has_tag_name("disk")) {
        let child = |name| node.children().find(move |child| child.has_tag_name(name));
        let Some(name) = child("target").and_then(|node| node.attribute("dev")) else { continue };
        let file = child("source").and_then(|node| node.attribute("file"));
        if file.is_some_and(|file| Path::new(file) == disk) {
            found = Some(name.to_owned());
        } else {
            others.push(name.to_owned());
        }
    }
    found.map(|found| (found, others))
}

/// Moves a file, across file systems if necessary. The target appears only when it is complete.
fn move_file(from: &Path, to: &Path) -> std::io::Result<()> {
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder)?;
    }
    if std::fs::rename(from, to).is_ok() {
        return Ok(());
    }
    let mut half = to.as_os_str().to_owned();
    half.push(".part");
    std::fs::copy(from, &half)?;
    std::fs::rename(&half, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_found_by_file() {
        let xml = "<domain><devices>
            <disk><source file='/i/disk.rescue'/><target dev='vda'/></disk>
            <disk><source file='/i/disk'/><backingStore><source file='/i/base'/></backingStore><target dev='vdb'/></disk>
            <disk device='cdrom'><target dev='sda'/></disk></devices></domain>";
        let others = vec!["vda".to_owned(), "sda".to_owned()];
        assert_eq!(target(xml, Path::new("/i/disk")), Some(("vdb".to_owned(), others)));
        assert_eq!(target(xml, Path::new("/i/base")), None);
    }

    #[test]
    fn a_guest_with_an_agent_has_its_channel() {
        let xml = |name: &str| {
            format!(
                "<domain><devices><channel type='unix'><source mode='bind' path='/s'/>
                 <target type='virtio' name='{name}' state='connected'/></channel></devices></domain>"
            )
        };
        assert!(has_guest_agent(&xml("org.qemu.guest_agent.0")));
        assert!(!has_guest_agent(&xml("com.redhat.spice.0")));
        assert!(!has_guest_agent("<domain/>"));
        assert!(!has_guest_agent("<domain"));
    }

    /// Libvirt's test driver has a guest whose file systems can be frozen.
    #[test]
    fn file_systems_are_frozen_only_while_the_work_lasts() {
        let connect = Connect::open(Some("test:///default")).expect("the test driver connects");
        let domain = Domain::lookup_by_name(&connect, "test").expect("the domain exists");
        let server = ServerId::nil();
        let freeze = || crate::sys::freeze(&domain).expect("the test driver freezes them");
        let more = while_frozen(server, &domain, || Ok(freeze()));
        assert_eq!(more.expect("the work succeeds"), 0, "all of them were frozen");
        assert_eq!(freeze(), 2, "they were thawed");
        crate::sys::thaw(&domain).expect("they are thawed");
        let failed = while_frozen::<()>(server, &domain, || Err(VirtError::last_error()));
        assert!(failed.is_err());
        assert_eq!(freeze(), 2, "they were thawed after a failure");
        // A guest that is shut off cannot freeze them, but the work runs nevertheless.
        domain.destroy().expect("the domain is destroyed");
        assert_eq!(while_frozen(server, &domain, || Ok(7)).expect("the work succeeds"), 7);
    }
}

//! What is on the root disk, to a file, while the guest may run.
//!
//! QEMU copies the disk as it is at the beginning; the guest goes on writing. A copy that was broken off
//! is called off before the next begins.

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

use super::{Driver, life, wrong};
use crate::connection::{QUICK, SLOW, is};
use crate::xml;

/// The copy, in the guest's folder, where QEMU may write.
const COPY: &str = "disk.snapshot";
const LOOK: Duration = Duration::from_millis(500);

impl Driver {
    pub(super) async fn copy_disk(
        &self,
        server: ServerId,
        file: PathBuf,
    ) -> Result<DiskFormat, Error> {
        let step = Step::Snapshot;
        let up = self.with(step, QUICK, server, |_, domain| Ok(life(domain)?.is_up())).await?;
        let format = self.host.config.snapshot_image_format;
        if !up {
            return self.disks.snapshot(server, format, &file).await.map_err(wrong(step));
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
                let moved = tokio::task::spawn_blocking(move || bring(&from, &to)).await;
                moved
                    .unwrap_or_else(|error| Err(error.into()))
                    .map_err(|error| Error::new(step, format!("{}: {error}", file.display())))
            }
            Err(error) => Err(error),
        };
        // It is only left where it could not be moved.
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
            call_off(domain)?;
            match std::fs::remove_file(&to) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Ok(Err(format!("{}: {error}", to.display())));
                }
                _ => {}
            }
            match target(&domain.get_xml_desc(0)?, &disk) {
                None => Ok(Err(format!("the guest runs without the disk {}", disk.display()))),
                Some((name, others)) => {
                    let backup = xml::backup(&name, &others, format, &to);
                    crate::sys::begin_backup(domain, &backup).map(Ok)
                }
            }
        };
        let begun = self.with(step, SLOW, server, begin).await?;
        begun.map_err(|why| Error::new(step, why))?;
        loop {
            tokio::time::sleep(LOOK).await;
            let look = |_: &Connect, domain: &Domain| {
                if is_copying(domain)? {
                    return Ok(None);
                }
                let job = crate::sys::job(domain, sys::VIR_DOMAIN_JOB_STATS_COMPLETED)?;
                Ok(Some(if job.has_failed() { Err(job.message) } else { Ok(()) }))
            };
            match self.with(step, QUICK, server, look).await? {
                None => {}
                Some(Ok(())) => return Ok(()),
                Some(Err(why)) => {
                    let why = why.unwrap_or_else(|| "the copy broke off".to_owned());
                    return Err(Error::new(step, format!("the disk cannot be copied: {why}")));
                }
            }
        }
    }
}

/// Calls off a copy that an earlier try began.
fn call_off(domain: &Domain) -> Result<(), VirtError> {
    for _ in 0..20 {
        if !is_copying(domain)? {
            break;
        }
        crate::sys::abort_job(domain)?;
        std::thread::sleep(LOOK);
    }
    Ok(())
}

fn is_copying(domain: &Domain) -> Result<bool, VirtError> {
    match crate::sys::job(domain, 0) {
        Ok(job) => Ok(job.is(sys::VIR_DOMAIN_JOB_OPERATION_BACKUP)),
        Err(error) if is(&error, ErrorNumber::OperationInvalid) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What a running domain calls the disk of that file, and what it calls its others.
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

/// Moves a file, to another file system if need be; it is in its place when it is whole.
fn bring(from: &Path, to: &Path) -> std::io::Result<()> {
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
    fn the_disk_is_found_by_its_file() {
        let xml = "<domain><devices>
            <disk><source file='/i/disk.rescue'/><target dev='vda'/></disk>
            <disk><source file='/i/disk'/><backingStore><source file='/i/base'/></backingStore><target dev='vdb'/></disk>
            <disk device='cdrom'><target dev='sda'/></disk></devices></domain>";
        let others = vec!["vda".to_owned(), "sda".to_owned()];
        assert_eq!(target(xml, Path::new("/i/disk")), Some(("vdb".to_owned(), others)));
        assert_eq!(target(xml, Path::new("/i/base")), None);
    }
}

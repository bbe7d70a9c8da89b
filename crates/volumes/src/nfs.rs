//! Files on NFS exports: one mount for each export, at upstream's path.
//!
//! The agent's unit has its own mount namespace, in which QEMU would not see a mount. If systemd
//! runs, mounting and unmounting are therefore left to it, in the host's namespace.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kilonova_node_api::{Nfs, Target, VolumeSource};
use md5::{Digest as _, Md5};

use crate::HostVolumes;
use crate::system::{System, arguments};

/// The mounts of the agent's mount namespace.
const MOUNTS: &str = "/proc/self/mounts";
/// Exists if systemd runs.
const SYSTEMD: &str = "/run/systemd/system";
/// A lock for all mounts: an unmount must not overtake another volume's mount.
const LOCK: &str = "nfs";

impl HostVolumes {
    /// Mounts an export, unless it is mounted, and finds the file on it.
    pub(crate) async fn mount(&self, export: &Nfs) -> Result<VolumeSource, String> {
        let system = &*self.system;
        let place = self.place(&export.export);
        self.mount_at(&place, export).await?;
        // The record of the attachment already protects the mount, so the lock is released first: a
        // server that does not answer delays no other export.
        let path = place.join(&export.name);
        let words = arguments(&["-c", "%F", &path.display().to_string()]);
        match system.run("stat", words).await.as_deref().map(str::trim) {
            Ok("regular file" | "regular empty file") => {
                Ok(VolumeSource::File { path, format: export.format.clone() })
            }
            Ok(other) => {
                Err(format!("{} of the export {} is a {other}", export.name, export.export))
            }
            Err(failure) => Err(format!(
                "cannot find the file {} of the export {}: {}",
                export.name, export.export, failure.message
            )),
        }
    }

    async fn mount_at(&self, place: &Path, export: &Nfs) -> Result<(), String> {
        let _lock = self.locks.take([LOCK.to_owned()]).await;
        let system = &*self.system;
        let there = mounts(system)?;
        match there.iter().find(|mount| mount.place == place) {
            Some(mount) if same_export(&mount.source, &export.export) => Ok(()),
            Some(mount) => Err(format!(
                "{} is mounted at {} instead of {}: unmount it",
                mount.source,
                place.display(),
                export.export
            )),
            None => {
                let file = |error| format!("{}: {error}", place.display());
                system.make_folder(place).map_err(file)?;
                let (program, mut words) = if has_systemd(system) {
                    let words = ["--quiet", "--collect", "--fsck=no", "-t", "nfs"];
                    ("systemd-mount", arguments(&words))
                } else {
                    ("mount", arguments(&["-t", "nfs"]))
                };
                let options = options(self.config.nfs_mount_options.as_deref(), export)?;
                if !options.is_empty() {
                    words.extend(arguments(&["-o", &options.join(",")]));
                }
                words.push(export.export.as_str().into());
                words.push(place.display().to_string().into());
                system.run(program, words).await.map(drop).map_err(|failure| failure.message)
            }
        }
    }

    /// Unmounts the exports that no attachment uses. A busy mount stays until the next call.
    pub(crate) async fn unmount_unused(&self) {
        let _lock = self.locks.take([LOCK.to_owned()]).await;
        let targets = self.records.list().into_iter().map(|one| one.volume.connection.target);
        let used: BTreeSet<PathBuf> = targets
            .filter_map(|target| match target {
                Target::Nfs(export) => Some(self.place(&export.export)),
                Target::Rbd(_)
                | Target::Iscsi(_)
                | Target::Nvmeof(_)
                | Target::Local { .. }
                | Target::Unknown => None,
            })
            .collect();
        let there = match mounts(&*self.system) {
            Ok(there) => there,
            Err(why) => {
                tracing::warn!(%why, "could not unmount unused exports");
                return;
            }
        };
        for mount in
            there.iter().filter(|mount| self.is_ours(mount) && !used.contains(&mount.place))
        {
            let place = mount.place.display().to_string();
            let program = if has_systemd(&*self.system) { "systemd-umount" } else { "umount" };
            let unmounted = self.system.run(program, arguments(&[&place])).await;
            if let Err(failure) = unmounted {
                tracing::warn!(export = %mount.source, why = %failure.message, "could not unmount \
                    an unused export; retrying with the next volume");
            }
        }
    }

    /// The mount point of an export.
    fn place(&self, export: &str) -> PathBuf {
        let hash = Md5::digest(export.as_bytes());
        let name: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        self.config.nfs_mount_point_base.join(name)
    }

    /// True for a mount that this module created: its mount point matches its source, which the
    /// kernel shows without the trailing slash.
    fn is_ours(&self, mount: &Mount) -> bool {
        let slash = format!("{}/", mount.source);
        let is_of = |export: &str| mount.place == self.place(export);
        mount.kind.starts_with("nfs") && (is_of(&mount.source) || is_of(&slash))
    }
}

/// The options of a mount: the operator's, then the volume's, which Cinder sends as `-o OPTIONS`.
fn options(usual: Option<&str>, export: &Nfs) -> Result<Vec<String>, String> {
    let mut all: Vec<String> = usual.into_iter().map(str::to_owned).collect();
    let mut words = export.options.as_deref().unwrap_or_default().split_whitespace();
    while let Some(word) = words.next() {
        let value = match word.strip_prefix("-o") {
            Some("") => words.next(),
            Some(value) => Some(value),
            None => None,
        };
        let is_valid = |text: &&str| !text.is_empty() && !text.starts_with('-');
        let value = value.filter(is_valid).ok_or_else(|| {
            format!("the mount options of the export {} must be -o OPTIONS", export.export)
        })?;
        all.push(value.to_owned());
    }
    Ok(all)
}

fn has_systemd(system: &dyn System) -> bool {
    system.resolve(SYSTEMD.as_ref()).is_ok()
}

struct Mount {
    source: String,
    place: PathBuf,
    kind: String,
}

fn mounts(system: &dyn System) -> Result<Vec<Mount>, String> {
    let text = system.read(MOUNTS.as_ref()).map_err(|error| format!("{MOUNTS}: {error}"))?;
    Ok(text
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let (source, place) = (plain(words.next()?), plain(words.next()?));
            Some(Mount { source, place: place.into(), kind: words.next()?.to_owned() })
        })
        .collect())
}

/// Decodes the kernel's escapes, such as `\040` for a space.
fn plain(text: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Compares two exports; the kernel shows an export without the trailing slash.
fn same_export(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

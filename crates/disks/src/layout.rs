//! The paths of all files, and how a file is put in place.
//!
//! A name that starts with `.new-` belongs to an incomplete file or directory; such files are
//! removed when the directory is opened.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use kilonova_ids::{ImageId, ServerId};
use serde::{Deserialize, Serialize};

use crate::{DisksConfig, Error, Format};

pub(crate) const ROOT: &str = "disk";
pub(crate) const EPHEMERAL: &str = "disk.eph0";
pub(crate) const SWAP: &str = "disk.swap";
pub(crate) const CONFIG: &str = "disk.config";
pub(crate) const KERNEL: &str = "kernel";
pub(crate) const RAMDISK: &str = "ramdisk";
pub(crate) const RESCUE: &str = "disk.rescue";
pub(crate) const RESCUE_KERNEL: &str = "kernel.rescue";
pub(crate) const RESCUE_RAMDISK: &str = "ramdisk.rescue";
pub(crate) const CONSOLE: &str = "console.log";
const RECORD: &str = "kilonova.json";
const BASE: &str = "_base";
const NEW: &str = ".new-";

/// The id of a machine (systemd's `/etc/machine-id`). It distinguishes machines that share a
/// directory, regardless of their names in the cloud.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct MachineId(String);

impl MachineId {
    /// The configured id, or the one of this machine. Empty if there is none.
    pub fn of(config: &DisksConfig) -> Self {
        let read = || fs::read_to_string("/etc/machine-id").unwrap_or_default().trim().to_owned();
        Self(config.machine_id.clone().unwrap_or_else(read))
    }

    fn is_known(&self) -> bool {
        !self.0.is_empty()
    }
}

/// The origin of a server's files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The machine that owns the files.
    #[serde(default, rename = "host")]
    pub machine: MachineId,
    /// The image of the root disk.
    pub image: Option<ImageId>,
    /// The rebuild that the files were created for.
    pub rebuilt: Option<String>,
    /// Virtual size of the root disk in bytes.
    #[serde(default)]
    pub root_size: u64,
    /// The cached files that the disks depend on.
    pub bases: Vec<String>,
    /// The cached file that the rescue disk depends on.
    #[serde(default)]
    pub rescue: Option<String>,
    /// Size of the swap disk, MiB.
    pub swap_mb: i64,
}

/// The directory of all guests.
pub(crate) struct Layout {
    root: PathBuf,
    machine: MachineId,
}

impl Layout {
    pub fn open(root: &Path, machine: MachineId) -> Result<Self, Error> {
        let file_error = |error| Error::Folder { path: root.to_owned(), error };
        fs::create_dir_all(root.join(BASE)).map_err(file_error)?;
        // Libvirt and QEMU require absolute paths.
        let root = root.canonicalize().map_err(file_error)?;
        let layout = Self { root, machine };
        layout.clear(&layout.root).map_err(file_error)?;
        layout.clear(&layout.base_folder()).map_err(file_error)?;
        Ok(layout)
    }

    fn clear(&self, folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if !entry.file_name().to_string_lossy().starts_with(NEW) {
                continue;
            }
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(path)?
            } else {
                fs::remove_file(path)?
            }
        }
        Ok(())
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn base_folder(&self) -> PathBuf {
        self.root.join(BASE)
    }

    pub fn base(&self, image: ImageId, format: Format) -> PathBuf {
        self.base_folder().join(format!("{image}.{}", format.as_str()))
    }

    pub fn folder(&self, server: ServerId) -> PathBuf {
        self.root.join(server.to_string())
    }

    /// The directory for files of a server that are being fetched.
    pub fn incoming_folder(&self, server: ServerId) -> PathBuf {
        self.root.join(format!("{NEW}{server}"))
    }

    /// The servers with a directory on this host.
    pub fn servers(&self) -> Result<Vec<ServerId>, Error> {
        let entries = fs::read_dir(&self.root).map_err(|error| Error::file(&self.root, error))?;
        let id = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
        Ok(entries.filter_map(id).collect())
    }

    pub fn record(&self, server: ServerId) -> Option<Record> {
        record_in(&self.folder(server))
    }

    /// Creates the directory of a server.
    pub fn make(&self, server: ServerId) -> Result<PathBuf, Error> {
        let folder = self.folder(server);
        fs::create_dir_all(&folder).map_err(|error| Error::file(&folder, error))?;
        Ok(folder)
    }

    /// This machine.
    pub fn machine(&self) -> MachineId {
        self.machine.clone()
    }

    /// Fails if another host created the server's files in this directory.
    pub fn is_ours(&self, server: ServerId) -> Result<(), Error> {
        match self.record(server) {
            Some(record) if record.machine.is_known() && record.machine != self.machine => {
                Err(Error::Shared { folder: self.folder(server) })
            }
            _ => Ok(()),
        }
    }

    /// Removes all files of a server, unless they belong to another host.
    pub fn remove(&self, server: ServerId) -> Result<(), Error> {
        if let Err(error) = self.is_ours(server) {
            tracing::warn!(%server, %error, "keeping the disks of a server");
            return Ok(());
        }
        remove_folder(&self.incoming_folder(server))?;
        remove_folder(&self.folder(server))
    }
}

pub(crate) fn record_in(folder: &Path) -> Option<Record> {
    serde_json::from_slice(&fs::read(folder.join(RECORD)).ok()?).ok()
}

/// Marks the directory as incomplete.
pub(crate) fn invalidate_record(folder: &Path) -> Result<(), Error> {
    remove_file(&folder.join(RECORD))
}

pub(crate) fn write_record(folder: &Path, record: &Record) -> Result<(), Error> {
    let path = folder.join(RECORD);
    let text = serde_json::to_vec(record).unwrap_or_default();
    let new = temporary_path(&path)?;
    fs::write(&new, text).map_err(|error| Error::file(&path, error))?;
    install_file(&new, &path)
}

/// The temporary name for the creation of `path`; removes leftovers of an earlier attempt.
pub(crate) fn temporary_path(path: &Path) -> Result<PathBuf, Error> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary_path = path.with_file_name(format!("{NEW}{name}"));
    remove_file(&temporary_path)?;
    Ok(temporary_path)
}

/// Moves a complete file into place, durably.
pub(crate) fn install_file(from: &Path, path: &Path) -> Result<(), Error> {
    let moved = || {
        File::open(from)?.sync_all()?;
        fs::rename(from, path)?;
        sync_folder(path.parent().unwrap_or(Path::new("/")))
    };
    moved().map_err(|error| Error::file(path, error))
}

pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

pub(crate) fn remove_file(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::file(path, error)),
        _ => Ok(()),
    }
}

pub(crate) fn remove_folder(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::file(path, error)),
        _ => Ok(()),
    }
}

//! Where each file is, and how one comes into its place.
//!
//! A name that begins with `.new-` is of something half made; it is cleared when the folder is opened.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use kilonova_ids::{ImageId, ServerId};
use serde::{Deserialize, Serialize};

use crate::{Config, Error, Format};

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

/// What the files of a server are of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The host whose files they are.
    #[serde(default)]
    pub host: String,
    /// The image of the root disk.
    pub image: Option<ImageId>,
    /// The rebuild that they were made for.
    pub rebuilt: Option<String>,
    /// Bytes of the root disk.
    #[serde(default)]
    pub root_size: u64,
    /// The files of images that its disks are over.
    pub bases: Vec<String>,
    /// That of the disk that it is being mended from.
    #[serde(default)]
    pub rescue: Option<String>,
    /// The swap disk, MiB.
    pub swap_mb: i64,
}

/// The folder of all guests.
pub(crate) struct Layout {
    root: PathBuf,
    host: String,
}

impl Layout {
    pub fn open(root: &Path, host: String) -> Result<Self, Error> {
        let wrong = |error| Error::Folder { path: root.to_owned(), error };
        fs::create_dir_all(root.join(BASE)).map_err(wrong)?;
        // libvirt and QEMU refuse paths that are not from the root.
        let root = root.canonicalize().map_err(wrong)?;
        let layout = Self { root, host };
        layout.clear(&layout.root).map_err(wrong)?;
        layout.clear(&layout.base_folder()).map_err(wrong)?;
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

    /// A folder for what is fetched of a server.
    pub fn arriving(&self, server: ServerId) -> PathBuf {
        self.root.join(format!("{NEW}{server}"))
    }

    /// The servers that have a folder here.
    pub fn servers(&self) -> Result<Vec<ServerId>, Error> {
        let entries = fs::read_dir(&self.root).map_err(|error| Error::file(&self.root, error))?;
        let id = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
        Ok(entries.filter_map(id).collect())
    }

    pub fn record(&self, server: ServerId) -> Option<Record> {
        record_in(&self.folder(server))
    }

    /// Makes the folder of a server.
    pub fn make(&self, server: ServerId) -> Result<PathBuf, Error> {
        let folder = self.folder(server);
        fs::create_dir_all(&folder).map_err(|error| Error::file(&folder, error))?;
        Ok(folder)
    }

    /// What the files of this host are known by.
    pub fn host(&self) -> String {
        self.host.clone()
    }

    /// Refuses a server whose files another host has made in the same folder.
    pub fn is_ours(&self, server: ServerId) -> Result<(), Error> {
        match self.record(server) {
            Some(record) if !record.host.is_empty() && record.host != self.host => {
                Err(Error::Shared { folder: self.folder(server) })
            }
            _ => Ok(()),
        }
    }

    /// Removes all files of a server; those of another host stay.
    pub fn remove(&self, server: ServerId) -> Result<(), Error> {
        if let Err(error) = self.is_ours(server) {
            tracing::warn!(%server, %error, "nothing is removed");
            return Ok(());
        }
        remove_folder(&self.arriving(server))?;
        remove_folder(&self.folder(server))
    }
}

/// What a host's files are known by.
pub(crate) fn host(config: &Config) -> String {
    let told = config.machine_id.clone();
    let read = || fs::read_to_string("/etc/machine-id").unwrap_or_default().trim().to_owned();
    told.unwrap_or_else(read)
}

pub(crate) fn record_in(folder: &Path) -> Option<Record> {
    serde_json::from_slice(&fs::read(folder.join(RECORD)).ok()?).ok()
}

/// Says that what is there is half made.
pub(crate) fn forget(folder: &Path) -> Result<(), Error> {
    remove_file(&folder.join(RECORD))
}

pub(crate) fn write_record(folder: &Path, record: &Record) -> Result<(), Error> {
    let path = folder.join(RECORD);
    let text = serde_json::to_vec(record).unwrap_or_default();
    let new = beside(&path)?;
    fs::write(&new, text).map_err(|error| Error::file(&path, error))?;
    put(&new, &path)
}

/// Where the file is made that is to be `path`; what an earlier try left there is removed.
pub(crate) fn beside(path: &Path) -> Result<PathBuf, Error> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!("{NEW}{name}"));
    remove_file(&beside)?;
    Ok(beside)
}

/// Moves a file that is whole into its place.
pub(crate) fn put(from: &Path, path: &Path) -> Result<(), Error> {
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

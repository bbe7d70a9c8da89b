//! Snapshots of disks, free space, and removal of unused base images.

use std::path::{Path, PathBuf};

use kilonova_ids::ServerId;

use crate::run::Run;
use crate::{Disks, Error, Format, Volume, layout};

/// Space on the file system of the guests' files, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Total size.
    pub total: u64,
    /// Available to guests.
    pub free: u64,
}

impl Disks {
    /// Writes a standalone copy of a stopped guest's root disk to a file, which is created or
    /// replaced atomically. Returns the file's format, which is the disk's own unless `format` is
    /// given.
    ///
    /// # Errors
    /// All of [`Error`].
    pub async fn snapshot(
        &self,
        server: ServerId,
        format: Option<Format>,
        file: &Path,
    ) -> Result<Format, Error> {
        let root = self.volumes(server).root.ok_or(Error::Absent(server))?;
        let format = format.unwrap_or(root.format);
        self.flatten(&root, format, file).await.map(|()| format)
    }

    /// Writes a disk that is not being written to, including its backing chain, to a single file,
    /// which is created or replaced atomically.
    ///
    /// # Errors
    /// All of [`Error`].
    pub async fn flatten(&self, disk: &Volume, format: Format, file: &Path) -> Result<(), Error> {
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder).map_err(|error| Error::file(folder, error))?;
        }
        let new = layout::temporary_path(file)?;
        let convert = Run::new("qemu-img").args(["convert", "-f", disk.format.as_str(), "-O"]);
        let convert = convert.arg(format.as_str()).arg("--").arg(&disk.path).arg(&new);
        if let Err(error) = convert.limit(self.config.copying).wait().await {
            layout::remove_file(&new)?;
            return Err(error);
        }
        layout::install_file(&new, file)
    }

    /// Space for guests' files.
    ///
    /// # Errors
    /// If the file system cannot be queried.
    pub fn space(&self) -> Result<Space, Error> {
        let root = self.layout.root();
        let found = rustix::fs::statvfs(root).map_err(|error| Error::file(root, error.into()))?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Space { total: bytes(found.f_blocks), free: bytes(found.f_bavail) })
    }

    /// The directory of all guests' files.
    pub fn folder(&self) -> PathBuf {
        self.layout.root().to_owned()
    }

    /// Removes base images that are unused and old enough. Returns their number.
    ///
    /// # Errors
    /// If a file cannot be read or removed.
    pub fn clean(&self) -> Result<usize, Error> {
        self.cache.clean()
    }

    /// Cleans the cache periodically until the future is dropped.
    pub async fn clean_periodically(self) {
        if !self.config.remove_unused_base_images {
            return;
        }
        loop {
            if let Err(error) = self.clean() {
                tracing::warn!(%error, "could not remove unused base images");
            }
            tokio::time::sleep(self.config.manager_interval).await;
        }
    }
}

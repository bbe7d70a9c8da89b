//! Copies of disks for the image service, room on the host, and images that nobody uses any more.

use std::path::{Path, PathBuf};

use kilonova_ids::ServerId;

use crate::run::Run;
use crate::{Disks, Error, Format, Volume, layout};

/// Room on the file system of the guests' files, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// In all.
    pub total: u64,
    /// What can still be written.
    pub free: u64,
}

impl Disks {
    /// Writes what is on the root disk of a shut off guest to a file, which is made or replaced as a
    /// whole: in the format asked for, else in the disk's own. Says which.
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

    /// Writes what is on a disk that nobody writes to, and what it is over, to one file, which is
    /// made or replaced as a whole.
    ///
    /// # Errors
    /// All of [`Error`].
    pub async fn flatten(&self, disk: &Volume, format: Format, file: &Path) -> Result<(), Error> {
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder).map_err(|error| Error::file(folder, error))?;
        }
        let new = layout::beside(file)?;
        let convert = Run::new("qemu-img").args(["convert", "-f", disk.format.as_str(), "-O"]);
        let convert = convert.arg(format.as_str()).arg("--").arg(&disk.path).arg(&new);
        if let Err(error) = convert.limit(self.config.copying).wait().await {
            layout::remove_file(&new)?;
            return Err(error);
        }
        layout::put(&new, file)
    }

    /// Room for guests' files.
    ///
    /// # Errors
    /// When the file system does not say.
    pub fn space(&self) -> Result<Space, Error> {
        let root = self.layout.root();
        let found = rustix::fs::statvfs(root).map_err(|error| Error::file(root, error.into()))?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Space { total: bytes(found.f_blocks), free: bytes(found.f_bavail) })
    }

    /// The folder of all guests' files.
    pub fn folder(&self) -> PathBuf {
        self.layout.root().to_owned()
    }

    /// Removes images that no guest uses and that nobody has asked for lately; says how many.
    ///
    /// # Errors
    /// When files cannot be looked at or removed.
    pub fn clean(&self) -> Result<usize, Error> {
        self.cache.clean()
    }

    /// Cleans now and then, for as long as it is let.
    pub async fn look_after(self) {
        if !self.config.remove_unused_base_images {
            return;
        }
        loop {
            if let Err(error) = self.clean() {
                tracing::warn!(%error, "images that nobody uses are not removed");
            }
            tokio::time::sleep(self.config.manager_interval).await;
        }
    }
}

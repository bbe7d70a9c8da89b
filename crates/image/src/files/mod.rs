//! Image data: one file per upload, named `<image>.<upload>`.
//!
//! ```text
//!   create ─► lock ─► write ─► fsync ─► the row names it, status active
//! ```
//!
//! An uploader holds a lock on its file until the row is final, so that another process that starts
//! meanwhile can distinguish an upload in progress from a leftover.

pub(crate) mod format;
mod gate;
mod pace;
mod stream;
mod writer;

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use kilonova_ids::ImageId;

use crate::Error;

pub use gate::TransferLimit;
pub(crate) use gate::{Gate, Pass};
pub use pace::Rate;
pub(crate) use pace::{Pace, TooSlow};
pub use stream::ImageData;
pub(crate) use stream::data_of;
pub(crate) use writer::Writer;

/// The image directory.
#[derive(Debug)]
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let wrong = |e: io::Error| {
            Error::Directory(format!("cannot use the image directory {}: {e}", path.display()))
        };
        fs::DirBuilder::new().recursive(true).mode(0o750).create(path).map_err(wrong)?;
        Ok(Self(path.canonicalize().map_err(wrong)?))
    }

    /// A new file name for an image's data.
    pub(crate) fn name(id: ImageId) -> String {
        format!("{id}.{}", uuid::Uuid::new_v4().simple())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Creates a locked file. Fails if a clean-up deleted it before it was locked.
    pub(crate) fn create(&self, name: &str) -> Result<File, Error> {
        let file = File::options().read(true).write(true).create_new(true).open(self.path(name))?;
        file.lock()?;
        if file.metadata()?.nlink() == 0 {
            return Err(io::Error::from(io::ErrorKind::NotFound).into());
        }
        Ok(file)
    }

    /// Makes file names durable.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        Ok(File::open(&self.0)?.sync_all()?)
    }

    pub(crate) fn remove(&self, name: &str) {
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(name, %error, "cannot delete an image file; the next start tries again");
            }
            _ => {}
        }
    }

    /// The lock on a file without an uploader; `None` if it has one or does not exist.
    pub(crate) fn seize(&self, name: &str) -> Result<Option<File>, Error> {
        let file = match File::open(self.path(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }

    /// True if no uploader writes the file.
    pub(crate) fn abandoned(&self, name: &str) -> Result<bool, Error> {
        Ok(self.seize(name)?.is_some() || !self.path(name).try_exists()?)
    }

    /// The names of all image files.
    pub(crate) fn names(&self) -> Result<Vec<String>, Error> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            if let Ok(name) = entry?.file_name().into_string()
                && is_ours(&name)
            {
                names.push(name);
            }
        }
        Ok(names)
    }
}

fn is_ours(name: &str) -> bool {
    name.split_once('.').is_some_and(|(image, upload)| {
        image.parse::<ImageId>().is_ok()
            && upload.len() == 32
            && upload.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

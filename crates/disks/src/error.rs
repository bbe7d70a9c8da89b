//! Errors of the disks, worded for the host's operator.

use std::path::{Path, PathBuf};

use kilonova_ids::{HostName, ImageId, ServerId};

/// An error of a host's disks.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory could not be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
    /// The file system is full.
    #[error("no space left for {}: free up space on its file system", path.display())]
    Full {
        /// The file that did not fit.
        path: PathBuf,
    },
    /// The instances directory cannot be used.
    #[error("cannot use instances_path {}: {error}", path.display())]
    Folder {
        /// The path.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
    /// The image service does not provide an image.
    #[error("image {image}: {why}")]
    Image {
        /// The image.
        image: ImageId,
        /// The reason.
        why: String,
    },
    /// An image is larger than the flavor's disk.
    #[error(
        "Flavor's disk is too small for requested image. Flavor disk is {flavor} bytes, image \
         {image} is {size} bytes."
    )]
    TooSmall {
        /// The image.
        image: ImageId,
        /// Size of the flavor's disk in bytes.
        flavor: u64,
        /// Virtual size of the image in bytes.
        size: u64,
    },
    /// A program is missing.
    #[error("{0} is not installed on this host; `kilonova-agent check` names its package")]
    NotInstalled(String),
    /// A program failed.
    #[error("{program}: {why}")]
    Program {
        /// Its name.
        program: String,
        /// Its exit status and output.
        why: String,
    },
    /// The disks could not be fetched from another host.
    #[error("cannot fetch the disks of {server} from {host}: {why}")]
    Peer {
        /// The server.
        server: ServerId,
        /// The other host.
        host: HostName,
        /// The reason.
        why: String,
    },
    /// A server's files belong to another host.
    #[error(
        "{} belongs to another host: shared directories are not supported; give each host its \
         own instances_path",
        folder.display()
    )]
    Shared {
        /// The server's directory.
        folder: PathBuf,
    },
    /// The server has no disk on this host.
    #[error("server {0} has no disk on this host")]
    Absent(ServerId),
    /// The config drive could not be built.
    #[error("the config drive: {0}")]
    ConfigDrive(String),
}

impl Error {
    /// An error of a file.
    pub(crate) fn file(path: &Path, error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Self::Full { path: path.to_owned() }
            }
            _ => Self::File { path: path.to_owned(), error },
        }
    }

    /// An error of an image.
    pub(crate) fn image(image: ImageId, why: impl Into<String>) -> Self {
        Self::Image { image, why: why.into() }
    }
}

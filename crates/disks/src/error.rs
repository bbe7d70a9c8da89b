//! What can go wrong, in words for whoever runs the host.

use std::path::{Path, PathBuf};

use kilonova_ids::{ImageId, ServerId};

/// Why disks are not as they should be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The disk is full.
    #[error("there is no room left for {}: the file system is full; make room there", path.display())]
    Full {
        /// What there was no room for.
        path: PathBuf,
    },
    /// The folder of all guests cannot be used.
    #[error("instances_path {} cannot be used: {error}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The image service does not give an image.
    #[error("image {image}: {why}")]
    Image {
        /// Which.
        image: ImageId,
        /// Why.
        why: String,
    },
    /// An image does not fit into the flavor's disk.
    #[error(
        "Flavor's disk is too small for requested image. Flavor disk is {flavor} bytes, image \
         {image} is {size} bytes."
    )]
    TooSmall {
        /// Which image.
        image: ImageId,
        /// Bytes of the flavor's disk.
        flavor: u64,
        /// Bytes that the image needs.
        size: u64,
    },
    /// A program failed.
    #[error("{program}: {why}")]
    Program {
        /// Its name.
        program: String,
        /// How it ended and what it said.
        why: String,
    },
    /// Another host does not give the disks.
    #[error("the disks of {server} cannot be fetched from {host}: {why}")]
    Peer {
        /// Whose.
        server: ServerId,
        /// From where.
        host: String,
        /// Why.
        why: String,
    },
    /// The files of a server are another host's.
    #[error(
        "{} is of another host: a folder that hosts share is not supported; give each host an \
         instances_path of its own",
        folder.display()
    )]
    Shared {
        /// Which.
        folder: PathBuf,
    },
    /// A server has no disk here.
    #[error("server {0} has no disk on this host")]
    Absent(ServerId),
    /// What a guest is to be told cannot be told.
    #[error("the config drive: {0}")]
    Told(String),
}

impl Error {
    /// About a file.
    pub(crate) fn file(path: &Path, error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Self::Full { path: path.to_owned() }
            }
            _ => Self::File { path: path.to_owned(), error },
        }
    }

    /// About an image.
    pub(crate) fn image(image: ImageId, why: impl Into<String>) -> Self {
        Self::Image { image, why: why.into() }
    }
}

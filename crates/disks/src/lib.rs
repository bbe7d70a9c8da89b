//! The disks of a host's guests, as files.
//!
//! ```text
//!   <instances_path>/
//!     _base/<image>.raw      an image, whole and checked; what guests write never goes there
//!     <server>/
//!       disk                 qcow2 over the image; made or replaced as a whole
//!       disk.eph0 disk.swap  qcow2
//!       disk.config          the config drive
//!       kernel ramdisk       of a guest that starts without a boot loader
//!       disk.rescue …        while it is being mended
//!       console.log          what it says
//!       kilonova.json        which image and which rebuild these are of; written last
//! ```
//!
//! Owns these files and nothing else: it knows no libvirt, and must never touch the disks of a guest
//! that runs. A file comes into its place by a rename, when it is whole and on the disk, so every step
//! may be broken off and done again. Images are not trusted: programs that read them run under limits,
//! and one that points at other files of the host is refused.

mod blank;
mod cache;
mod config;
mod copies;
mod drive;
mod error;
mod info;
mod layout;
mod make;
mod peer;
mod run;
mod source;
mod volumes;

use std::sync::Arc;

pub use config::Config;
pub use copies::Space;
pub use error::Error;
pub use kilonova_node_api::DiskFormat as Format;
pub use source::{Images, Reading};
pub use volumes::{Mending, Volume, Volumes};

use cache::Cache;
use layout::Layout;

/// The disks of a host; cheap to clone.
#[derive(Clone)]
pub struct Disks {
    config: Arc<Config>,
    layout: Arc<Layout>,
    cache: Arc<Cache>,
}

impl std::fmt::Debug for Disks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disks").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Disks {
    /// Opens the folder, which is made if need be, and clears away what a crash left half made.
    ///
    /// # Errors
    /// [`Error::Folder`] when it cannot be written.
    pub fn open(config: Config, images: Arc<dyn Images>) -> Result<Self, Error> {
        let config = Arc::new(config);
        let layout = Arc::new(Layout::open(&config.instances_path, layout::host(&config))?);
        let cache = Arc::new(Cache::new(Arc::clone(&config), Arc::clone(&layout), images));
        Ok(Self { config, layout, cache })
    }

    /// What the host's operator has chosen.
    pub fn config(&self) -> &Config {
        &self.config
    }
}

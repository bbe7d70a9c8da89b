//! The disks of a host's guests, as files.
//!
//! ```text
//!   <instances_path>/
//!     _base/<image>.raw      a verified base image; guests never write to it
//!     <server>/
//!       disk                 qcow2 overlay of the base image; replaced atomically
//!       disk.eph0 disk.swap  qcow2
//!       disk.config          the config drive
//!       kernel ramdisk       for direct kernel boot
//!       disk.rescue …        during a rescue
//!       console.log          serial console output
//!       kilonova.json        the image and the rebuild of these files; written last
//! ```
//!
//! Owns these files and nothing else: it knows nothing of libvirt, and must never touch the disks
//! of a running guest. A file is renamed into place once it is complete and durable, so every step
//! can be interrupted and repeated. Images are not trusted: programs that read them run under
//! resource limits, and an image that refers to other files is refused.

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

pub use config::DisksConfig;
pub use copies::Space;
pub use error::Error;
pub use kilonova_guest_metadata::Vendordata;
pub use kilonova_node_api::DiskFormat as Format;
pub use source::{Answers, Images, Reading};
pub use volumes::{RescueVolumes, Volume, Volumes};

use cache::Cache;
use layout::{Layout, MachineId};

/// The disks of a host; cheap to clone.
#[derive(Clone)]
pub struct Disks {
    config: Arc<DisksConfig>,
    layout: Arc<Layout>,
    cache: Arc<Cache>,
}

impl std::fmt::Debug for Disks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disks").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Disks {
    /// Opens the directory, creating it if necessary, and removes what a crash left incomplete.
    ///
    /// # Errors
    /// [`Error::Folder`] if the directory is not writable.
    pub fn open(config: DisksConfig, images: Arc<dyn Images>) -> Result<Self, Error> {
        let config = Arc::new(config);
        let layout = Arc::new(Layout::open(&config.instances_path, MachineId::of(&config))?);
        let cache = Arc::new(Cache::new(Arc::clone(&config), Arc::clone(&layout), images));
        Ok(Self { config, layout, cache })
    }

    /// The operator's options.
    pub fn config(&self) -> &DisksConfig {
        &self.config
    }
}

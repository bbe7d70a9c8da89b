//! The operator's options.

use std::time::Duration;

use crate::{Rate, StoreOptions, TransferLimit};

/// Configuration of the image service. Options that exist in Glance keep its names and defaults.
#[derive(Debug, Clone)]
pub struct ImageOptions {
    /// Maximum size of an image in bytes (`image_size_cap`).
    pub size_cap: u64,
    /// Maximum total size of a project's images in bytes (`user_storage_quota`).
    pub storage: Option<u64>,
    /// Maximum number of images of a project.
    pub images: Option<usize>,
    /// Maximum number of members of an image (`image_member_quota`).
    pub members: Option<usize>,
    /// Maximum number of properties of an image (`image_property_quota`).
    pub properties: Option<usize>,
    /// Maximum number of tags of an image (`image_tag_quota`).
    pub tags: Option<usize>,
    /// Images per page unless the caller sets a limit (`limit_param_default`).
    pub default_page: usize,
    /// Maximum number of images per page (`api_limit_max`).
    pub max_page: usize,
    /// Concurrent uploads of users, in total and per project.
    pub uploads: TransferLimit,
    /// Concurrent snapshot uploads of hosts, in total and per host.
    pub snapshots: TransferLimit,
    /// Concurrent downloads of users, in total and per project.
    pub downloads: TransferLimit,
    /// The minimum transfer rate of a client.
    pub rate: Rate,
    /// The age at which data that no image names is deleted.
    pub leftover_age: Duration,
    /// The stores for image data.
    pub stores: StoreOptions,
}

impl Default for ImageOptions {
    fn default() -> Self {
        Self {
            size_cap: 1 << 40,
            storage: None,
            images: Some(1000),
            members: Some(128),
            properties: Some(128),
            tags: Some(128),
            default_page: 25,
            max_page: 1000,
            uploads: TransferLimit { total: 64, each: 16 },
            snapshots: TransferLimit { total: 64, each: 16 },
            downloads: TransferLimit { total: 256, each: 64 },
            rate: Rate { minimum: 4096, window: Duration::from_secs(60) },
            leftover_age: Duration::from_secs(3600),
            stores: StoreOptions::default(),
        }
    }
}

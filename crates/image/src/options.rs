//! What an operator may choose.

use std::time::Duration;

use crate::{Most, Rate};

/// What an operator may choose. Where Glance has an option, it has Glance's name and default.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bytes that an image may have (`image_size_cap`).
    pub size_cap: u64,
    /// Bytes that the images of a project may have together (`user_storage_quota`).
    pub storage: Option<u64>,
    /// Images that a project may have.
    pub images: Option<usize>,
    /// Projects that an image may be shared with (`image_member_quota`).
    pub members: Option<usize>,
    /// Properties that an image may have (`image_property_quota`).
    pub properties: Option<usize>,
    /// Tags that an image may have (`image_tag_quota`).
    pub tags: Option<usize>,
    /// Images in an answer when the caller does not say (`limit_param_default`).
    pub usual_page: usize,
    /// Images in an answer, whatever the caller says (`api_limit_max`).
    pub longest_page: usize,
    /// Uploads of users at once, in total and for each project.
    pub uploads: Most,
    /// Snapshots that hosts send at once, in total and for each host.
    pub snapshots: Most,
    /// Downloads of users at once, in total and for each project.
    pub downloads: Most,
    /// How fast a client has to send or take bytes.
    pub rate: Rate,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            size_cap: 1 << 40,
            storage: None,
            images: Some(1000),
            members: Some(128),
            properties: Some(128),
            tags: Some(128),
            usual_page: 25,
            longest_page: 1000,
            uploads: Most { total: 64, each: 16 },
            snapshots: Most { total: 64, each: 16 },
            downloads: Most { total: 256, each: 64 },
            rate: Rate { least: 4096, window: Duration::from_secs(60) },
        }
    }
}

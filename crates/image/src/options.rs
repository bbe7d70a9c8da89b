//! What an operator may choose.

use std::time::Duration;

use crate::{Most, Rate};

/// What an operator may choose.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bytes that an image may have (`[DEFAULT] image_size_cap`).
    pub size_cap: u64,
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
            uploads: Most { total: 64, each: 16 },
            snapshots: Most { total: 64, each: 16 },
            downloads: Most { total: 256, each: 64 },
            rate: Rate { least: 4096, window: Duration::from_secs(60) },
        }
    }
}

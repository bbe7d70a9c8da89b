//! What glance-api.conf says of images in `[DEFAULT]`, and in `[image]` how many transfers may go on at
//! once and how slow they may be, which Glance leaves to the web server in front of it.

use std::time::Duration;

use kilonova_image::{Most, Options, Rate};

use super::{File, compute::number};
use crate::failure::Failure;

const GROUP: &str = "image";

/// The options here.
pub(super) const KNOWN: [(&str, &str); 9] = [
    ("DEFAULT", "image_size_cap"),
    (GROUP, "max_concurrent_uploads"),
    (GROUP, "max_concurrent_uploads_per_project"),
    (GROUP, "max_concurrent_downloads"),
    (GROUP, "max_concurrent_downloads_per_project"),
    (GROUP, "max_concurrent_snapshots"),
    (GROUP, "max_concurrent_snapshots_per_host"),
    (GROUP, "min_transfer_rate"),
    (GROUP, "transfer_rate_window"),
];

pub(super) fn read(file: &File) -> Result<Options, Failure> {
    let usual = Options::default();
    let most = |total, each, usual: Most| {
        Ok::<_, Failure>(Most {
            total: number(file, GROUP, total, 1, usual.total)?,
            each: number(file, GROUP, each, 1, usual.each)?,
        })
    };
    Ok(Options {
        size_cap: number(file, "DEFAULT", "image_size_cap", 1, usual.size_cap)?,
        uploads: most(
            "max_concurrent_uploads",
            "max_concurrent_uploads_per_project",
            usual.uploads,
        )?,
        downloads: most(
            "max_concurrent_downloads",
            "max_concurrent_downloads_per_project",
            usual.downloads,
        )?,
        snapshots: most(
            "max_concurrent_snapshots",
            "max_concurrent_snapshots_per_host",
            usual.snapshots,
        )?,
        rate: Rate {
            least: number(file, GROUP, "min_transfer_rate", 0, usual.rate.least)?,
            window: Duration::from_secs(number(
                file,
                GROUP,
                "transfer_rate_window",
                1,
                usual.rate.window.as_secs(),
            )?),
        },
    })
}

//! The operator's options, named as in `nova.conf`.

use std::path::PathBuf;
use std::time::Duration;

use kilonova_guest_metadata::Vendordata;

/// Options of a host's disks.
#[derive(Debug, Clone)]
pub struct DisksConfig {
    /// The directory of the guests' files (`[DEFAULT] instances_path`).
    pub instances_path: PathBuf,
    /// Identifies the host in its guests' records. Default: `/etc/machine-id`.
    pub machine_id: Option<String>,
    /// True if cached images are converted to raw (`[DEFAULT] force_raw_images`).
    pub force_raw_images: bool,
    /// True if every guest gets a config drive (`[DEFAULT] force_config_drive`). Upstream's default
    /// is no; here a guest has no other source of its keys.
    pub force_config_drive: bool,
    /// The program that creates ISO 9660 images (`[DEFAULT] mkisofs_cmd`).
    pub mkisofs_cmd: PathBuf,
    /// File system of ephemeral disks, except for guests whose OS suggests another (`[DEFAULT]
    /// default_ephemeral_format`).
    pub default_ephemeral_format: String,
    /// The domain appended to host names without one (`[api] dhcp_domain`).
    pub dhcp_domain: String,
    /// The operator's data for every guest (`[api] vendordata_jsonfile_path`).
    pub vendordata: Vendordata,
    /// True if unused base images are removed (`[image_cache] remove_unused_base_images`).
    pub remove_unused_base_images: bool,
    /// How long an unused base image is kept (`[image_cache]
    /// remove_unused_original_minimum_age_seconds`).
    pub remove_unused_original_minimum_age: Duration,
    /// Interval between checks of the cache (`[image_cache] manager_interval`).
    pub manager_interval: Duration,
    /// The remote shell of `rsync`, with its arguments.
    pub remote_shell: Vec<String>,
    /// The directory of guests' files on other hosts, as seen by `rsync` there. Default:
    /// `instances_path`.
    pub remote_instances_path: Option<PathBuf>,
    /// Time limit of programs that copy a disk.
    pub copying: Duration,
}

impl Default for DisksConfig {
    fn default() -> Self {
        Self {
            instances_path: PathBuf::from("/var/lib/nova/instances"),
            machine_id: None,
            force_raw_images: true,
            force_config_drive: true,
            mkisofs_cmd: PathBuf::from("genisoimage"),
            default_ephemeral_format: "ext4".to_owned(),
            dhcp_domain: "novalocal".to_owned(),
            vendordata: Vendordata::default(),
            remove_unused_base_images: true,
            remove_unused_original_minimum_age: Duration::from_secs(24 * 3600),
            manager_interval: Duration::from_secs(2400),
            remote_shell: vec![
                "ssh".to_owned(),
                "-oBatchMode=yes".to_owned(),
                "-oConnectTimeout=20".to_owned(),
            ],
            remote_instances_path: None,
            copying: Duration::from_secs(6 * 3600),
        }
    }
}

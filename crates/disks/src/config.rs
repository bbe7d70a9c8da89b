//! What an operator may choose. The names are nova.conf's.

use std::path::PathBuf;
use std::time::Duration;

/// Options of the disks of a host.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the guests' files are (`[DEFAULT] instances_path`).
    pub instances_path: PathBuf,
    /// What this host's files are known by; `/etc/machine-id`, unless it is told.
    pub machine_id: Option<String>,
    /// Whether images are kept raw, whatever they come as (`[DEFAULT] force_raw_images`).
    pub force_raw_images: bool,
    /// Whether every guest has a config drive (`[DEFAULT] force_config_drive`). Upstream says no;
    /// here nothing else would tell a guest its keys.
    pub force_config_drive: bool,
    /// The program that makes ISO 9660 file systems (`[DEFAULT] mkisofs_cmd`).
    pub mkisofs_cmd: PathBuf,
    /// File system of ephemeral disks, where the guest's system does not suggest another
    /// (`[DEFAULT] default_ephemeral_format`).
    pub default_ephemeral_format: String,
    /// The domain of host names without one (`[api] dhcp_domain`).
    pub dhcp_domain: String,
    /// Whether images that no guest uses are removed (`[image_cache] remove_unused_base_images`).
    pub remove_unused_base_images: bool,
    /// How long such an image stays
    /// (`[image_cache] remove_unused_original_minimum_age_seconds`).
    pub remove_unused_original_minimum_age: Duration,
    /// How often images are looked through (`[image_cache] manager_interval`).
    pub manager_interval: Duration,
    /// What speaks to other hosts in the place of `ssh`, with its arguments.
    pub remote_shell: Vec<String>,
    /// Where other hosts have their guests' files, as `rsync` there sees it; the same place as here,
    /// unless it is told.
    pub remote_instances_path: Option<PathBuf>,
    /// How long a program may take that copies a disk.
    pub copying: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            instances_path: PathBuf::from("/var/lib/nova/instances"),
            machine_id: None,
            force_raw_images: true,
            force_config_drive: true,
            mkisofs_cmd: PathBuf::from("genisoimage"),
            default_ephemeral_format: "ext4".to_owned(),
            dhcp_domain: "novalocal".to_owned(),
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

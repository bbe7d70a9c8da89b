//! The options of nova.conf for volumes.

use std::path::Path;

use kilonova_program::Failure;
use kilonova_program::config::{File, Options};
use kilonova_volumes::{IscsiInitiator, VolumesConfig};

const GROUP: &str = "libvirt";
const NUMBER: &str = "an integer of at least 0";

/// Group and option.
pub(super) const KNOWN: &Options = &[
    ("DEFAULT", "my_block_storage_ip"),
    (GROUP, "nfs_mount_options"),
    (GROUP, "nfs_mount_point_base"),
    (GROUP, "num_nvme_discover_tries"),
    (GROUP, "num_volume_scan_tries"),
    (GROUP, "rbd_secret_uuid"),
    (GROUP, "rbd_user"),
    (GROUP, "volume_enforce_multipath"),
    (GROUP, "volume_use_multipath"),
    ("node", "iscsi_initiator"),
];

/// Reads the options. Mounts are below the state directory unless the file says otherwise.
pub(super) fn read(file: &File, state_dir: &Path) -> Result<VolumesConfig, Failure> {
    let usual = VolumesConfig::default();
    let yes = |option| {
        Ok::<bool, Failure>(file.parse(GROUP, option, "true or false")?.unwrap_or_default())
    };
    let few =
        |option, usual| Ok::<u32, Failure>(file.parse(GROUP, option, NUMBER)?.unwrap_or(usual));
    let iscsi = match file.get("node", "iscsi_initiator") {
        None | Some("kernel") => IscsiInitiator::Kernel,
        Some("qemu") => IscsiInitiator::Qemu,
        Some(other) => {
            let why = format!("{other} is not a valid value; expected kernel or qemu");
            return Err(file.wrong("node", "iscsi_initiator", &why));
        }
    };
    let config = VolumesConfig {
        iscsi,
        use_multipath: yes("volume_use_multipath")?,
        enforce_multipath: yes("volume_enforce_multipath")?,
        scan_tries: few("num_volume_scan_tries", usual.scan_tries)?,
        nvme_tries: few("num_nvme_discover_tries", usual.nvme_tries)?,
        nfs_mount_point_base: file
            .path(GROUP, "nfs_mount_point_base")
            .unwrap_or_else(|| state_dir.join("mnt")),
        nfs_mount_options: file.get(GROUP, "nfs_mount_options").map(str::to_owned),
        rbd_user: file.get(GROUP, "rbd_user").map(str::to_owned),
        rbd_secret: file.parse(GROUP, "rbd_secret_uuid", "a UUID")?,
        ..usual
    };
    if config.enforce_multipath && !config.use_multipath {
        let why = "it needs volume_use_multipath = true";
        return Err(file.wrong(GROUP, "volume_enforce_multipath", why));
    }
    if config.use_multipath && config.iscsi == IscsiInitiator::Qemu {
        let why = "QEMU's initiator supports only one path: remove [libvirt] volume_use_multipath";
        return Err(file.wrong("node", "iscsi_initiator", why));
    }
    Ok(config)
}

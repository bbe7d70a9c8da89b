//! The options of nova.conf for the guests' files.

use std::path::PathBuf;
use std::time::Duration;

use kilonova_disks::{DisksConfig, Vendordata};
use kilonova_program::Failure;
use kilonova_program::config::{File, Options, vendordata};

const CACHE: &str = "image_cache";

/// Group and option.
pub(super) const KNOWN: &Options = &[
    ("DEFAULT", "default_ephemeral_format"),
    ("DEFAULT", "force_config_drive"),
    ("DEFAULT", "force_raw_images"),
    ("DEFAULT", "instances_path"),
    ("DEFAULT", "mkisofs_cmd"),
    ("api", "dhcp_domain"),
    (CACHE, "manager_interval"),
    (CACHE, "remove_unused_base_images"),
    (CACHE, "remove_unused_original_minimum_age_seconds"),
    ("node", "remote_instances_path"),
    ("node", "remote_shell"),
];

pub(super) fn read(file: &File, usual_path: PathBuf) -> Result<DisksConfig, Failure> {
    let usual = DisksConfig::default();
    let yes = |group, option, usual| {
        Ok::<bool, Failure>(file.parse(group, option, "true or false")?.unwrap_or(usual))
    };
    let seconds = |option, usual: Duration| {
        let read: Option<u64> = file.parse(CACHE, option, "seconds")?;
        Ok::<_, Failure>(read.map_or(usual, Duration::from_secs))
    };
    let shell = file.get("node", "remote_shell");
    Ok(DisksConfig {
        instances_path: file.path("DEFAULT", "instances_path").unwrap_or(usual_path),
        machine_id: usual.machine_id,
        force_raw_images: yes("DEFAULT", "force_raw_images", usual.force_raw_images)?,
        force_config_drive: yes("DEFAULT", "force_config_drive", usual.force_config_drive)?,
        mkisofs_cmd: file.path("DEFAULT", "mkisofs_cmd").unwrap_or(usual.mkisofs_cmd),
        default_ephemeral_format: file
            .get("DEFAULT", "default_ephemeral_format")
            .map_or(usual.default_ephemeral_format, str::to_owned),
        vendordata: Vendordata { fixed: vendordata::read(file)?, ..usual.vendordata },
        dhcp_domain: file.get("api", "dhcp_domain").map_or(usual.dhcp_domain, str::to_owned),
        remove_unused_base_images: yes(
            CACHE,
            "remove_unused_base_images",
            usual.remove_unused_base_images,
        )?,
        remove_unused_original_minimum_age: seconds(
            "remove_unused_original_minimum_age_seconds",
            usual.remove_unused_original_minimum_age,
        )?,
        manager_interval: seconds("manager_interval", usual.manager_interval)?,
        remote_shell: shell.map_or(usual.remote_shell, |text| {
            text.split_whitespace().map(str::to_owned).collect()
        }),
        remote_instances_path: file.path("node", "remote_instances_path"),
        copying: usual.copying,
    })
}

//! `kilonova discover`: lists the devices of this machine without a controller. Read-only.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use kilonova_node::devices::{
    Directory, Discovery, Driver, MdevConfig, Models, NvidiaSmi, mig_driver, survey,
};

use super::Format;
use crate::config;
use crate::failure::Failure;

/// Arguments of `discover`.
#[derive(Debug, Args)]
pub struct DiscoverArgs {
    /// Mount point of sysfs.
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    sysfs: PathBuf,
    /// Configuration file with [devices], [mdev_*], [pci] or [agent]. Default: none; devices of all known
    /// drivers count as offered.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

pub(super) fn run(options: DiscoverArgs) -> Result<ExitCode, Failure> {
    if !options.sysfs.is_dir() {
        let folder = options.sysfs.display();
        return Err(Failure::Refused(format!("{folder} is not a directory; set --sysfs")));
    }
    // Every sysfs has both.
    if !["bus", "class"].iter().any(|name| options.sysfs.join(name).is_dir()) {
        let folder = options.sysfs.display();
        return Err(Failure::Refused(format!(
            "{folder} is not a sysfs: it has neither bus nor class; set --sysfs to the mount point of \
                         sysfs (usually /sys)"
        )));
    }
    let sysfs = Directory(options.sysfs);
    let written = options.config.as_deref().map(config::devices_of).transpose()?.flatten();
    let failed = |error| Failure::failed("cannot list the devices", error);
    let (discovery, cards) = match written {
        Some((options, sources)) => {
            let mdev =
                MdevConfig::new(&options, &sysfs).map_err(|e| Failure::Refused(e.to_string()))?;
            let cards = mig_driver(&options).cards().map_err(failed)?;
            let links = sources.links.clone().resolved(&NvidiaSmi::default()).map_err(failed)?;
            (Discovery { mdev, links, ..sources }, cards)
        }
        None => (Discovery { drivers: real_drivers(), ..Discovery::default() }, Vec::new()),
    };
    // If they cannot be read, the table has no models.
    let models = Models::read(&sysfs).unwrap_or_default();
    let discovery = Discovery { models, ..discovery };
    let found = survey(&sysfs, &discovery, &cards).map_err(failed)?;
    match options.format {
        Format::Table => super::say(&found.table())?,
        Format::Json => {
            let text = serde_json::to_string_pretty(&found)
                .map_err(|error| Failure::failed("cannot print the devices", error))?;
            super::say(&format!("{text}\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn real_drivers() -> Vec<Driver> {
    let all = Driver::ALL.iter().map(|(_, driver)| *driver);
    all.filter(|driver| *driver != Driver::Fake).collect()
}

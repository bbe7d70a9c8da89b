//! A cloud as its operator reaches it: over HTTP, with the credentials that the `openstack` client uses.
//!
//! `clouds` reads `clouds.yaml`, `environment` the `OS_*` variables, `compute` calls the compute API.
//! Nothing here may open a database or read a state directory.

pub mod clouds;
mod compute;
mod environment;

use std::path::{Path, PathBuf};

use clap::Args;

pub use compute::{Compute, ComputeError};

/// Arguments that select a cloud and its credentials.
#[derive(Debug, Args)]
pub struct CloudArgs {
    /// Cloud in clouds.yaml. Default: OS_CLOUD, or the OS_* variables of an openrc.
    #[arg(long, value_name = "NAME")]
    os_cloud: Option<String>,
    /// Path of clouds.yaml. Default: as for the openstack client.
    #[arg(long, value_name = "FILE")]
    clouds: Option<PathBuf>,
    /// Certificate authority of the cloud. Default: OS_CACERT, or the system's.
    #[arg(long, value_name = "FILE")]
    os_cacert: Option<PathBuf>,
    /// URL of the compute API, up to `/v2.1`. Default: the catalog's.
    #[arg(long, value_name = "URL")]
    compute_url: Option<String>,
}

/// The default path of `clouds.yaml`.
pub fn default_clouds() -> PathBuf {
    if let Some(named) = std::env::var_os("OS_CLIENT_CONFIG_FILE") {
        return named.into();
    }
    let here = Path::new("clouds.yaml");
    if here.exists() {
        return here.to_owned();
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    home.join(".config/openstack/clouds.yaml")
}

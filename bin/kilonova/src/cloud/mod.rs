//! A cloud as its operator reaches it: over HTTP, with the credentials that the `openstack` client takes
//! too.
//!
//! `clouds` reads `clouds.yaml`, `environment` the `OS_*` variables, `compute` asks the compute API.
//! Nothing here may open a database or look into a state directory.

pub mod clouds;
mod compute;
mod environment;

use std::path::{Path, PathBuf};

use clap::Args;

pub use compute::{Asked, Compute};

/// How a command gets in.
#[derive(Debug, Args)]
pub struct Door {
    /// A cloud of clouds.yaml; OS_CLOUD, or the OS_* variables of an openrc, when left out.
    #[arg(long, value_name = "NAME")]
    os_cloud: Option<String>,
    /// Where clouds.yaml is.
    #[arg(long, value_name = "FILE")]
    clouds: Option<PathBuf>,
    /// Certificate authority of the cloud; OS_CACERT when left out.
    #[arg(long, value_name = "FILE")]
    os_cacert: Option<PathBuf>,
    /// The compute API, up to `/v2.1`; what the catalog says when left out.
    #[arg(long, value_name = "URL")]
    compute_url: Option<String>,
}

/// Where `clouds.yaml` is unless told otherwise.
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

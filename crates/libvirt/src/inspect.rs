//! Checks libvirt before a host runs guests.

use kilonova_hypervisor::{Error, Step};

use crate::config::LibvirtConfig;
use crate::connection::{Link, QUICK};
use crate::probe::{self, Versions};

/// Connects to libvirt and reads its versions and capabilities. Changes nothing.
///
/// # Errors
/// Fails if libvirt is unreachable or too old, or cannot satisfy the options.
pub async fn inspect(config: &LibvirtConfig) -> Result<Versions, Error> {
    config.check().map_err(|why| Error::new(Step::Inspect, why))?;
    let link = Link::new(&config.connection_uri);
    let options = config.clone();
    let found =
        link.call(Step::Inspect, QUICK, move |connect| probe::probe(connect, &options)).await?;
    found.map(|(versions, _)| versions).map_err(|why| Error::new(Step::Inspect, why))
}

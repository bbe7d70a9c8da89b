//! What libvirt is, for whoever checks a host before it has guests.

use kilonova_hypervisor::{Error, Step};

use crate::config::Config;
use crate::connection::{Link, QUICK};
use crate::probe::{self, Versions};

/// Connects to libvirt and asks what it can; nothing is changed.
///
/// # Errors
/// Where libvirt is not there, or too old, or cannot be as the options want it.
pub async fn look(config: &Config) -> Result<Versions, Error> {
    config.check().map_err(|why| Error::new(Step::Look, why))?;
    let link = Link::new(&config.connection_uri);
    let asked = config.clone();
    let found = link.call(Step::Look, QUICK, move |connect| probe::probe(connect, &asked)).await?;
    found.map(|(versions, _)| versions).map_err(|why| Error::new(Step::Look, why))
}

//! The driver trait.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use kilonova_ids::ServerId;
use kilonova_node_api::Boot;

use crate::{Definition, Error};

/// A boxed answer.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// What kind of hypervisor it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// `QEMU`, `simulated`.
    pub hypervisor_type: String,
    /// major * 1000000 + minor * 1000 + release.
    pub version: i64,
}

/// A domain that the hypervisor knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Whose it is: the domain's uuid is the server's.
    pub server: ServerId,
    /// Whether it runs.
    pub running: bool,
    /// Its XML as the hypervisor keeps it.
    pub xml: Arc<str>,
}

impl Found {
    /// What the XML says.
    pub fn definition(&self) -> Result<Definition, Error> {
        Definition::from_xml(&self.xml)
    }
}

/// A hypervisor. Dropping an answer half-way may leave the step done or not done, nothing between.
pub trait Hypervisor: Send + Sync + 'static {
    /// What it is.
    fn about(&self) -> About;
    /// Servers whose domains are defined, running or not.
    fn servers(&self) -> Answer<'_, Vec<ServerId>>;
    /// The domain of a server, if it is defined.
    fn domain(&self, server: ServerId) -> Answer<'_, Option<Found>>;
    /// Brings the disks into place.
    fn prepare<'a>(
        &'a self,
        server: ServerId,
        display_name: &'a str,
        boot: &'a Boot,
    ) -> Answer<'a, ()>;
    /// Makes the domain known, or replaces what is known of it as a whole.
    fn define<'a>(&'a self, definition: &'a Definition) -> Answer<'a, ()>;
    /// Powers on.
    fn start(&self, server: ServerId) -> Answer<'_, ()>;
    /// Powers off by asking the guest, and by force after a while.
    fn stop(&self, server: ServerId) -> Answer<'_, ()>;
    /// Asks the guest to restart.
    fn reboot(&self, server: ServerId) -> Answer<'_, ()>;
    /// Powers off at once; domain and disks stay.
    fn destroy(&self, server: ServerId) -> Answer<'_, ()>;
    /// Removes the shut off domain and its disks.
    fn undefine(&self, server: ServerId) -> Answer<'_, ()>;
}

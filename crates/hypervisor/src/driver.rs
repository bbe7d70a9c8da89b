//! The driver trait.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use kilonova_ids::ServerId;
use kilonova_node_api::{Boot, Departure, Peer, Progress, Rescue, Usage};

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

/// What a domain is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It is shut off.
    Off,
    /// It runs.
    Running,
    /// It is in memory, with its processors stopped.
    Paused,
    /// Its memory is on disk.
    Saved,
    /// It has gone to another host, where it goes on.
    Left,
    /// It waits for its guest, which comes from another host.
    Incoming,
}

/// How far a departure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transfer {
    /// Under way.
    Going(Progress),
    /// The guest is on the other host.
    Gone,
}

impl Life {
    /// Whether a guest is in memory, and may use its devices.
    pub fn is_up(self) -> bool {
        matches!(self, Self::Running | Self::Paused)
    }
}

/// A domain that the hypervisor knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Whose it is: the domain's uuid is the server's.
    pub server: ServerId,
    /// What it is doing.
    pub life: Life,
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
    /// Brings the disks into place; those of another rebuild are thrown away.
    fn prepare<'a>(
        &'a self,
        server: ServerId,
        display_name: &'a str,
        boot: &'a Boot,
    ) -> Answer<'a, ()>;
    /// Fetches the disks from the host that has them.
    fn fetch<'a>(
        &'a self,
        server: ServerId,
        display_name: &'a str,
        boot: &'a Boot,
        from: &'a Peer,
    ) -> Answer<'a, ()>;
    /// Brings the disk into place that a guest to be mended starts from.
    fn prepare_rescue<'a>(
        &'a self,
        server: ServerId,
        display_name: &'a str,
        rescue: &'a Rescue,
    ) -> Answer<'a, ()>;
    /// Makes the domain known, or replaces what is known of it as a whole.
    fn define<'a>(&'a self, definition: &'a Definition) -> Answer<'a, ()>;
    /// Powers on.
    fn start(&self, server: ServerId) -> Answer<'_, ()>;
    /// Powers off by asking the guest, and by force after a while.
    fn stop(&self, server: ServerId) -> Answer<'_, ()>;
    /// Asks the guest to restart.
    fn reboot(&self, server: ServerId) -> Answer<'_, ()>;
    /// Stops the processors.
    fn pause(&self, server: ServerId) -> Answer<'_, ()>;
    /// Lets the processors go on.
    fn unpause(&self, server: ServerId) -> Answer<'_, ()>;
    /// Writes the memory to disk and powers off. Host devices are taken from the guest before, as
    /// their state cannot be written.
    fn suspend(&self, server: ServerId) -> Answer<'_, ()>;
    /// Goes on from the memory on disk, with all devices of the definition; fails when one of them
    /// cannot be given back, and keeps the memory then.
    fn resume(&self, server: ServerId) -> Answer<'_, ()>;
    /// Gets ready for the guest of a defined domain, which comes from another host.
    fn receive(&self, server: ServerId) -> Answer<'_, ()>;
    /// The guest that was waited for has come; it runs, or stands still as it did before. A
    /// hypervisor that sees it come has nothing to do.
    fn arrive(&self, server: ServerId, life: Life) -> Answer<'_, ()>;
    /// Begins to send a guest away, or goes on with it, and says at once how far it is. The domain
    /// stays defined.
    fn depart<'a>(&'a self, server: ServerId, departure: &'a Departure) -> Answer<'a, Transfer>;
    /// Calls off a departure that is under way; the guest goes on here.
    fn stay(&self, server: ServerId) -> Answer<'_, ()>;
    /// Interrupts the guest so that it writes down what it was doing.
    fn crash_dump(&self, server: ServerId) -> Answer<'_, ()>;
    /// Writes what is on the root disk, raw, to a file, which is made or replaced. The guest may
    /// run.
    fn snapshot(&self, server: ServerId, file: PathBuf) -> Answer<'_, ()>;
    /// The console log that is kept.
    fn console(&self, server: ServerId) -> Answer<'_, String>;
    /// What a running guest uses.
    fn usage(&self, server: ServerId) -> Answer<'_, Usage>;
    /// Powers off at once and throws away memory on disk; domain and disks stay.
    fn destroy(&self, server: ServerId) -> Answer<'_, ()>;
    /// Removes the shut off domain and its disks.
    fn undefine(&self, server: ServerId) -> Answer<'_, ()>;
}

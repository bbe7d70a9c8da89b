//! The driver trait.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use kilonova_ids::ServerId;
use kilonova_node_api::{Departure, DiskFormat, Peer, Progress, Usage};
use uuid::Uuid;

use crate::{Definition, Error};

/// A boxed answer.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// What kind of hypervisor it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct About {
    /// `QEMU`, `simulated`.
    pub hypervisor_type: String,
    /// major * 1000000 + minor * 1000 + release.
    pub version: i64,
    /// Traits that the host has because of it, such as
    /// [`VGPU_LIVE_MIGRATION`](kilonova_node_api::VGPU_LIVE_MIGRATION).
    pub traits: Vec<String>,
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

/// Mediated devices that a hypervisor keeps, so that they are there again after the host was
/// restarted. Making one that is there, and removing one that is not, succeed.
pub trait Mdevs: Send + Sync {
    /// Makes a mediated device of the given uuid. One of that uuid with another parent or of another
    /// type is not touched, and is an error.
    fn create<'a>(&'a self, uuid: Uuid, parent: &'a str, mdev_type: &'a str) -> Answer<'a, ()>;
    /// Removes a mediated device, if it is the one meant.
    fn remove<'a>(&'a self, uuid: Uuid, parent: &'a str, mdev_type: &'a str) -> Answer<'a, ()>;
}

/// A hypervisor. Dropping an answer half-way may leave the step done or not done, nothing between.
pub trait Hypervisor: Send + Sync + 'static {
    /// What it is.
    fn about(&self) -> About;
    /// Its mediated devices; without, the node makes them in sysfs.
    fn mdevs(&self) -> Option<&dyn Mdevs> {
        None
    }
    /// Waits until a guest may have changed, by itself or by a step. A hypervisor that does not tell
    /// of it keeps whoever asks waiting, and is looked at now and then.
    fn changed(&self) -> Answer<'_, ServerId> {
        Box::pin(std::future::pending())
    }
    /// Servers whose domains are defined, running or not.
    fn servers(&self) -> Answer<'_, Vec<ServerId>>;
    /// Servers whose guests run, of all those there are: one question, where `domain` is one for each.
    fn running(&self) -> Answer<'_, Vec<ServerId>>;
    /// The domain of a server, if it is defined.
    fn domain(&self, server: ServerId) -> Answer<'_, Option<Found>>;
    /// Brings the disks of a shut off guest into place; those of another rebuild are thrown away,
    /// those that are too small grow.
    fn prepare<'a>(&'a self, definition: &'a Definition) -> Answer<'a, ()>;
    /// Fetches the disks from the host that has them, and lets those that are too small grow.
    fn fetch<'a>(&'a self, definition: &'a Definition, from: &'a Peer) -> Answer<'a, ()>;
    /// Gets disks ready that a guest fills which comes running from another host; what it does not
    /// bring, such as its config drive, is fetched from there.
    fn prepare_arrival<'a>(
        &'a self,
        definition: &'a Definition,
        _from: &'a Peer,
    ) -> Answer<'a, ()> {
        self.prepare(definition)
    }
    /// Brings the disk into place that the guest is to be mended from, if it is to be.
    fn prepare_rescue<'a>(&'a self, definition: &'a Definition) -> Answer<'a, ()>;
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
    /// Writes what is on the root disk to a file, which is made or replaced and points at no other
    /// file, and says of which format it is. The guest may run.
    fn snapshot(&self, server: ServerId, file: PathBuf) -> Answer<'_, DiskFormat>;
    /// The console log that is kept.
    fn console(&self, server: ServerId) -> Answer<'_, String>;
    /// What a running guest uses.
    fn usage(&self, server: ServerId) -> Answer<'_, Usage>;
    /// Powers off at once and throws away memory on disk; domain and disks stay. Nothing is to do
    /// where there is no domain.
    fn destroy(&self, server: ServerId) -> Answer<'_, ()>;
    /// Removes the shut off domain and its disks, as far as they are there.
    fn undefine(&self, server: ServerId) -> Answer<'_, ()>;
}

//! The driver trait.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use kilonova_ids::{OperationId, ServerId, VolumeId};
use kilonova_node_api::{
    ConsoleAnswer, ConsoleKind, DiskFormat, GuestVerb, OutgoingMigration, Peer, Progress, Usage,
    Volume, VolumeSource,
};
use uuid::Uuid;

use crate::{Definition, Error};

/// The future that a driver's step returns.
pub type DriverFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// The future of an opened console.
pub type ConsoleFuture<'a> = Pin<Box<dyn Future<Output = ConsoleAnswer> + Send + 'a>>;

/// Identity and capabilities of a hypervisor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HypervisorInfo {
    /// `QEMU`, `simulated`.
    pub hypervisor_type: String,
    /// major * 1000000 + minor * 1000 + release.
    pub version: i64,
    /// Host traits that follow from the hypervisor, such as
    /// [`VGPU_LIVE_MIGRATION`](kilonova_node_api::VGPU_LIVE_MIGRATION).
    pub traits: Vec<String>,
}

/// The state of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DomainState {
    /// It is shut off.
    Shutoff,
    /// It is running.
    Running,
    /// It is in memory with its vCPUs stopped.
    Paused,
    /// Its memory is saved to disk.
    Saved,
    /// Its guest was migrated to another host and runs there.
    MigratedOut,
    /// It waits for the guest of an incoming live migration.
    Incoming,
}

/// The progress of an outgoing live migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationState {
    /// It is running.
    InProgress(Progress),
    /// The guest is on the other host.
    Completed,
}

impl DomainState {
    /// True if the guest is in memory and may use its devices.
    pub fn is_up(self) -> bool {
        matches!(self, Self::Running | Self::Paused)
    }
}

/// The volumes of a running guest that differ from its definition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PluggedVolumes {
    /// Volumes of the definition that could not be attached, with the reasons.
    pub refused: Vec<(VolumeId, String)>,
    /// Other volumes, which the guest did not release.
    pub held: Vec<HeldVolume>,
    /// Volumes of the definition that the guest uses from another source until it restarts.
    pub elsewhere: Vec<VolumeId>,
    /// Volumes of the definition whose disks could not be grown to their sizes, with the reasons.
    pub not_grown: Vec<(VolumeId, String)>,
}

/// A volume that a guest did not release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldVolume {
    /// The volume.
    pub volume: VolumeId,
    /// The disk's name.
    pub device: String,
    /// The reason.
    pub reason: String,
}

/// The disks of a guest on its host. A guest whose root disk is a volume may have others there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundDisks {
    /// The host has none, or only incomplete ones.
    None,
    /// The host has those of the definition, and [`Hypervisor::prepare`] keeps them.
    Kept,
    /// The host has those of this rebuild, which is another one than that of the definition. [`Hypervisor::prepare`]
    /// replaces them.
    OfRebuild(Option<OperationId>),
}

/// A defined domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinedDomain {
    /// The server, whose id is the domain's UUID.
    pub server: ServerId,
    /// Its state.
    pub state: DomainState,
    /// Its persistent XML.
    pub xml: Arc<str>,
}

impl DefinedDomain {
    /// Parses the XML.
    pub fn definition(&self) -> Result<Definition, Error> {
        Definition::from_xml(&self.xml)
    }
}

/// Mediated devices that a hypervisor persists, so that they exist again after a reboot of the
/// host. Creating an existing device and removing an absent one succeed.
pub trait Mdevs: Send + Sync {
    /// Creates a mediated device. A device with that UUID but another parent or type is an error
    /// and stays untouched.
    fn create<'a>(
        &'a self,
        uuid: Uuid,
        parent: &'a str,
        mdev_type: &'a str,
    ) -> DriverFuture<'a, ()>;
    /// Removes a mediated device if parent and type match.
    fn remove<'a>(
        &'a self,
        uuid: Uuid,
        parent: &'a str,
        mdev_type: &'a str,
    ) -> DriverFuture<'a, ()>;
}

/// A hypervisor. A step whose future is dropped is either done or not done, never partial.
pub trait Hypervisor: Send + Sync + 'static {
    /// Its identity and capabilities.
    fn info(&self) -> HypervisorInfo;
    /// Its persistent mediated devices; without them, the agent creates mdevs in sysfs.
    fn mdevs(&self) -> Option<&dyn Mdevs> {
        None
    }
    /// Waits until a guest may have changed, whether or not a step caused the change. A hypervisor
    /// without events waits forever, and the agent polls it.
    fn changed(&self) -> DriverFuture<'_, ServerId> {
        Box::pin(std::future::pending())
    }
    /// Servers whose domains are defined, running or not.
    fn servers(&self) -> DriverFuture<'_, Vec<ServerId>>;
    /// Servers of all running guests, in a single call; `domain` needs one per server.
    fn running(&self) -> DriverFuture<'_, Vec<ServerId>>;
    /// The domain of a server, if it is defined.
    fn domain(&self, server: ServerId) -> DriverFuture<'_, Option<DefinedDomain>>;
    /// The machine type that the next definition of a guest keeps, if a host chose it and not its image. `None` without a
    /// domain.
    fn kept_machine_type(&self, _server: ServerId) -> DriverFuture<'_, Option<String>> {
        Box::pin(std::future::ready(Ok(None)))
    }
    /// Finds the guest's disks on the host, whether or not it has a domain of the guest.
    fn find_disks<'a>(&'a self, definition: &'a Definition) -> DriverFuture<'a, FoundDisks>;
    /// Creates or grows the disks of a guest that is shut off. Disks of an earlier rebuild are
    /// replaced.
    fn prepare<'a>(&'a self, definition: &'a Definition) -> DriverFuture<'a, ()>;
    /// Fetches the disks from their host, and grows those that are too small.
    fn fetch<'a>(&'a self, definition: &'a Definition, from: &'a Peer) -> DriverFuture<'a, ()>;
    /// Creates the empty target disks of an incoming live migration, and fetches what the migration
    /// stream does not carry (e.g. the config drive).
    fn prepare_incoming_disks<'a>(
        &'a self,
        definition: &'a Definition,
        _from: &'a Peer,
    ) -> DriverFuture<'a, ()> {
        self.prepare(definition)
    }
    /// Creates the rescue disk, if the definition has one.
    fn prepare_rescue_disk<'a>(&'a self, definition: &'a Definition) -> DriverFuture<'a, ()>;
    /// Passes the hypervisor the secret of a volume that it opens itself.
    fn give_secret<'a>(
        &'a self,
        _server: ServerId,
        _volume: &'a Volume,
        _source: &'a VolumeSource,
    ) -> DriverFuture<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// Attaches the connected volumes of a definition to its guest, which is up, and detaches all
    /// others: it waits until the guest has released them. Grows disks of volumes that have grown.
    fn plug_volumes<'a>(&'a self, definition: &'a Definition) -> DriverFuture<'a, PluggedVolumes>;
    /// Defines the domain, or replaces its definition.
    fn define<'a>(&'a self, definition: &'a Definition) -> DriverFuture<'a, ()>;
    /// Starts the guest.
    fn start(&self, server: ServerId) -> DriverFuture<'_, ()>;
    /// Starts the guest with its vCPUs stopped. Its interfaces exist from then on.
    fn start_paused(&self, server: ServerId) -> DriverFuture<'_, ()>;
    /// Shuts the guest down, and destroys it after a timeout.
    fn stop(&self, server: ServerId) -> DriverFuture<'_, ()>;
    /// Reboots the guest by an ACPI request.
    fn reboot(&self, server: ServerId) -> DriverFuture<'_, ()>;
    /// Stops the vCPUs.
    fn pause(&self, server: ServerId) -> DriverFuture<'_, ()>;
    /// Resumes the vCPUs.
    fn unpause(&self, server: ServerId) -> DriverFuture<'_, ()>;
    /// Saves the memory to disk and powers off. Host devices are detached first, as their state
    /// cannot be saved.
    fn suspend(&self, server: ServerId) -> DriverFuture<'_, ()>;
    /// Restores the memory from disk with all devices of the definition. If a device cannot be
    /// attached, it fails and keeps the saved memory.
    fn resume(&self, server: ServerId) -> DriverFuture<'_, ()>;
    /// Prepares a defined domain for an incoming live migration.
    fn prepare_incoming(&self, server: ServerId) -> DriverFuture<'_, ()>;
    /// Completes an incoming live migration with the guest running or paused as before. A
    /// hypervisor that sees the arrival itself does nothing.
    fn finish_incoming(&self, server: ServerId, state: DomainState) -> DriverFuture<'_, ()>;
    /// Starts an outgoing live migration or continues it, and returns its progress immediately. The
    /// domain stays defined.
    fn migrate_out<'a>(
        &'a self,
        server: ServerId,
        migration: &'a OutgoingMigration,
    ) -> DriverFuture<'a, MigrationState>;
    /// Aborts an outgoing live migration; the guest keeps running here.
    fn abort_migration(&self, server: ServerId) -> DriverFuture<'_, ()>;
    /// Carries out a verb on a guest that is up.
    fn carry_out(&self, server: ServerId, verb: GuestVerb) -> DriverFuture<'_, ()>;
    /// Copies the root disk to a standalone file, which is created or replaced, and returns the
    /// file's format. The guest may run.
    fn snapshot(&self, server: ServerId, file: PathBuf) -> DriverFuture<'_, DiskFormat>;
    /// Connects to a console of a guest. Without `connect`, reports only whether the guest has it,
    /// or will have it after its next start. A connection ends when the guest no longer runs on this
    /// host.
    fn open_console(&self, server: ServerId, kind: ConsoleKind, connect: bool)
    -> ConsoleFuture<'_>;
    /// The console log.
    fn console(&self, server: ServerId) -> DriverFuture<'_, String>;
    /// The resource usage of a guest.
    fn usage(&self, server: ServerId) -> DriverFuture<'_, Usage>;
    /// Powers off immediately and removes saved memory; domain and disks stay. Succeeds without a
    /// domain.
    fn destroy(&self, server: ServerId) -> DriverFuture<'_, ()>;
    /// Undefines the domain and removes its disks, as far as they exist.
    fn undefine(&self, server: ServerId) -> DriverFuture<'_, ()>;
}

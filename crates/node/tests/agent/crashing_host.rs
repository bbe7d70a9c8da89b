//! A host that crashes at a chosen step: from then on no call has an effect or returns.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use kilonova_devices::{Error, MigCard, MigDriver, Sysfs};
use kilonova_hypervisor::{
    ConsoleFuture, DefinedDomain, Definition, DomainState, DriverFuture, FoundDisks, Hypervisor,
    HypervisorInfo, MigrationState, PluggedVolumes,
};
use kilonova_ids::{AttachmentId, OperationId, ServerId, VolumeId};
use kilonova_node::{DisconnectFuture, VolumeFuture, Volumes};
use kilonova_node_api::{
    Connector, ConsoleKind, DiskFormat, GpuInstance, GuestVerb, OutgoingMigration, Peer, Usage,
    Volume, VolumeSource,
};
use tokio::sync::watch;

/// The crash: before or after the n-th step that changes something.
#[derive(Debug, Clone, Copy)]
pub struct Death {
    pub step: usize,
    pub after: bool,
}

/// Counts steps and triggers the crash.
pub struct Doom {
    death: Option<Death>,
    steps: AtomicUsize,
    pub log: Mutex<Vec<String>>,
    dead: watch::Sender<bool>,
    /// The last guest whose state changed without a document.
    changed: watch::Sender<Option<ServerId>>,
    /// The guests' disks, which a lost domain leaves behind.
    pub disks: Mutex<HashMap<ServerId, Disks>>,
    buried: (Mutex<bool>, Condvar),
}

/// The disks of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disks {
    pub rebuilt: Option<OperationId>,
    /// Another number for other disks.
    pub number: usize,
}

enum Fate {
    Live,
    DieBefore,
    DieAfter,
}

impl Doom {
    pub fn new(death: Option<Death>) -> Arc<Self> {
        Arc::new(Self {
            death,
            steps: AtomicUsize::new(0),
            log: Mutex::default(),
            dead: watch::Sender::new(false),
            changed: watch::Sender::new(None),
            disks: Mutex::default(),
            buried: (Mutex::new(false), Condvar::new()),
        })
    }

    pub async fn died(&self) {
        let _ = self.dead.subscribe().wait_for(|dead| *dead).await;
    }

    /// Reports that a guest's state changed without a document.
    pub fn tell(&self, server: ServerId) {
        self.changed.send_replace(Some(server));
    }

    /// Releases threads that hang in the crashed kernel.
    pub fn bury(&self) {
        *self.buried.0.lock().expect("the lock is not poisoned") = true;
        self.buried.1.notify_all();
    }

    pub fn disks_of(&self, server: ServerId) -> Option<Disks> {
        self.disks.lock().expect("the lock is not poisoned").get(&server).copied()
    }

    /// Gives a guest other disks.
    fn replace_disks(&self, definition: &Definition) {
        let (rebuilt, number) = (definition.config.boot.rebuilt, self.steps.load(Ordering::SeqCst));
        let mut disks = self.disks.lock().expect("the lock is not poisoned");
        disks.insert(definition.server, Disks { rebuilt, number });
    }

    fn fate(&self, step: &str) -> Fate {
        if *self.dead.borrow() {
            return Fate::DieBefore;
        }
        self.log.lock().expect("the lock is not poisoned").push(step.to_owned());
        let number = self.steps.fetch_add(1, Ordering::SeqCst);
        match self.death {
            Some(death) if death.step == number => {
                if death.after {
                    return Fate::DieAfter;
                }
                self.dead.send_replace(true);
                Fate::DieBefore
            }
            _ => Fate::Live,
        }
    }

    async fn run<T>(&self, step: &str, work: impl Future<Output = T>) -> T {
        match self.fate(step) {
            Fate::Live => work.await,
            Fate::DieBefore => std::future::pending().await,
            Fate::DieAfter => {
                let _ = work.await;
                self.dead.send_replace(true);
                std::future::pending().await
            }
        }
    }

    fn hang(&self) -> io::Error {
        let mut buried = self.buried.0.lock().expect("the lock is not poisoned");
        while !*buried {
            buried = self.buried.1.wait(buried).expect("the lock is not poisoned");
        }
        io::ErrorKind::Interrupted.into()
    }
}

/// A kernel that refuses some writes: each entry is a path suffix, the number of matching writes
/// that succeed first, and the error of the next one.
pub struct Stubborn {
    pub refusals: Mutex<Vec<(&'static str, usize, i32)>>,
    pub inner: Arc<dyn Sysfs>,
}

impl Sysfs for Stubborn {
    fn read(&self, path: &str) -> io::Result<String> {
        self.inner.read(path)
    }
    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        self.inner.list(path)
    }
    fn write(&self, path: &str, value: &str) -> io::Result<()> {
        let mut refusals = self.refusals.lock().expect("the lock is not poisoned");
        if let Some(at) = refusals.iter().position(|(end, ..)| path.ends_with(end)) {
            if refusals[at].1 == 0 {
                return Err(io::Error::from_raw_os_error(refusals.remove(at).2));
            }
            refusals[at].1 -= 1;
        }
        drop(refusals);
        self.inner.write(path, value)
    }
    fn exists(&self, path: &str) -> bool {
        self.inner.exists(path)
    }
    fn real(&self, path: &str) -> io::Result<String> {
        self.inner.real(path)
    }
}

pub struct Fragile<T: ?Sized> {
    pub doom: Arc<Doom>,
    pub inner: Arc<T>,
}

impl Hypervisor for Fragile<dyn Hypervisor> {
    fn info(&self) -> HypervisorInfo {
        self.inner.info()
    }
    fn changed(&self) -> DriverFuture<'_, ServerId> {
        Box::pin(async {
            loop {
                let mut changed = self.doom.changed.subscribe();
                let _ = changed.wait_for(Option::is_some).await;
                if let Some(server) = self.doom.changed.send_replace(None) {
                    return Ok(server);
                }
            }
        })
    }
    fn servers(&self) -> DriverFuture<'_, Vec<ServerId>> {
        self.inner.servers()
    }
    fn running(&self) -> DriverFuture<'_, Vec<ServerId>> {
        self.inner.running()
    }
    fn domain(&self, server: ServerId) -> DriverFuture<'_, Option<DefinedDomain>> {
        self.inner.domain(server)
    }
    fn find_disks<'a>(&'a self, definition: &'a Definition) -> DriverFuture<'a, FoundDisks> {
        Box::pin(async {
            Ok(match self.doom.disks_of(definition.server) {
                None => FoundDisks::None,
                Some(disks) if disks.rebuilt == definition.config.boot.rebuilt => FoundDisks::Kept,
                Some(disks) => FoundDisks::OfRebuild(disks.rebuilt),
            })
        })
    }
    fn prepare<'a>(&'a self, definition: &'a Definition) -> DriverFuture<'a, ()> {
        Box::pin(self.doom.run("image", async {
            self.inner.prepare(definition).await?;
            if self.find_disks(definition).await? != FoundDisks::Kept {
                self.doom.replace_disks(definition);
            }
            Ok(())
        }))
    }
    fn prepare_rescue_disk<'a>(&'a self, definition: &'a Definition) -> DriverFuture<'a, ()> {
        Box::pin(self.doom.run("rescue", self.inner.prepare_rescue_disk(definition)))
    }
    fn pause(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.doom.run("pause", self.inner.pause(server)))
    }
    fn unpause(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.doom.run("unpause", self.inner.unpause(server)))
    }
    fn suspend(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.doom.run("suspend", self.inner.suspend(server)))
    }
    fn resume(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.doom.run("resume", self.inner.resume(server)))
    }
    fn fetch<'a>(&'a self, definition: &'a Definition, from: &'a Peer) -> DriverFuture<'a, ()> {
        Box::pin(self.doom.run("fetch", async {
            self.inner.fetch(definition, from).await?;
            self.doom.replace_disks(definition);
            Ok(())
        }))
    }
    fn prepare_incoming(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.doom.run("receive", self.inner.prepare_incoming(server)))
    }
    fn finish_incoming(&self, server: ServerId, state: DomainState) -> DriverFuture<'_, ()> {
        Box::pin(self.doom.run("arrive", self.inner.finish_incoming(server, state)))
    }
    fn migrate_out<'a>(
        &'a self,
        server: ServerId,
        migration: &'a OutgoingMigration,
    ) -> DriverFuture<'a, MigrationState> {
        Box::pin(self.doom.run("migrate", self.inner.migrate_out(server, migration)))
    }
    fn abort_migration(&self, server: ServerId) -> DriverFuture<'_, ()> {
        self.inner.abort_migration(server)
    }
    fn carry_out(&self, server: ServerId, verb: GuestVerb) -> DriverFuture<'_, ()> {
        Box::pin(self.doom.run(verb.as_str(), self.inner.carry_out(server, verb)))
    }
    fn snapshot(&self, server: ServerId, file: PathBuf) -> DriverFuture<'_, DiskFormat> {
        Box::pin(self.doom.run("snapshot", self.inner.snapshot(server, file)))
    }
    fn open_console(
        &self,
        server: ServerId,
        kind: ConsoleKind,
        connect: bool,
    ) -> ConsoleFuture<'_> {
        self.inner.open_console(server, kind, connect)
    }
    fn console(&self, server: ServerId) -> DriverFuture<'_, String> {
        self.inner.console(server)
    }
    fn usage(&self, server: ServerId) -> DriverFuture<'_, Usage> {
        self.inner.usage(server)
    }
    fn plug_volumes<'a>(&'a self, definition: &'a Definition) -> DriverFuture<'a, PluggedVolumes> {
        Box::pin(self.doom.run("plug", self.inner.plug_volumes(definition)))
    }
    fn define<'a>(&'a self, definition: &'a Definition) -> DriverFuture<'a, ()> {
        Box::pin(self.doom.run("define", self.inner.define(definition)))
    }
    fn start(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.doom.run("start", self.inner.start(server)))
    }
    fn start_paused(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.doom.run("start", self.inner.start_paused(server)))
    }
    fn stop(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.doom.run("stop", self.inner.stop(server)))
    }
    fn reboot(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.doom.run("reboot", self.inner.reboot(server)))
    }
    fn destroy(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.doom.run("destroy", self.inner.destroy(server)))
    }
    fn undefine(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.doom.run("undefine", async move {
            self.inner.undefine(server).await?;
            self.doom.disks.lock().expect("the lock is not poisoned").remove(&server);
            Ok(())
        }))
    }
}

impl Volumes for Fragile<dyn Volumes> {
    fn connector(&self) -> Option<Connector> {
        self.inner.connector()
    }
    fn connect<'a>(
        &'a self,
        server: ServerId,
        volume: &'a Volume,
    ) -> VolumeFuture<'a, VolumeSource> {
        Box::pin(self.doom.run("connect", self.inner.connect(server, volume)))
    }
    fn disconnect_others<'a>(
        &'a self,
        server: ServerId,
        keep: &'a BTreeSet<AttachmentId>,
    ) -> DisconnectFuture<'a> {
        Box::pin(self.doom.run("disconnect", self.inner.disconnect_others(server, keep)))
    }
    fn attachments(&self, server: ServerId) -> Vec<(AttachmentId, VolumeId)> {
        self.inner.attachments(server)
    }
    fn servers(&self) -> BTreeSet<ServerId> {
        self.inner.servers()
    }
}

impl Sysfs for Fragile<dyn Sysfs> {
    fn read(&self, path: &str) -> io::Result<String> {
        self.inner.read(path)
    }
    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        self.inner.list(path)
    }
    fn write(&self, path: &str, value: &str) -> io::Result<()> {
        match self.doom.fate(if path.ends_with("/create") { "create_mdev" } else { "remove_mdev" })
        {
            Fate::Live => self.inner.write(path, value),
            Fate::DieBefore => Err(self.doom.hang()),
            Fate::DieAfter => {
                let _ = self.inner.write(path, value);
                self.doom.dead.send_replace(true);
                Err(self.doom.hang())
            }
        }
    }
    fn exists(&self, path: &str) -> bool {
        self.inner.exists(path)
    }
    fn real(&self, path: &str) -> io::Result<String> {
        self.inner.real(path)
    }
}

impl Fragile<dyn MigDriver> {
    fn step(&self, step: &str, work: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let dead = || Err(Error::Mig(self.doom.hang().to_string()));
        match self.doom.fate(step) {
            Fate::Live => work(),
            Fate::DieBefore => dead(),
            Fate::DieAfter => {
                let _ = work();
                self.doom.dead.send_replace(true);
                dead()
            }
        }
    }
}

impl MigDriver for Fragile<dyn MigDriver> {
    fn cards(&self) -> Result<Vec<MigCard>, Error> {
        self.inner.cards()
    }
    fn create(&self, instance: &GpuInstance) -> Result<(), Error> {
        self.step("create_instance", || self.inner.create(instance))
    }
    fn destroy(&self, instance: &GpuInstance) -> Result<(), Error> {
        self.step("destroy_instance", || self.inner.destroy(instance))
    }
}

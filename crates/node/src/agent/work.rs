//! The host as the workers handle it: the steps, each safe to repeat, and what they share.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kilonova_devices::{Discovery, Found, Made, Mdev, Sysfs, Watch};
use kilonova_hypervisor::Hypervisor;
use kilonova_ids::ServerId;
use kilonova_node_api::{Desired, Document, Observation, Outcome, Phase};
use tokio::sync::{RwLock, Semaphore, watch};

use super::Parts;
use super::book::{Book, Verdict};
use super::connections::Connections;
use super::link::Link;
use super::notes::{Note, Notes};

const PROGRAM: &str = "program";

/// Why carrying a document out ended early.
#[derive(Debug)]
pub(super) enum Halt {
    /// A newer document is there.
    Superseded,
    /// A step failed.
    Failed { step: String, message: String },
}

/// The carrying out of one document.
pub(super) struct Turn<'a> {
    pub generation: i64,
    newest: &'a watch::Receiver<Arc<Document>>,
    say: &'a (dyn Fn(Phase) + Send + Sync),
}

impl Turn<'_> {
    /// Ends it when a newer document is there.
    pub(super) fn current(&self) -> Result<(), Halt> {
        match self.newest.has_changed() {
            Ok(true) => Err(Halt::Superseded),
            Ok(false) | Err(_) => Ok(()),
        }
    }

    /// Says what it is at.
    pub(super) fn say(&self, phase: Phase) {
        (self.say)(phase);
    }
}

/// What came of a document.
pub(super) struct Came {
    pub outcome: Outcome,
    /// The guest once was as it says, and was only looked at.
    pub found: bool,
}

impl Halt {
    pub(super) fn failed(step: &str, message: impl ToString) -> Self {
        Self::Failed { step: step.to_owned(), message: message.to_string() }
    }
}

impl From<kilonova_hypervisor::Error> for Halt {
    fn from(error: kilonova_hypervisor::Error) -> Self {
        Self::failed(error.step.as_str(), error)
    }
}

pub(super) struct Work {
    host: String,
    pub(super) state: PathBuf,
    pub(super) sysfs: Arc<dyn Sysfs>,
    pub(super) hypervisor: Arc<dyn Hypervisor>,
    pub(super) connections: Connections,
    pub(super) notes: Notes,
    pub(super) book: Book,
    pub(super) link: Arc<Link>,
    pub(super) soft_reboot: Duration,
    permits: Semaphore,
    /// Held shared while something is made or taken back, alone while the devices are counted.
    devices: Arc<RwLock<()>>,
    /// Servers with notes that no document names.
    strays: Mutex<HashSet<ServerId>>,
    /// Servers with domains that no document names.
    strangers: Mutex<HashSet<ServerId>>,
    /// Servers that have not been looked at since this process started.
    unseen: Mutex<HashSet<ServerId>>,
}

impl Work {
    pub(super) fn new(parts: &Parts, notes: Notes, book: Book, link: Arc<Link>) -> Self {
        Self {
            host: parts.registration.host.clone(),
            state: parts.state.clone(),
            sysfs: Arc::clone(&parts.sysfs),
            hypervisor: Arc::clone(&parts.hypervisor),
            connections: Connections::new(
                parts.registration.host.clone(),
                Arc::clone(&parts.network),
                parts.settings.network_look,
            ),
            notes,
            book,
            link,
            soft_reboot: parts.settings.soft_reboot,
            permits: Semaphore::new(parts.settings.concurrency.max(1)),
            devices: Arc::default(),
            strays: Mutex::default(),
            strangers: Mutex::default(),
            unseen: Mutex::default(),
        }
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Makes the host as the document says, unless a newer one comes in.
    pub(super) async fn carry_out(
        &self,
        document: &Document,
        newest: &watch::Receiver<Arc<Document>>,
        say: &(dyn Fn(Phase) + Send + Sync),
    ) -> Result<Came, Halt> {
        if matches!(document.desired, Desired::Present(_)) {
            self.orders_are_done(document.server, newest).await?;
        }
        let Ok(_permit) = self.permits.acquire().await else { return Err(Halt::Superseded) };
        let turn = Turn { generation: document.generation, newest, say };
        turn.current()?;
        match &document.desired {
            Desired::Present(domain) => self.present(document.server, domain, &turn).await,
            Desired::Absent => {
                Ok(Came { outcome: self.absent(document.server).await?, found: false })
            }
        }
    }

    /// Waits for what has to be done to devices before the server may be there.
    async fn orders_are_done(
        &self,
        server: ServerId,
        newest: &watch::Receiver<Arc<Document>>,
    ) -> Result<(), Halt> {
        let (mut turned, mut newer) = (self.book.turned(), newest.clone());
        loop {
            match self.book.verdict(server) {
                Verdict::Clear => return Ok(()),
                Verdict::Failed(message) => return Err(Halt::failed(PROGRAM, message)),
                Verdict::Wait => {}
            }
            tokio::select! {
                _ = turned.changed() => {}
                Ok(()) = newer.changed() => return Err(Halt::Superseded),
            }
        }
    }

    /// A document names the server.
    pub(super) fn adopt(&self, server: ServerId) {
        self.strays().remove(&server);
        lock(&self.strangers).remove(&server);
    }

    /// Domains that no document names.
    pub(super) fn strangers_are(&self, strays: &[Observation]) {
        *lock(&self.strangers) = strays.iter().map(|stray| stray.server).collect();
    }

    pub(super) fn strangers(&self) -> Vec<ServerId> {
        lock(&self.strangers).iter().copied().collect()
    }

    /// The process has just started: these were not looked at yet.
    pub(super) fn unseen_are(&self, documents: &[Document]) {
        *lock(&self.unseen) = documents.iter().map(|document| document.server).collect();
    }

    /// Whether it is looked at for the first time.
    pub(super) fn is_first_look(&self, server: ServerId) -> bool {
        lock(&self.unseen).remove(&server)
    }

    /// No document names the server.
    pub(super) fn disown(&self, server: ServerId) {
        self.strays().insert(server);
    }

    fn strays(&self) -> MutexGuard<'_, HashSet<ServerId>> {
        lock(&self.strays)
    }

    /// Reads the devices of the host while none is being made.
    pub(super) async fn scan(
        &self,
        discovery: Arc<Discovery>,
        watch: Arc<Watch>,
    ) -> Result<Found, kilonova_devices::Error> {
        let alone = Arc::clone(&self.devices).write_owned().await;
        let noted = self.notes.mdevs();
        let strays = self.strays().clone();
        let sysfs = Arc::clone(&self.sysfs);
        blocking(move || {
            let _alone = alone;
            let is_ours = |uuid| noted.get(&uuid).is_some_and(|server| !strays.contains(server));
            discovery.look_on(&*sysfs, &is_ours, Some(&watch))
        })
        .await
    }

    /// Makes a mediated device or gives a function its type, unless it is so.
    pub(super) async fn make(&self, made: Made) -> Result<(), String> {
        let shared = Arc::clone(&self.devices).read_owned().await;
        let sysfs = Arc::clone(&self.sysfs);
        if let (Made::Mdev(mdev), Some(mdevs)) = (&made, self.hypervisor.mdevs()) {
            let Mdev { uuid, parent, mdev_type } = mdev.clone();
            blocking(move || made.check(&*sysfs)).await.map_err(text)?;
            let result = mdevs.create(uuid, &parent, &mdev_type).await.map_err(text);
            drop(shared);
            return result;
        }
        blocking(move || {
            let _shared = shared;
            made.make(&*sysfs)
        })
        .await
        .map_err(text)
    }

    /// Takes back what was made for a server, if it is there and is the one meant. What has been
    /// made anew for another server since is that one's.
    pub(super) async fn unmake(&self, server: ServerId, made: Made) -> Result<(), String> {
        let shared = Arc::clone(&self.devices).read_owned().await;
        if self.notes.names_elsewhere(server, &made) {
            return Ok(());
        }
        if let (Made::Mdev(Mdev { uuid, parent, mdev_type }), Some(mdevs)) =
            (&made, self.hypervisor.mdevs())
        {
            mdevs.remove(*uuid, parent, mdev_type).await.map_err(text)?;
        }
        let sysfs = Arc::clone(&self.sysfs);
        blocking(move || {
            let _shared = shared;
            made.unmake(&*sysfs)
        })
        .await
        .map_err(text)
    }

    /// Waits until the kernel has answered what was asked of it.
    pub(super) async fn settle(&self) {
        drop(self.devices.write().await);
    }

    pub(super) fn note(&self, server: ServerId, note: Note, step: &str) -> Result<(), Halt> {
        self.notes
            .put(server, note)
            .map_err(|error| Halt::failed(step, format!("{}: {error}", self.state.display())))
    }
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

fn lock(servers: &Mutex<HashSet<ServerId>>) -> MutexGuard<'_, HashSet<ServerId>> {
    servers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a step of the kernel's where it may take its time.
pub(super) async fn blocking<T: Send + 'static>(
    step: impl FnOnce() -> Result<T, kilonova_devices::Error> + Send + 'static,
) -> Result<T, kilonova_devices::Error> {
    match tokio::task::spawn_blocking(step).await {
        Ok(result) => result,
        Err(error) => {
            Err(kilonova_devices::Error::Read { path: "sysfs".to_owned(), source: error.into() })
        }
    }
}

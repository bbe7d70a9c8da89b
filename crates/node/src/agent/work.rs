//! The state that the workers of an agent share, and the idempotent steps that they carry out on the host.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kilonova_devices::{
    Discovery, Found, KernelObject, Mdev, MigCard, MigDriver, MigScan, ScanContext, Sysfs,
    TypeNames, Watch,
};
use kilonova_hypervisor::Hypervisor;
use kilonova_ids::{HostName, ServerId};
use kilonova_node_api::{Batch, Desired, Document, Observation, Outcome, Phase, VolumeState};
use tokio::sync::{RwLock, Semaphore, watch};
use uuid::Uuid;

use super::Parts;
use super::connections::Connections;
use super::link::Link;
use super::machine_types::MachineTypes;
use super::metadata::Memory;
use super::notes::{Note, Notes};
use super::order_log::{OrderLog, Verdict};
use super::rebuilds::Rebuilds;
use super::removals::Removals;
use crate::volumes::Volumes;

const PROGRAM: &str = "program";

/// Why the processing of a document ended early.
#[derive(Debug)]
pub(super) enum Halt {
    /// A newer document arrived.
    Superseded,
    /// A step failed.
    Failed { step: String, message: String },
}

/// The processing of one document.
pub(super) struct Turn<'a> {
    pub generation: i64,
    newest: &'a watch::Receiver<Arc<Document>>,
    say: &'a (dyn Fn(Phase) + Send + Sync),
}

impl Turn<'_> {
    /// Fails if a newer document has arrived.
    pub(super) fn current(&self) -> Result<(), Halt> {
        match self.newest.has_changed() {
            Ok(true) => Err(Halt::Superseded),
            Ok(false) | Err(_) => Ok(()),
        }
    }

    /// Waits until a newer document has arrived.
    pub(super) async fn superseded(&self) -> Halt {
        let mut newest = self.newest.clone();
        if newest.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        Halt::Superseded
    }

    /// Reports the phase.
    pub(super) fn say(&self, phase: Phase) {
        (self.say)(phase);
    }
}

/// The result of a document.
pub(super) struct Applied {
    pub outcome: Outcome,
    /// True if the guest had already reached its desired state and was only checked.
    pub found: bool,
    /// The state of each volume, if the guest was compared with its document.
    pub volumes: Option<Vec<VolumeState>>,
}

impl Applied {
    /// A result without volumes.
    pub(super) fn of(outcome: Outcome) -> Self {
        Self { outcome, found: false, volumes: None }
    }
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

/// The agent's records, which survive its restart.
pub(super) struct Records {
    pub notes: Notes,
    pub order_log: OrderLog,
    pub removals: Removals,
    pub rebuilds: Rebuilds,
}

pub(super) struct Work {
    host: HostName,
    pub(super) state: PathBuf,
    pub(super) sysfs: Arc<dyn Sysfs>,
    mig: Arc<dyn MigDriver>,
    /// The cards in MIG mode as last read; `None` before the first successful read.
    mig_cards: Mutex<Option<Vec<MigCard>>>,
    pub(super) hypervisor: Arc<dyn Hypervisor>,
    pub(super) connections: Connections,
    pub(super) volumes: Arc<dyn Volumes>,
    pub(super) metadata: Memory,
    pub(super) notes: Notes,
    pub(super) order_log: OrderLog,
    pub(super) removals: Removals,
    pub(super) rebuilds: Rebuilds,
    pub(super) link: Arc<Link>,
    pub(super) soft_reboot: Duration,
    permits: Semaphore,
    /// Locked shared while a kernel object is created or removed, and exclusively while the devices
    /// are scanned.
    devices: Arc<RwLock<()>>,
    names: Arc<TypeNames>,
    /// Servers with notes but without a document.
    undocumented_notes: Mutex<HashSet<ServerId>>,
    /// Servers with domains but without a document.
    undocumented_domains: Mutex<HashSet<ServerId>>,
    /// Servers that this process has not checked yet.
    unchecked: Mutex<HashSet<ServerId>>,
    pub(super) machine_types: MachineTypes,
}

impl Work {
    pub(super) fn new(parts: &Parts, records: Records, link: Arc<Link>) -> Self {
        let Records { notes, order_log, removals, rebuilds } = records;
        Self {
            host: parts.registration.host.clone(),
            state: parts.state.clone(),
            sysfs: Arc::clone(&parts.sysfs),
            mig: Arc::clone(&parts.mig),
            mig_cards: Mutex::default(),
            hypervisor: Arc::clone(&parts.hypervisor),
            connections: Connections::new(
                parts.registration.host.clone(),
                Arc::clone(&parts.network),
                parts.settings.network_look,
            ),
            volumes: Arc::clone(&parts.volumes),
            metadata: Memory::new(Arc::clone(&parts.settings.metadata)),
            notes,
            order_log,
            removals,
            rebuilds,
            link,
            soft_reboot: parts.settings.soft_reboot,
            permits: Semaphore::new(parts.settings.concurrency.max(1)),
            devices: Arc::default(),
            names: Arc::new(TypeNames::open(parts.state.join("vgpu_types"))),
            undocumented_notes: Mutex::default(),
            undocumented_domains: Mutex::default(),
            unchecked: Mutex::default(),
            machine_types: MachineTypes::default(),
        }
    }

    pub(super) fn host(&self) -> &HostName {
        &self.host
    }

    /// Reconciles the host with the document, until a newer one arrives.
    pub(super) async fn carry_out(
        &self,
        document: &Document,
        newest: &watch::Receiver<Arc<Document>>,
        say: &(dyn Fn(Phase) + Send + Sync),
    ) -> Result<Applied, Halt> {
        if matches!(document.desired, Desired::Present(_)) {
            self.wait_for_orders(document.server, newest).await?;
        }
        let Ok(_permit) = self.permits.acquire().await else { return Err(Halt::Superseded) };
        let turn = Turn { generation: document.generation, newest, say };
        turn.current()?;
        match &document.desired {
            Desired::Present(domain) => self.present(document.server, domain, &turn).await,
            Desired::Absent => {
                self.remove(document.server, document.generation).await.map(Applied::of)
            }
        }
    }

    /// Waits for the device orders that the server depends on.
    async fn wait_for_orders(
        &self,
        server: ServerId,
        newest: &watch::Receiver<Arc<Document>>,
    ) -> Result<(), Halt> {
        let (mut turned, mut newer) = (self.order_log.turned(), newest.clone());
        loop {
            match self.order_log.verdict(server) {
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

    /// Records that the server has a document.
    pub(super) fn mark_documented(&self, server: ServerId) {
        self.undocumented_notes().remove(&server);
        lock(&self.undocumented_domains).remove(&server);
    }

    /// Records the domains without a document.
    pub(super) fn set_undocumented_domains(&self, domains: &[Observation]) {
        *lock(&self.undocumented_domains) = domains.iter().map(|domain| domain.server).collect();
    }

    pub(super) fn undocumented_domains(&self) -> Vec<ServerId> {
        lock(&self.undocumented_domains).iter().copied().collect()
    }

    /// Records that this process has checked none of the batch's servers yet.
    pub(super) fn set_unchecked(&self, batch: &Batch) {
        let documented = batch.documents.iter().map(|document| document.server);
        *lock(&self.unchecked) = documented.chain(batch.held.iter().copied()).collect();
    }

    /// True on the first call for a server that this process had not checked yet.
    pub(super) fn is_first_check(&self, server: ServerId) -> bool {
        lock(&self.unchecked).remove(&server)
    }

    /// Records that the server has notes but no document.
    pub(super) fn mark_undocumented(&self, server: ServerId) {
        self.undocumented_notes().insert(server);
    }

    fn undocumented_notes(&self) -> MutexGuard<'_, HashSet<ServerId>> {
        lock(&self.undocumented_notes)
    }

    /// Scans the devices of the host while no kernel object is being created or removed.
    pub(super) async fn scan(
        &self,
        discovery: Arc<Discovery>,
        watch: Arc<Watch>,
    ) -> Result<Found, kilonova_devices::Error> {
        let alone = Arc::clone(&self.devices).write_owned().await;
        let made = self.notes.made(&self.undocumented_notes());
        let (sysfs, names) = (Arc::clone(&self.sysfs), Arc::clone(&self.names));
        let cards = self.read_mig_cards(&discovery).await?;
        blocking(move || {
            let _alone = alone;
            let mdevs: HashSet<Uuid> = made.iter().filter_map(KernelObject::mdev).collect();
            let is_ours = |uuid| mdevs.contains(&uuid);
            let is_made = |object: &KernelObject| made.contains(object);
            let context = ScanContext {
                watch: Some(&watch),
                names: Some(&names),
                mig: Some(MigScan { cards: &cards, is_ours: &is_made }),
            };
            discovery.scan_with(&*sysfs, &is_ours, context)
        })
        .await
    }

    /// Reads the cards in MIG mode, if the agent manages their GPU instances. A card that can no longer be read keeps
    /// its last state, because its guests must stay managed. Fails if the cards have never been read: the scan would
    /// take a card in MIG mode for an ordinary one.
    async fn read_mig_cards(
        &self,
        discovery: &Discovery,
    ) -> Result<Vec<MigCard>, kilonova_devices::Error> {
        if !discovery.mdev.manages_instances() {
            return Ok(Vec::new());
        }
        let mig = Arc::clone(&self.mig);
        let read = blocking(move || mig.cards()).await;
        let mut last = self.mig_cards.lock().unwrap_or_else(PoisonError::into_inner);
        match (read, &*last) {
            (Ok(mut cards), _) => {
                for card in &mut cards {
                    let Some(why) = &card.unreadable else { continue };
                    let mut known = last.iter().flatten();
                    let known = known.find(|one| one.address == card.address);
                    if let Some(known) = known.filter(|known| known.unreadable.is_none()) {
                        tracing::warn!(
                            host = %self.host, card = %card.address, %why,
                            "could not read a card in MIG mode; keeping its last state"
                        );
                        *card = known.clone();
                    }
                }
                Ok(last.insert(cards).clone())
            }
            (Err(error), Some(cards)) => {
                tracing::warn!(host = %self.host, %error, "could not read the cards in MIG mode; keeping their last state");
                Ok(cards.clone())
            }
            (Err(error), None) => Err(error),
        }
    }

    /// The cards in MIG mode as last read.
    pub(super) fn mig_cards(&self) -> Vec<MigCard> {
        let last = self.mig_cards.lock().unwrap_or_else(PoisonError::into_inner);
        last.clone().unwrap_or_default()
    }

    /// Creates a kernel object for a guest, unless it exists.
    pub(super) async fn make(&self, made: KernelObject) -> Result<(), String> {
        let shared = Arc::clone(&self.devices).read_owned().await;
        let (sysfs, mig) = (Arc::clone(&self.sysfs), Arc::clone(&self.mig));
        if let (KernelObject::Mdev(mdev), Some(mdevs)) = (&made, self.hypervisor.mdevs()) {
            let Mdev { uuid, parent, mdev_type } = mdev.clone();
            blocking(move || made.check(&*sysfs)).await.map_err(text)?;
            let result = mdevs.create(uuid, &parent, &mdev_type).await.map_err(text);
            drop(shared);
            return result;
        }
        blocking(move || {
            let _shared = shared;
            made.make(&*sysfs, &*mig)
        })
        .await
        .map_err(text)
    }

    /// Removes a kernel object of a server, if it exists and matches. An object that has been recreated for another
    /// server stays.
    pub(super) async fn unmake(&self, server: ServerId, made: KernelObject) -> Result<(), String> {
        let shared = Arc::clone(&self.devices).read_owned().await;
        if self.notes.names_elsewhere(server, &made) {
            return Ok(());
        }
        if let (KernelObject::Mdev(Mdev { uuid, parent, mdev_type }), Some(mdevs)) =
            (&made, self.hypervisor.mdevs())
        {
            mdevs.remove(*uuid, parent, mdev_type).await.map_err(text)?;
        }
        let (sysfs, mig) = (Arc::clone(&self.sysfs), Arc::clone(&self.mig));
        blocking(move || {
            let _shared = shared;
            made.unmake(&*sysfs, &*mig)
        })
        .await
        .map_err(text)
    }

    /// Waits until running kernel operations have ended.
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

/// Runs a step that may block in the kernel.
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

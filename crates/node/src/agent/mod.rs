//! The agent of one host: registers, recovers, then follows the documents until told to stop.
//!
//! Owns the order of things. It must never act on a document that is not the newest of its server,
//! and never report what it has not done. It can be dropped at any await and started again on the
//! same state: every document is looked at afresh.

mod answers;
mod book;
mod connections;
mod inventory;
mod link;
mod make;
mod notes;
mod once;
mod orders;
mod recovery;
mod simulate;
mod sync;
mod work;
mod workers;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kilonova_devices::{Discovery, Sysfs, Watch};
use kilonova_hypervisor::Hypervisor;
use kilonova_ids::ServerId;
use kilonova_node_api::{Batch, Carried, ControlPlane, Desired, Observation, Registration};
use tokio::sync::{Semaphore, mpsc, watch};

use crate::Error;
use crate::network::Network;
use crate::tools::Tools;
use book::Book;
use inventory::Inventory;
use link::{Link, Stop};
use notes::Notes;
use orders::Orders;
use work::Work;
use workers::Workers;

/// Between two questions of a host for which there has never been a document.
const EMPTY_PAUSE: Duration = Duration::from_millis(100);

/// Before a new start of a node whose host could not be read.
const TROUBLE_PAUSE: Duration = Duration::from_secs(5);

/// What a node is made of. Real and simulated hosts differ only in this.
#[derive(Clone)]
pub struct Parts {
    /// What the host says of itself; devices and hypervisor are filled in by the agent.
    pub registration: Registration,
    /// What to look for in sysfs.
    pub discovery: Arc<Discovery>,
    /// The host's sysfs.
    pub sysfs: Arc<dyn Sysfs>,
    /// The host's hypervisor.
    pub hypervisor: Arc<dyn Hypervisor>,
    /// What changes the host's devices.
    pub tools: Arc<dyn Tools>,
    /// What plugs the guests into networks.
    pub network: Arc<dyn Network>,
    /// Folder for what the agent must remember.
    pub state: PathBuf,
    /// How it works.
    pub settings: Settings,
}

/// How an agent works.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Servers that are worked on at once.
    pub concurrency: usize,
    /// How often the devices are looked at again.
    pub rescan: Duration,
    /// How often guests are looked at that may have changed by themselves; never without.
    pub power_sync: Option<Duration>,
    /// How long a guest may take to restart by itself.
    pub soft_reboot: Duration,
    /// How often the host's networks are looked at, where guests are on them.
    pub network_look: Duration,
    /// Nodes that share it start so many at once: a process with a thousand simulated hosts then
    /// does not hold what they all say of themselves at the same time.
    pub starts: Arc<Semaphore>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrency: 10,
            rescan: Duration::from_secs(60),
            power_sync: Some(Duration::from_secs(600)),
            soft_reboot: Duration::from_secs(120),
            network_look: Duration::from_secs(10),
            starts: Arc::new(Semaphore::new(1)),
        }
    }
}

/// A node, ready to run.
pub struct Node {
    parts: Parts,
    notes: Notes,
    book: Book,
    watch: Arc<Watch>,
}

impl Node {
    /// A node of the given parts, with what an earlier run noted in the state folder.
    pub fn new(parts: Parts) -> Result<Self, Error> {
        let state = |source| Error::State { folder: parts.state.clone(), source };
        let notes = Notes::open(parts.state.join("notes")).map_err(state)?;
        let book = Book::open(parts.state.join("orders")).map_err(state)?;
        let kept = Some(parts.state.join("health"));
        let watch = Arc::new(Watch::open(&parts.discovery.health, kept, &boot()));
        Ok(Self { parts, notes, book, watch })
    }

    /// What it is made of.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// The same node, which follows the health of its devices in its own way.
    pub(crate) fn watching(mut self, watch: Watch) -> Self {
        self.watch = Arc::new(watch);
        self
    }

    /// The same node, which looks so often at guests that may have changed by themselves.
    pub fn syncing_power(mut self, every: Option<Duration>) -> Self {
        self.parts.settings.power_sync = every;
        self
    }

    /// The same node, which starts when it is its turn.
    pub fn starting_with(mut self, starts: Arc<Semaphore>) -> Self {
        self.parts.settings.starts = starts;
        self
    }

    /// Works until `shutdown` turns true (or its sender is gone), another process registers for the
    /// host, or the control plane refuses the host.
    ///
    /// What it waits in is small, as a process may hold a thousand: what is rare is boxed.
    pub fn run(
        self,
        control: Arc<dyn ControlPlane>,
        mut shutdown: watch::Receiver<bool>,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        let link = Arc::new(Link::new(control, self.parts.registration.host.clone()));
        let work = Arc::new(Work::new(&self.parts, self.notes, self.book, Arc::clone(&link)));
        let tools = Arc::clone(&self.parts.tools);
        let inventory = Inventory::new(self.parts, Arc::clone(&work), self.watch);
        let (begun, synced) = (AtomicBool::new(false), Mutex::new(Instant::now()));
        let agent = Box::new(Agent { inventory, link, work, tools, begun, synced });
        async move {
            let result = tokio::select! {
                biased;
                _ = shutdown.wait_for(|stop| *stop) => Ok(()),
                error = agent.follow() => Err(error),
            };
            agent.work.settle().await;
            match &result {
                Ok(()) => tracing::info!(host = agent.link.host(), "the node has stopped"),
                Err(error) => {
                    tracing::error!(host = agent.link.host(), %error, "the node has stopped");
                }
            }
            result
        }
    }
}

/// Which start of the host this is.
fn boot() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    read.unwrap_or_default().trim().to_owned()
}

struct Agent {
    inventory: Inventory,
    link: Arc<Link>,
    work: Arc<Work>,
    tools: Arc<dyn Tools>,
    /// Whether this process has begun to follow the documents.
    begun: AtomicBool,
    /// When guests were last looked at that may have changed by themselves.
    synced: Mutex<Instant>,
}

impl Agent {
    async fn follow(&self) -> Error {
        let (workers, reports) = Workers::new(Arc::clone(&self.work));
        let mut workers = Box::new(workers);
        let (work, link) = (Arc::clone(&self.work), Arc::clone(&self.link));
        let mut orders = Box::new(Orders::new(work, link, Arc::clone(&self.tools)));
        tokio::select! {
            stop = Box::pin(self.beside(reports)) => self.stopped(stop),
            error = self.poll(&mut workers, &mut orders) => error,
        }
    }

    /// Says what was seen, and looks after the host's networks.
    async fn beside(&self, reports: mpsc::Receiver<Box<Observation>>) -> Stop {
        tokio::select! {
            stop = self.link.report(reports) => stop,
            never = self.work.connections.follow() => match never {},
        }
    }

    async fn poll(&self, workers: &mut Workers, orders: &mut Orders) -> Error {
        loop {
            match self.round(workers, orders).await {
                Ok(()) => Box::pin(self.link.pause()).await,
                Err(error) if matches!(*error, Error::Fenced { .. } | Error::Rejected { .. }) => {
                    return *error;
                }
                Err(error) => {
                    tracing::error!(host = self.link.host(), %error, "the node starts over");
                    Box::pin(tokio::time::sleep(TROUBLE_PAUSE)).await;
                }
            }
        }
    }

    /// Registers, recovers and follows the documents until the control plane no longer knows the
    /// registration.
    async fn round(&self, workers: &mut Workers, orders: &mut Orders) -> Result<(), Box<Error>> {
        let begun = Box::pin(self.begin(workers, orders)).await?;
        let Some(mut since) = begun else { return Ok(()) };
        let mut scanned = Instant::now();
        loop {
            if since == 0 {
                // Asking for everything is answered at once, so an empty host must not ask in a rush.
                Box::pin(tokio::time::sleep(EMPTY_PAUSE)).await;
            }
            let batch = tokio::select! {
                biased;
                carried = orders.ended() => {
                    Box::pin(self.say(carried)).await?;
                    continue;
                }
                () = Box::pin(self.time_to_sync()) => {
                    Box::pin(self.sync(workers)).await;
                    continue;
                }
                Ok(server) = self.work.hypervisor.changed() => {
                    Box::pin(self.look_again(workers, server)).await;
                    continue;
                }
                () = self.inventory.news() => {
                    Box::pin(self.tell_changes()).await?;
                    continue;
                }
                batch = self.batch(since) => batch?,
            };
            let Some(batch) = batch else { return Ok(()) };
            since = since.max(self.take_in(*batch, workers, orders));
            if scanned.elapsed() >= self.inventory.rescan() {
                scanned = Instant::now();
                Box::pin(self.tell_changes()).await?;
            }
        }
    }

    async fn time_to_sync(&self) {
        let since = *self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        match self.inventory.power_sync() {
            Some(pause) => tokio::time::sleep_until((since + pause).into()).await,
            None => std::future::pending().await,
        }
    }

    async fn sync(&self, workers: &Workers) {
        let begun = Instant::now();
        *self.synced.lock().unwrap_or_else(PoisonError::into_inner) = begun;
        let seen = sync::look(&self.work, workers).await;
        let (changed, took_us) = (seen.len(), begun.elapsed().as_secs_f64() * 1e6);
        tracing::debug!(host = self.work.host(), changed, took_us, "looked at all guests");
        for seen in seen {
            workers.report(seen).await;
        }
    }

    /// Tells of a guest that may have changed by itself.
    async fn look_again(&self, workers: &Workers, server: ServerId) {
        if let Some(seen) = sync::look_again(&self.work, workers, server).await {
            workers.report(seen).await;
        }
    }

    /// Hands out what there is to do and returns how new it is.
    fn take_in(&self, batch: Batch, workers: &mut Workers, orders: &mut Orders) -> i64 {
        if let Some(filters) = batch.filters {
            self.work.connections.filter(*filters);
        }
        for order in batch.orders {
            orders.dispatch(order);
        }
        for document in batch.documents {
            workers.dispatch(document);
        }
        answers::answer(&self.work, batch.questions);
        batch.generation
    }

    /// Registers, takes in all documents and clears what none of them names. Returns the newest
    /// generation.
    async fn begin(
        &self,
        workers: &mut Workers,
        orders: &mut Orders,
    ) -> Result<Option<i64>, Error> {
        let turn = self.inventory.turn().await;
        for doubt in self.inventory.doubts().await? {
            tracing::warn!(host = self.link.host(), "{doubt}");
        }
        let registration = self.inventory.first().await?;
        self.link.register(registration).await.map_err(|stop| self.stopped(stop))?;
        let batch = self.batch(0).await.map_err(|error| *error)?;
        let Some(batch) = batch.map(|batch| *batch) else { return Ok(None) };
        if !self.begun.swap(true, Ordering::Relaxed) {
            self.work.unseen_are(&batch.documents);
        }
        self.work.connections.begin(&batch);
        for stray in recovery::recover(&self.work, &batch).await? {
            workers.report(stray).await;
        }
        self.work.connections.look().await;
        let generation = batch.generation;
        for order in batch.orders {
            orders.dispatch(order);
        }
        let (gone, there): (Vec<_>, Vec<_>) =
            batch.documents.into_iter().partition(|one| one.desired == Desired::Absent);
        answers::answer(&self.work, batch.questions);
        // What has to go goes first: the others may need its room.
        for document in gone.into_iter().chain(there) {
            workers.dispatch(document);
        }
        self.tell_changes().await?;
        drop(turn);
        Ok(Some(generation))
    }

    /// The documents newer than `since`; `None` if the control plane no longer knows this node.
    async fn batch(&self, since: i64) -> Result<Option<Box<Batch>>, Box<Error>> {
        match self.link.desired(since).await {
            Ok(batch) => Ok(Some(batch)),
            Err(Stop::Rejected(why)) => {
                tracing::warn!(host = self.link.host(), %why, "the control plane no longer knows this node; it registers again");
                Ok(None)
            }
            Err(stop) => Err(Box::new(self.stopped(stop))),
        }
    }

    /// Tells how the devices are after an order, then what came of it: whoever hears of it finds them
    /// as it left them.
    async fn say(&self, carried: Carried) -> Result<(), Error> {
        self.tell_changes().await?;
        self.link.carried_out(carried).await.map_err(|stop| self.stopped(stop))
    }

    async fn tell_changes(&self) -> Result<(), Error> {
        match self.inventory.changed().await? {
            None => Ok(()),
            Some(registration) => {
                self.link.register(registration).await.map_err(|stop| self.stopped(stop))
            }
        }
    }

    fn stopped(&self, stop: Stop) -> Error {
        let host = self.link.host().to_owned();
        match stop {
            Stop::Fenced => Error::Fenced { host },
            Stop::Rejected(why) => Error::Rejected { host, why },
        }
    }
}

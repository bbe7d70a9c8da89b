//! The agent of one host: registers, recovers, then follows the documents until it is stopped.
//!
//! Owns the order of operations. It must never act on an outdated document, and never report work
//! that it has not done. It can be dropped at any await and restarted on the same state, because it
//! checks every document against the host again.

mod answers;
mod connections;
mod consoles;
mod inventory;
mod kept_lines;
mod link;
mod machine_types;
mod metadata;
mod notes;
mod order_log;
mod orders;
mod rebuilds;
mod reconcile;
mod recovery;
mod removals;
mod simulate;
mod sync;
mod verbs;
mod volumes;
mod work;
mod workers;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kilonova_devices::{CellOptions, Discovery, MigDriver, Sysfs, Watch};
use kilonova_hypervisor::Hypervisor;
use kilonova_ids::ServerId;
use kilonova_node_api::{Batch, ControlPlane, Desired, Observation, OrderResult, Registration};
use tokio::sync::{Semaphore, mpsc, watch};

use crate::Error;
use crate::metadata::MetadataSettings;
use crate::network::Network;
use crate::tools::Tools;
use crate::volumes::Volumes;
use consoles::Consoles;
use inventory::Inventory;
use link::{Link, Stop};
use notes::Notes;
use order_log::OrderLog;
use orders::Orders;
use rebuilds::Rebuilds;
use removals::Removals;
use work::{Records, Work};
use workers::Workers;

/// Polling interval of a host that has never had a document.
const EMPTY_PAUSE: Duration = Duration::from_millis(100);

/// Delay before the agent restarts its session after an error.
const RESTART_DELAY: Duration = Duration::from_secs(5);

/// The components of an agent. Real and simulated hosts differ only in these.
#[derive(Clone)]
pub struct Parts {
    /// The host's description; the agent fills in devices and hypervisor.
    pub registration: Registration,
    /// The devices to look for in sysfs.
    pub discovery: Arc<Discovery>,
    /// The host's sysfs.
    pub sysfs: Arc<dyn Sysfs>,
    /// The driver of GPU instances.
    pub mig: Arc<dyn MigDriver>,
    /// The host's hypervisor.
    pub hypervisor: Arc<dyn Hypervisor>,
    /// The tools that program and clean devices.
    pub tools: Arc<dyn Tools>,
    /// The implementation of the host's networks.
    pub network: Arc<dyn Network>,
    /// The volumes of the host's guests.
    pub volumes: Arc<dyn Volumes>,
    /// The agent's state directory.
    pub state: PathBuf,
    /// The agent's settings.
    pub settings: Settings,
}

/// Settings of an agent.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Number of servers reconciled concurrently.
    pub concurrency: usize,
    /// Interval of device scans.
    pub rescan: Duration,
    /// Interval of checks for guests whose state changed without a document; no checks if `None`.
    pub power_sync: Option<Duration>,
    /// How long a guest may take for a soft reboot.
    pub soft_reboot: Duration,
    /// Interval of network checks while guests use networks.
    pub network_look: Duration,
    /// Limits the concurrent starts of the agents that share it, so that a process with a thousand
    /// simulated hosts never holds all their registrations at the same time.
    pub starts: Arc<Semaphore>,
    /// The metadata service.
    pub metadata: Arc<MetadataSettings>,
    /// The options for the CPUs and memory pages that the agent reads from sysfs. If `None`, the agent
    /// registers the cells in [`Parts::registration`] instead.
    pub cells: Option<CellOptions>,
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
            metadata: Arc::default(),
            cells: None,
        }
    }
}

/// An agent, ready to run.
pub struct Node {
    parts: Parts,
    notes: Notes,
    order_log: OrderLog,
    removals: Removals,
    rebuilds: Rebuilds,
    watch: Arc<Watch>,
}

impl Node {
    /// An agent with these components and the state that an earlier run left.
    pub fn new(parts: Parts) -> Result<Self, Error> {
        let state = |source| Error::State { folder: parts.state.clone(), source };
        let notes = Notes::open(parts.state.join("notes")).map_err(state)?;
        let order_log = OrderLog::open(parts.state.join("orders")).map_err(state)?;
        let removals = Removals::open(parts.state.join("removed")).map_err(state)?;
        let rebuilds = Rebuilds::open(parts.state.join("rebuilds")).map_err(state)?;
        let kept = Some(parts.state.join("health"));
        let watch = Arc::new(Watch::open(&parts.discovery.health, kept, &boot()));
        Ok(Self { parts, notes, order_log, removals, rebuilds, watch })
    }

    /// Its components.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Replaces the health watch.
    pub(crate) fn watching(mut self, watch: Watch) -> Self {
        self.watch = Arc::new(watch);
        self
    }

    /// Sets the interval of checks for guests whose state changed without a document.
    pub fn syncing_power(mut self, every: Option<Duration>) -> Self {
        self.parts.settings.power_sync = every;
        self
    }

    /// Sets the interval of device scans.
    pub fn rescanning(mut self, every: Duration) -> Self {
        self.parts.settings.rescan = every;
        self
    }

    /// Sets the limit of concurrent starts.
    pub fn starting_with(mut self, starts: Arc<Semaphore>) -> Self {
        self.parts.settings.starts = starts;
        self
    }

    /// Runs until `shutdown` turns true (or its sender is dropped), another process registers for
    /// the host, or the controller refuses the host.
    ///
    /// Rare paths are boxed to keep the future small: a process may run a thousand simulated hosts.
    pub fn run(
        self,
        control: Arc<dyn ControlPlane>,
        mut shutdown: watch::Receiver<bool>,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        let link = Arc::new(Link::new(control, self.parts.registration.host.clone()));
        let records = Records {
            notes: self.notes,
            order_log: self.order_log,
            removals: self.removals,
            rebuilds: self.rebuilds,
        };
        let work = Arc::new(Work::new(&self.parts, records, Arc::clone(&link)));
        let asked = self.parts.network.serve_metadata(metadata::Guests::of(&work));
        let tools = Arc::clone(&self.parts.tools);
        let inventory = Inventory::new(self.parts, Arc::clone(&work), self.watch);
        let (started, synced) = (AtomicBool::new(false), Mutex::new(Instant::now()));
        let consoles = Consoles::default();
        let agent = Box::new(Agent { inventory, link, work, tools, consoles, started, synced });
        async move {
            if asked {
                Box::pin(metadata::resume(&agent.work)).await;
            }
            let result = tokio::select! {
                biased;
                _ = shutdown.wait_for(|stop| *stop) => Ok(()),
                error = agent.follow() => Err(error),
            };
            agent.work.settle().await;
            match &result {
                Ok(()) => tracing::info!(host = %agent.link.host(), "the agent has stopped"),
                Err(error) => {
                    tracing::error!(host = %agent.link.host(), %error, "the agent has stopped");
                }
            }
            result
        }
    }
}

/// The boot id of the host.
fn boot() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    read.unwrap_or_default().trim().to_owned()
}

struct Agent {
    inventory: Inventory,
    link: Arc<Link>,
    work: Arc<Work>,
    tools: Arc<dyn Tools>,
    consoles: Consoles,
    /// True if this process has started to follow documents.
    started: AtomicBool,
    /// When the agent last checked for guests whose state changed without a document.
    synced: Mutex<Instant>,
}

impl Agent {
    async fn follow(&self) -> Error {
        let (workers, reports) = Workers::new(Arc::clone(&self.work));
        let mut workers = Box::new(workers);
        let (work, link) = (Arc::clone(&self.work), Arc::clone(&self.link));
        let mut orders = Box::new(Orders::new(work, link, Arc::clone(&self.tools)));
        tokio::select! {
            stop = Box::pin(self.report_and_maintain(reports)) => self.stopped(stop),
            error = self.poll(&mut workers, &mut orders) => error,
        }
    }

    /// Reports observations, maintains the host's networks and scans the host.
    async fn report_and_maintain(&self, reports: mpsc::Receiver<Box<Observation>>) -> Stop {
        tokio::select! {
            stop = self.link.report(reports) => stop,
            never = self.work.connections.follow() => match never {},
            never = self.inventory.scan_periodically() => match never {},
        }
    }

    async fn poll(&self, workers: &mut Workers, orders: &mut Orders) -> Error {
        loop {
            match self.run_registered(workers, orders).await {
                Ok(()) => Box::pin(self.link.pause()).await,
                Err(error) if matches!(*error, Error::Fenced { .. } | Error::Rejected { .. }) => {
                    return *error;
                }
                Err(error) => {
                    tracing::error!(host = %self.link.host(), %error, "the session of the agent failed; starting a new one");
                    Box::pin(tokio::time::sleep(RESTART_DELAY)).await;
                }
            }
        }
    }

    /// Registers, recovers, and follows the documents until the controller no longer accepts the
    /// registration.
    async fn run_registered(
        &self,
        workers: &mut Workers,
        orders: &mut Orders,
    ) -> Result<(), Box<Error>> {
        let started = Box::pin(self.begin(workers, orders)).await?;
        let Some(mut since) = started else { return Ok(()) };
        loop {
            if since == 0 {
                // The controller answers a request for all documents immediately, so a host
                // without documents must pause.
                Box::pin(tokio::time::sleep(EMPTY_PAUSE)).await;
            }
            let batch = tokio::select! {
                biased;
                carried = orders.ended() => {
                    Box::pin(self.report_order(carried)).await?;
                    continue;
                }
                () = Box::pin(self.time_to_sync()) => {
                    Box::pin(self.sync(workers)).await;
                    continue;
                }
                Ok(server) = self.work.hypervisor.changed() => {
                    Box::pin(self.check_guest(workers, server)).await;
                    continue;
                }
                () = self.inventory.wait_for_events() => {
                    Box::pin(self.register_changes()).await?;
                    continue;
                }
                () = Box::pin(self.inventory.time_to_register_again()) => {
                    Box::pin(self.register_changes()).await?;
                    continue;
                }
                batch = self.batch(since) => batch?,
            };
            let Some(batch) = batch else { return Ok(()) };
            since = since.max(self.dispatch(*batch, workers, orders));
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
        let started = Instant::now();
        *self.synced.lock().unwrap_or_else(PoisonError::into_inner) = started;
        let seen = sync::check_all(&self.work, workers).await;
        let (changed, took_us) = (seen.len(), started.elapsed().as_secs_f64() * 1e6);
        tracing::debug!(host = %self.work.host(), changed, took_us, "checked all guests");
        for seen in seen {
            workers.report(seen).await;
        }
    }

    /// Reports a guest whose state may have changed without a document.
    async fn check_guest(&self, workers: &Workers, server: ServerId) {
        if let Some(seen) = sync::check_one(&self.work, workers, server).await {
            workers.report(seen).await;
        }
    }

    /// Dispatches a batch and returns its generation.
    fn dispatch(&self, batch: Batch, workers: &mut Workers, orders: &mut Orders) -> i64 {
        if let Some(filters) = batch.filters
            && self.work.connections.filter(*filters)
        {
            self.work.metadata.forget_all();
        }
        if let Some(routers) = batch.routers {
            self.work.connections.route(routers);
        }
        for order in batch.orders {
            orders.dispatch(order);
        }
        for document in batch.documents {
            workers.dispatch(document, batch.complete);
        }
        answers::answer(&self.work, batch.questions);
        self.consoles.answer(&self.work, batch.consoles);
        batch.generation
    }

    /// Registers, recovers (see [`recovery`]), and dispatches all documents. Returns the generation of
    /// the batch; `None` if the controller no longer knows this host.
    async fn begin(
        &self,
        workers: &mut Workers,
        orders: &mut Orders,
    ) -> Result<Option<i64>, Error> {
        let turn = self.inventory.turn().await;
        let registration = self.inventory.first().await?;
        for warning in self.inventory.ineffective_options().await? {
            tracing::warn!(host = %self.link.host(), "{warning}");
        }
        self.register(registration).await?;
        let batch = self.batch(0).await.map_err(|error| *error)?;
        let Some(batch) = batch.map(|batch| *batch) else { return Ok(None) };
        if !self.started.swap(true, Ordering::Relaxed) {
            self.work.set_unchecked(&batch);
        }
        self.work.connections.begin(&batch);
        self.work.metadata.forget_all();
        for stray in recovery::recover(&self.work, &batch).await? {
            workers.report(stray).await;
        }
        self.work.connections.reconcile().await;
        let generation = batch.generation;
        for order in batch.orders {
            orders.dispatch(order);
        }
        let (gone, there): (Vec<_>, Vec<_>) =
            batch.documents.into_iter().partition(|one| one.desired == Desired::Absent);
        answers::answer(&self.work, batch.questions);
        self.consoles.answer(&self.work, batch.consoles);
        // Removals come first: the other servers may need the space.
        for document in gone.into_iter().chain(there) {
            workers.dispatch(document, true);
        }
        self.register_changes().await?;
        drop(turn);
        Ok(Some(generation))
    }

    /// The documents newer than `since`; `None` if the controller no longer knows this host.
    async fn batch(&self, since: i64) -> Result<Option<Box<Batch>>, Box<Error>> {
        match self.link.desired(since).await {
            Ok(batch) => {
                if batch.register {
                    self.inventory.request();
                }
                Ok(Some(batch))
            }
            Err(Stop::Rejected(why)) => {
                tracing::warn!(host = %self.link.host(), %why, "the controller no longer knows this host; registering again");
                Ok(None)
            }
            Err(stop) => Err(Box::new(self.stopped(stop))),
        }
    }

    /// Registers the state of the devices after an order, then reports the order's result, so that
    /// the controller receives the new state first.
    async fn report_order(&self, carried: OrderResult) -> Result<(), Error> {
        self.register_changes().await?;
        self.link.report_orders(carried).await.map_err(|stop| self.stopped(stop))
    }

    async fn register_changes(&self) -> Result<(), Error> {
        match self.inventory.changed().await? {
            None => Ok(()),
            Some(registration) => self.register(registration).await,
        }
    }

    async fn register(&self, registration: Registration) -> Result<(), Error> {
        let session = self.link.register(registration).await.map_err(|stop| self.stopped(stop))?;
        self.inventory.registered(session);
        Ok(())
    }

    fn stopped(&self, stop: Stop) -> Error {
        let host = self.link.host().clone();
        match stop {
            Stop::Fenced => Error::Fenced { host },
            Stop::Rejected(why) => Error::Rejected { host, why },
        }
    }
}

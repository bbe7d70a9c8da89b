//! The agent of one host: registers, recovers, then follows the documents until told to stop.
//!
//! Owns the order of things. It must never act on a document that is not the newest of its server,
//! and never report what it has not done. It can be dropped at any await and started again on the
//! same state: every document is looked at afresh.

mod inventory;
mod link;
mod make;
mod notes;
mod recovery;
mod simulate;
mod work;
mod workers;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kilonova_devices::{Discovery, Sysfs};
use kilonova_hypervisor::Hypervisor;
use kilonova_node_api::{ControlPlane, Registration};
use tokio::sync::watch;

use crate::Error;
use inventory::Inventory;
use link::{Link, Stop};
use notes::Notes;
use work::Work;
use workers::Workers;

/// Between two questions of a host for which there has never been a document.
const EMPTY_PAUSE: Duration = Duration::from_millis(100);

/// What a node is made of. Real and simulated hosts differ only in this.
#[derive(Clone)]
pub struct Parts {
    /// What the host says of itself; devices and hypervisor are filled in by the agent.
    pub registration: Registration,
    /// What to look for in sysfs.
    pub discovery: Discovery,
    /// The host's sysfs.
    pub sysfs: Arc<dyn Sysfs>,
    /// The host's hypervisor.
    pub hypervisor: Arc<dyn Hypervisor>,
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
    /// How long a guest may take to restart by itself.
    pub soft_reboot: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrency: 10,
            rescan: Duration::from_secs(60),
            soft_reboot: Duration::from_secs(120),
        }
    }
}

/// A node, ready to run.
pub struct Node {
    parts: Parts,
    notes: Notes,
}

impl Node {
    /// A node of the given parts, with what an earlier run noted in the state folder.
    pub fn new(parts: Parts) -> Result<Self, Error> {
        let notes = Notes::open(parts.state.join("notes"))
            .map_err(|source| Error::State { folder: parts.state.clone(), source })?;
        Ok(Self { parts, notes })
    }

    /// What it is made of.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Works until `shutdown` turns true (or its sender is gone), another process registers for the
    /// host, or the control plane refuses the host.
    pub async fn run(
        self,
        control: Arc<dyn ControlPlane>,
        mut shutdown: watch::Receiver<bool>,
    ) -> Result<(), Error> {
        let host = self.parts.registration.host.clone();
        let link = Arc::new(Link::new(control, host.clone()));
        let work = Arc::new(Work::new(&self.parts, self.notes));
        let inventory = Inventory::new(self.parts, Arc::clone(&work));
        let result = tokio::select! {
            biased;
            _ = shutdown.wait_for(|stop| *stop) => Ok(()),
            error = follow(inventory, &link, &work) => Err(error),
        };
        work.settle().await;
        match &result {
            Ok(()) => tracing::info!(%host, "the node has stopped"),
            Err(error) => tracing::error!(%host, %error, "the node has stopped"),
        }
        result
    }
}

async fn follow(mut inventory: Inventory, link: &Arc<Link>, work: &Arc<Work>) -> Error {
    let (mut workers, reports) = Workers::new(Arc::clone(work));
    let host = link.host().to_owned();
    tokio::select! {
        stop = link.report(reports) => stopped(host, stop),
        error = poll(&mut inventory, link, work, &mut workers) => error,
    }
}

async fn poll(inventory: &mut Inventory, link: &Link, work: &Work, workers: &mut Workers) -> Error {
    loop {
        match round(inventory, link, work, workers).await {
            Ok(()) => {}
            Err(error) => return error,
        }
        link.pause().await;
    }
}

/// Registers, recovers and follows the documents until the control plane no longer knows the
/// registration.
async fn round(
    inventory: &mut Inventory,
    link: &Link,
    work: &Work,
    workers: &mut Workers,
) -> Result<(), Error> {
    let halt = |stop| stopped(link.host().to_owned(), stop);
    link.register(inventory.first().await?).await.map_err(halt)?;
    let mut since = 0;
    let mut scanned = Instant::now();
    loop {
        let batch = match link.desired(since).await {
            Ok(batch) => batch,
            Err(Stop::Rejected(why)) => {
                tracing::warn!(host = link.host(), %why, "the control plane no longer knows this node; it registers again");
                return Ok(());
            }
            Err(stop) => return Err(halt(stop)),
        };
        let recovering = since == 0;
        if recovering {
            recovery::recover(work, &batch).await?;
        }
        since = since.max(batch.generation);
        if since == 0 {
            // Asking for everything is answered at once, so an empty host must not ask in a rush.
            tokio::time::sleep(EMPTY_PAUSE).await;
        }
        for document in batch.documents {
            workers.dispatch(document);
        }
        if recovering || scanned.elapsed() >= inventory.rescan() {
            scanned = Instant::now();
            if let Some(registration) = inventory.changed().await? {
                link.register(registration).await.map_err(halt)?;
            }
        }
    }
}

fn stopped(host: String, stop: Stop) -> Error {
    match stop {
        Stop::Fenced => Error::Fenced { host },
        Stop::Rejected(why) => Error::Rejected { host, why },
    }
}

//! The in-memory copy of all providers, which searches use.
//!
//! It is never ahead of the database: only hooks of committed transactions and loads from the
//! database write it. It may lag, which is safe because a claim checks again. On PostgreSQL the
//! hooks of two transactions may run in either order. Therefore every update is absolute and
//! versioned: a tree by the number of its entry in the change log, a provider's usage by the
//! provider's version.

mod follow;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use kilonova_changes::{ask_append_tree, number_of};
use kilonova_engine::{Snapshot, Tree};
use kilonova_ids::{ProviderId, ResourceClass};
use kilonova_store::{Error as StoreError, Tx};
use kilonova_wire::time;

pub use follow::Providers;

use crate::{Error, db};

/// Maximum number of trees that are remembered as changed by another controller. The limit exists because a
/// search skips all of these trees before it uses one of them. The oldest are forgotten first.
const MAX_FOREIGN: usize = 64;

/// The in-memory copy; a handle that is cheap to clone.
#[derive(Clone, Default)]
pub struct World(Arc<Inner>);

#[derive(Default)]
struct Inner {
    shown: ArcSwap<Shown>,
    writer: Mutex<Writer>,
    /// The number of rereads of trees that another controller had changed.
    reread: AtomicU64,
    /// Trees that another controller has changed recently, with the time at which this controller noticed.
    foreign: Mutex<HashMap<ProviderId, Instant>>,
}

/// The copy in two forms.
#[derive(Default)]
struct Shown {
    /// The trees as stored in the database.
    stored: Arc<Snapshot>,
    /// The trees with the NUMA cells of divided hosts folded into their roots; `None` if no host is divided.
    folded: Option<Arc<Snapshot>>,
}

#[derive(Default)]
struct Writer {
    /// By root: number of the last change-log entry applied. Removed roots stay in the map, so that
    /// a late hook does not restore them.
    entries: HashMap<ProviderId, i64>,
    /// The last entry at the time of the full load. Hooks for it or earlier entries are outdated.
    floor: i64,
    /// Our own entries that the copy includes, until the follower reaches them.
    own: HashSet<i64>,
    /// True if the copy follows the change log, which prunes `own`.
    followed: bool,
}

impl Writer {
    fn record_own_entry(&mut self, entry: i64) {
        if self.followed {
            self.own.insert(entry);
        }
    }
}

impl World {
    /// An empty copy.
    pub fn new() -> Self {
        Self::default()
    }

    /// The current snapshot, for host selection and for everything that counts the resources of hosts: a host whose
    /// NUMA cells are providers looks like one whose root offers their CPUs and memory.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        let shown = self.0.shown.load();
        Arc::clone(shown.folded.as_ref().unwrap_or(&shown.stored))
    }

    /// The current snapshot as stored in the database, for clients of the Placement API.
    pub fn stored(&self) -> Arc<Snapshot> {
        Arc::clone(&self.0.shown.load().stored)
    }

    /// The providers of a host's NUMA cells, if it offers its CPUs and memory through them; otherwise none.
    pub fn cells(&self, root: ProviderId) -> Vec<ProviderId> {
        let shown = self.0.shown.load();
        if shown.folded.is_none() { Vec::new() } else { shown.stored.cells(root) }
    }

    /// Publishes a changed snapshot. The caller has locked the writer.
    fn publish(&self, stored: Snapshot, changed: &[ProviderId]) {
        let before = self.0.shown.load();
        let folded = match &before.folded {
            Some(folded) => stored.folded(Some(folded), changed),
            None if changed.iter().any(|root| !stored.cells(*root).is_empty()) => {
                stored.folded(None, &[])
            }
            None => None,
        };
        let shown = Shown { stored: Arc::new(stored), folded: folded.map(Arc::new) };
        self.0.shown.store(Arc::new(shown));
    }

    /// A copy of the snapshot to change. The caller has locked the writer.
    fn copy(&self) -> Snapshot {
        Snapshot::clone(&self.0.shown.load().stored)
    }

    /// The number of rereads of trees that another controller had changed.
    pub fn reread(&self) -> u64 {
        self.0.reread.load(Ordering::Relaxed)
    }

    /// The roots of the trees that another controller has changed within this time. That controller probably continues
    /// to claim from them, so this copy may lag behind.
    pub fn foreign(&self, within: Duration) -> HashSet<ProviderId> {
        let foreign = self.0.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        let late = foreign.iter().filter(|(_, at)| at.elapsed() < within);
        late.map(|(root, _)| *root).collect()
    }

    /// Records that another controller has changed these trees.
    fn record_foreign(&self, roots: impl Iterator<Item = ProviderId>) {
        let now = Instant::now();
        let mut foreign = self.0.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        for root in roots {
            foreign.insert(root, now);
            if foreign.len() > MAX_FOREIGN {
                let oldest = foreign.iter().min_by_key(|(_, at)| **at).map(|(root, _)| *root);
                oldest.map(|root| foreign.remove(&root));
            }
        }
    }

    /// Logs a change to a tree, and applies it to the copy after the commit. Call this in the
    /// transaction that changed the tree, after its last write to the tree.
    pub(crate) fn tree_changed(&self, tx: &mut Tx<'_>, root: ProviderId) -> Result<(), Error> {
        db::providers::changed(tx, root)?;
        let entry = ask_append_tree(tx, &root.to_string(), time::now())?;
        let mut tree = db::trees::one(tx, root)?;
        let entry = number_of(&tx.answer(entry)?)
            .ok_or_else(|| StoreError::Shape("the entry of a tree has no number".into()))?;
        let world = self.clone();
        tx.on_commit(move || world.put(root, entry, tree.take()));
        Ok(())
    }

    /// Like [`World::tree_changed`], for a tree that this transaction has inserted as a whole.
    pub(crate) fn tree_added(
        &self,
        tx: &mut Tx<'_>,
        root: ProviderId,
        tree: Tree,
    ) -> Result<(), Error> {
        let asked = ask_append_tree(tx, &root.to_string(), time::now())?;
        let world = self.clone();
        tx.on_commit_with(asked, move |rows| {
            // Without an answer to the commit the number is unknown, and the follower applies the
            // entry.
            if let Some(entry) = number_of(&rows) {
                world.put(root, entry, Some(tree));
            }
        });
        Ok(())
    }

    pub(crate) fn set_usage(
        &self,
        provider: ProviderId,
        version: i64,
        used: &[(ResourceClass, i64)],
    ) {
        let writer = self.lock();
        let mut snapshot = self.copy();
        snapshot.set_usage(provider, version, used);
        let root = snapshot.root_of(provider);
        self.publish(snapshot, root.as_slice());
        drop(writer);
    }

    /// Records that the copy includes our own entry.
    pub(crate) fn record_own_entry(&self, entry: i64) {
        self.lock().record_own_entry(entry);
    }

    fn put(&self, root: ProviderId, entry: i64, tree: Option<Tree>) {
        let mut writer = self.lock();
        if entry <= writer.floor || writer.entries.get(&root).is_some_and(|shown| *shown > entry) {
            return;
        }
        writer.record_own_entry(entry);
        writer.entries.insert(root, entry);
        let mut snapshot = self.copy();
        match tree {
            Some(mut tree) => {
                keep_newer_usage(&snapshot, root, &mut tree);
                snapshot.upsert(tree);
            }
            None => snapshot.remove(root),
        }
        self.publish(snapshot, &[root]);
        drop(writer);
    }

    fn lock(&self) -> MutexGuard<'_, Writer> {
        self.0.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps usage that is newer than the tree: a claim that committed after the tree was read may have published its usage
/// already.
fn keep_newer_usage(snapshot: &Snapshot, root: ProviderId, tree: &mut Tree) {
    let Some(shown) = snapshot.tree(root) else { return };
    for provider in &mut tree.providers {
        let Some(known) = shown.providers().find(|p| p.id == provider.id) else { continue };
        if known.version <= provider.version {
            continue;
        }
        provider.version = known.version;
        for (class, inventory) in &mut provider.inventories {
            if let Some((_, newer)) = known.inventories.iter().find(|(c, _)| c == class) {
                inventory.used = newer.used;
            }
        }
    }
}

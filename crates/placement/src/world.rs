//! The in-memory picture of all providers that searches run on.
//!
//! It is never ahead of the database: only hooks of committed transactions and loads from the
//! database write it. It may lag, and that is safe because a claim checks again. On PostgreSQL
//! hooks of two transactions may run in either order, so every update is absolute and versioned: a
//! tree by the number of its note in the change log, a provider's usage by the provider's version.

mod follow;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use kilonova_engine::{Snapshot, Tree};
use kilonova_ids::ProviderId;
use kilonova_store::Tx;
use kilonova_wire::time::now_micros;

pub use follow::Followed;

use crate::{Error, db};

/// The picture; a handle, cheap to clone.
#[derive(Clone, Default)]
pub struct World(Arc<Inner>);

#[derive(Default)]
struct Inner {
    snapshot: ArcSwap<Snapshot>,
    writer: Mutex<Writer>,
}

#[derive(Default)]
struct Writer {
    /// Number of the last note that was taken in, by root. Roots that are gone stay in here, or a
    /// late hook would bring them back.
    notes: HashMap<ProviderId, i64>,
    /// The last note when everything was loaded: what hooks say of it or before it is old.
    floor: i64,
    /// Up to where the notes of all have been taken in.
    horizon: i64,
    /// Up to where notes were forgotten when everything was loaded.
    start: i64,
    /// Notes above the horizon that have been taken in, most of them our own.
    seen: HashSet<i64>,
    /// Whether somebody follows, and drops what was seen.
    followed: bool,
}

impl World {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// What is known now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.0.snapshot.load_full()
    }

    /// To be called in a transaction that changed a tree, after its last write to it: notes the
    /// change and shows it to the world once it is durable.
    pub(crate) fn tree_changed(&self, tx: &mut Tx<'_>, root: ProviderId) -> Result<(), Error> {
        db::providers::changed(tx, root)?;
        let note = db::changes::append(tx, root, now_micros())?;
        let mut tree = db::trees::one(tx, root)?;
        let world = self.clone();
        tx.on_commit(move || world.put(root, note, tree.take()));
        Ok(())
    }

    pub(crate) fn set_usage(&self, provider: ProviderId, version: i64, used: &[(String, i64)]) {
        let used: Vec<(&str, i64)> = used.iter().map(|(class, n)| (class.as_str(), *n)).collect();
        let writer = self.lock();
        let mut snapshot = Snapshot::clone(&self.0.snapshot.load());
        snapshot.set_usage(provider, version, &used);
        self.0.snapshot.store(Arc::new(snapshot));
        drop(writer);
    }

    /// Says that the picture shows what a note of ours is about.
    pub(crate) fn shows(&self, note: i64) {
        let mut writer = self.lock();
        if writer.followed {
            writer.seen.insert(note);
        }
    }

    fn put(&self, root: ProviderId, note: i64, tree: Option<Tree>) {
        let mut writer = self.lock();
        if note <= writer.floor || writer.notes.get(&root).is_some_and(|shown| *shown > note) {
            return;
        }
        if writer.followed {
            writer.seen.insert(note);
        }
        writer.notes.insert(root, note);
        let mut snapshot = Snapshot::clone(&self.0.snapshot.load());
        match tree {
            Some(mut tree) => {
                keep_newer_usage(&snapshot, root, &mut tree);
                snapshot.upsert(tree);
            }
            None => snapshot.remove(root),
        }
        self.0.snapshot.store(Arc::new(snapshot));
    }

    fn lock(&self) -> MutexGuard<'_, Writer> {
        self.0.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A claim that committed after the tree was read may have told its usage before.
fn keep_newer_usage(snapshot: &Snapshot, root: ProviderId, tree: &mut Tree) {
    let Some(shown) = snapshot.tree(root) else { return };
    for provider in &mut tree.providers {
        let Some(known) = shown.providers().find(|p| p.id == provider.id) else { continue };
        if known.generation <= provider.generation {
            continue;
        }
        provider.generation = known.generation;
        for (class, inventory) in &mut provider.inventories {
            if let Some((_, newer)) = known.inventories.iter().find(|(c, _)| c == class) {
                inventory.used = newer.used;
            }
        }
    }
}

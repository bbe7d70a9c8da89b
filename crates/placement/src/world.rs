//! The in-memory picture of all providers that searches run on.
//!
//! It is never ahead of the database: only hooks of committed transactions and loads from the
//! database write it. It may lag, and that is safe because a claim checks again. On PostgreSQL
//! hooks of two transactions may run in either order, so every update is absolute and versioned: a
//! tree by the number of its note in the change log, a provider's usage by the provider's version.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use kilonova_engine::{Snapshot, Tree};
use kilonova_ids::ProviderId;
use kilonova_store::{Store, Tx};
use kilonova_wire::time::now_micros;

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
    horizon: i64,
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

    /// Replaces everything by what the database holds.
    ///
    /// # Errors
    /// Only of the store.
    pub async fn load(&self, store: &Store) -> Result<(), Error> {
        let (horizon, trees) = store
            .read(|tx| -> Result<_, Error> { Ok((db::changes::horizon(tx)?, db::trees::all(tx)?)) })
            .await?;
        let mut snapshot = Snapshot::default();
        for tree in trees {
            snapshot.upsert(tree);
        }
        let mut writer = self.lock();
        *writer = Writer { notes: HashMap::new(), horizon };
        self.0.snapshot.store(Arc::new(snapshot));
        Ok(())
    }

    /// Takes in what other replicas have committed since the last call.
    ///
    /// # Errors
    /// Only of the store.
    pub async fn follow(&self, store: &Store) -> Result<usize, Error> {
        let from = self.lock().horizon;
        let (to, changed) = store
            .read(move |tx| -> Result<_, Error> {
                let to = db::changes::horizon(tx)?;
                let mut changed = Vec::new();
                for (root, note) in db::changes::between(tx, from, to)? {
                    changed.push((root, note, db::trees::one(tx, root)?));
                }
                Ok((to, changed))
            })
            .await?;
        let count = changed.len();
        for (root, note, tree) in changed {
            self.put(root, note, tree);
        }
        self.lock().horizon = to;
        Ok(count)
    }

    /// Drops notes of the change log that were written before a moment. A replica that has not
    /// followed since then must load anew.
    ///
    /// # Errors
    /// Only of the store.
    pub async fn forget(store: &Store, before: i64) -> Result<(), Error> {
        store.write(move |tx| -> Result<(), Error> { Ok(db::changes::forget(tx, before)?) }).await
    }

    /// To be called in a transaction that changed a tree, after its last write to it: notes the
    /// change and shows it to the world once it is durable.
    pub(crate) fn tree_changed(&self, tx: &mut Tx<'_>, root: ProviderId) -> Result<(), Error> {
        db::providers::touch(tx, root)?;
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

    fn put(&self, root: ProviderId, note: i64, tree: Option<Tree>) {
        let mut writer = self.lock();
        if writer.notes.get(&root).is_some_and(|seen| *seen > note) {
            return;
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

//! Follows the commits of other controllers.
//!
//! An entry of the change log only states that a tree changed. The tree is read again, so applying
//! an entry twice or late is correct. A controller that missed entries loads everything.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kilonova_changes::{Applied, Entry, Subscriber, Topic};
use kilonova_engine::{Snapshot, Tree};
use kilonova_ids::ProviderId;
use kilonova_store::Store;

use super::{Shown, World, keep_newer_usage};
use crate::{Error, db};

/// Bound on `own`. An entry that the follower saw before our hook ran stays in it.
const MAX_OWN: usize = 100_000;
/// Above this number of changed trees, one full load is cheaper.
const MAX_TREES: usize = 500;

/// The subscriber that keeps a [`World`] current.
pub struct Providers {
    world: World,
    store: Store,
}

impl Providers {
    /// The subscriber for the in-memory copy of this process and its database.
    pub fn new(world: &World, store: &Store) -> Self {
        Self { world: world.clone(), store: store.clone() }
    }
}

impl Subscriber for Providers {
    fn apply<'a>(&'a self, entries: &'a [Entry]) -> Applied<'a> {
        Box::pin(async move {
            self.world.follow(&self.store, entries).await?;
            Ok(())
        })
    }

    fn reload(&self) -> Applied<'_> {
        Box::pin(async move { Ok(self.world.load(&self.store).await?) })
    }
}

impl World {
    /// Replaces the copy with the content of the database.
    ///
    /// # Errors
    /// Store errors only.
    pub async fn load(&self, store: &Store) -> Result<(), Error> {
        let (floor, trees) = store
            .read(|tx| -> Result<_, Error> {
                Ok((kilonova_changes::last(tx)?, db::trees::all(tx)?))
            })
            .await?;
        let mut snapshot = Snapshot::default();
        for tree in trees {
            snapshot.upsert(tree);
        }
        let folded = snapshot.folded(None, &[]).map(Arc::new);
        let mut writer = self.lock();
        writer.entries.clear();
        writer.own.clear();
        writer.floor = floor;
        self.0.shown.store(Arc::new(Shown { stored: Arc::new(snapshot), folded }));
        drop(writer);
        Ok(())
    }

    /// Applies entries of other controllers. Must not be called concurrently. Returns the trees that
    /// it read again.
    ///
    /// # Errors
    /// Store errors only.
    pub async fn follow(&self, store: &Store, entries: &[Entry]) -> Result<Vec<ProviderId>, Error> {
        let changed = self.others(entries);
        if changed.is_empty() {
            return Ok(Vec::new());
        }
        self.record_foreign(changed.keys().copied());
        self.0.reread.fetch_add(changed.len() as u64, Ordering::Relaxed);
        if changed.len() > MAX_TREES {
            self.load(store).await?;
            return Ok(changed.into_keys().collect());
        }
        let trees = store
            .read(move |tx| -> Result<_, Error> {
                let roots: Vec<ProviderId> = changed.keys().copied().collect();
                let trees = db::trees::some(tx, &roots)?;
                let changed = changed.iter().zip(trees);
                Ok(changed.map(|((root, entry), tree)| (*root, *entry, tree)).collect::<Vec<_>>())
            })
            .await?;
        Ok(self.apply_trees(trees))
    }

    /// The trees named by entries that are not our own, each with its last entry.
    fn others(&self, entries: &[Entry]) -> BTreeMap<ProviderId, i64> {
        let mut writer = self.lock();
        writer.followed = true;
        if writer.own.len() > MAX_OWN {
            writer.own.clear();
        }
        let mut changed = BTreeMap::new();
        for entry in entries.iter().filter(|entry| entry.topic == Topic::Tree) {
            if writer.own.remove(&entry.seq) {
                continue;
            }
            // An entry is a hint: an invalid one must not block the others.
            let Ok(root) = entry.subject.parse() else {
                tracing::error!(
                    entry = entry.seq,
                    root = entry.subject,
                    "ignored an entry of the change log that names no resource provider"
                );
                continue;
            };
            let last = changed.entry(root).or_insert(entry.seq);
            *last = entry.seq.max(*last);
        }
        drop(writer);
        changed
    }

    fn apply_trees(&self, trees: Vec<(ProviderId, i64, Option<Tree>)>) -> Vec<ProviderId> {
        let mut writer = self.lock();
        let mut snapshot = self.copy();
        let mut changed = Vec::with_capacity(trees.len());
        for (root, entry, tree) in trees {
            changed.push(root);
            if writer.entries.get(&root).is_some_and(|shown| *shown > entry) {
                usage_only(&mut snapshot, tree);
                continue;
            }
            writer.entries.insert(root, entry);
            match tree {
                Some(mut tree) => {
                    keep_newer_usage(&snapshot, root, &mut tree);
                    snapshot.upsert(tree);
                }
                None => snapshot.remove(root),
            }
        }
        self.publish(snapshot, &changed);
        drop(writer);
        changed
    }
}

/// Applies only the usage of a tree that this controller has changed since the entry: the copy's
/// tree is newer, but the usage may include claims of other controllers.
fn usage_only(snapshot: &mut Snapshot, tree: Option<Tree>) {
    for provider in tree.into_iter().flat_map(|tree| tree.providers) {
        let used: Vec<_> =
            provider.inventories.iter().map(|(class, inv)| (class.clone(), inv.used)).collect();
        snapshot.set_usage(provider.id, provider.version, &used);
    }
}

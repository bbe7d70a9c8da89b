//! Follows the commits of other controllers.
//!
//! Every commit appends entries to the change log. On PostgreSQL numbers and transaction ids become
//! visible out of order, so an entry below the last one seen may still appear. The `horizon` is the
//! id below which no entry can appear any more. Each poll reads the visible entries from the last
//! horizon on and skips those already `seen`. Waiting for the horizon itself would let one long
//! transaction delay everything.
//!
//! An entry only states that a tree changed. The tree is read again, so applying an entry twice or
//! late is correct. A controller that missed deleted entries loads everything.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kilonova_engine::{Snapshot, Tree};
use kilonova_ids::ProviderId;
use kilonova_store::Store;

use super::{World, keep_newer_usage};
use crate::db::changes::LogEntry;
use crate::{Error, db};

/// Bound on `seen`. Our own entries stay in it until the next poll passes them; without polling
/// they would accumulate.
const MAX_SEEN: usize = 100_000;
/// Above this number of changed trees, one full load is cheaper.
const MAX_TREES: usize = 500;

/// The result of a poll of the change log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Followed {
    /// These trees changed; often none.
    Trees(Vec<ProviderId>),
    /// Everything was loaded again, because too much had changed.
    Everything,
}

enum PollResult {
    /// Entries were deleted before this poll, or too many trees changed: load everything.
    Behind,
    /// The entries up to a horizon, and the trees to apply, each with its last entry.
    Seen { to: i64, entries: Vec<LogEntry>, trees: Vec<(ProviderId, i64, Option<Tree>)> },
}

impl World {
    /// Replaces the copy by the content of the database.
    ///
    /// # Errors
    /// Store errors only.
    pub async fn load(&self, store: &Store) -> Result<(), Error> {
        let (horizon, start, floor, trees) = store
            .read(|tx| -> Result<_, Error> {
                let (horizon, start) = (db::changes::horizon(tx)?, db::changes::start(tx)?);
                Ok((horizon, start, db::changes::last(tx)?, db::trees::all(tx)?))
            })
            .await?;
        let mut snapshot = Snapshot::default();
        for tree in trees {
            snapshot.upsert(tree);
        }
        let mut writer = self.lock();
        writer.entries.clear();
        writer.seen.clear();
        (writer.horizon, writer.start, writer.floor) = (horizon, start, floor);
        self.0.snapshot.store(Arc::new(snapshot));
        Ok(())
    }

    /// Applies the commits of other controllers since the last call. Must not be called
    /// concurrently.
    ///
    /// # Errors
    /// Store errors only.
    pub async fn follow(&self, store: &Store) -> Result<Followed, Error> {
        let (from, known_start) = {
            let mut writer = self.lock();
            writer.followed = true;
            (writer.horizon, writer.start)
        };
        let world = self.clone();
        let result = store
            .read(move |tx| -> Result<_, Error> {
                let start = db::changes::start(tx)?;
                if start >= from && start != known_start {
                    return Ok(PollResult::Behind);
                }
                let to = db::changes::horizon(tx)?;
                let entries = db::changes::since(tx, from)?;
                let changed = world.unseen(&entries);
                if changed.len() > MAX_TREES {
                    return Ok(PollResult::Behind);
                }
                let mut trees = Vec::with_capacity(changed.len());
                for (root, entry) in changed {
                    trees.push((root, entry, db::trees::one(tx, root)?));
                }
                Ok(PollResult::Seen { to, entries, trees })
            })
            .await?;
        match result {
            PollResult::Behind => {
                self.load(store).await?;
                Ok(Followed::Everything)
            }
            PollResult::Seen { to, entries, trees } => {
                Ok(Followed::Trees(self.apply_entries(to, entries, trees)))
            }
        }
    }

    /// Deletes some entries older than a time. Returns whether there are more. A controller that
    /// has not polled since then loads everything.
    ///
    /// # Errors
    /// Store errors only.
    pub async fn prune(store: &Store, before: Timestamp) -> Result<bool, Error> {
        store
            .write(move |tx| -> Result<bool, Error> { Ok(db::changes::delete_old(tx, before)?) })
            .await
    }

    /// The trees of entries not seen yet, each with its last entry.
    fn unseen(&self, entries: &[LogEntry]) -> BTreeMap<ProviderId, i64> {
        let writer = self.lock();
        let mut changed = BTreeMap::new();
        for entry in entries.iter().filter(|entry| !writer.seen.contains(&entry.number)) {
            let last = changed.entry(entry.root).or_insert(entry.number);
            *last = entry.number.max(*last);
        }
        changed
    }

    fn apply_entries(
        &self,
        to: i64,
        entries: Vec<LogEntry>,
        trees: Vec<(ProviderId, i64, Option<Tree>)>,
    ) -> Vec<ProviderId> {
        let mut writer = self.lock();
        let mut snapshot = Snapshot::clone(&self.0.snapshot.load());
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
        if !changed.is_empty() {
            self.0.snapshot.store(Arc::new(snapshot));
        }
        writer.horizon = to;
        if writer.seen.len() > MAX_SEEN {
            writer.seen.clear();
        }
        for entry in entries {
            if entry.position < to {
                writer.seen.remove(&entry.number);
            } else {
                writer.seen.insert(entry.number);
            }
        }
        changed
    }
}

/// Applies only the usage of a tree that this controller itself changed later, because the usage of
/// others may be newer.
fn usage_only(snapshot: &mut Snapshot, tree: Option<Tree>) {
    for provider in tree.into_iter().flat_map(|tree| tree.providers) {
        let used: Vec<(&str, i64)> =
            provider.inventories.iter().map(|(class, inv)| (&**class, inv.used)).collect();
        snapshot.set_usage(provider.id, provider.generation, &used);
    }
}

//! How a replica learns of what others commit.
//!
//! Every commit leaves a note in the change log. Numbers and transaction ids become visible out of
//! order on PostgreSQL, so a note below the last one seen may still come. The `horizon` is the id
//! below which nothing more can come: each look takes what is visible from the last horizon on,
//! and skips the notes that it has `seen` already. Waiting for the horizon itself would make one
//! long transaction of anybody's delay everything.
//!
//! A note says only that a tree has changed; the tree is read anew, so it is right to take a
//! note twice or late. A replica that was away until its notes were forgotten loads everything.

use std::collections::BTreeMap;
use std::sync::Arc;

use kilonova_engine::{Snapshot, Tree};
use kilonova_ids::ProviderId;
use kilonova_store::Store;

use super::{World, keep_newer_usage};
use crate::db::changes::Note;
use crate::{Error, db};

/// Own notes are kept until the next look passes them. Were nobody looking, they would pile up.
const MOST_SEEN: usize = 100_000;
/// With more changed trees than this, reading all at once is cheaper.
const MOST_TREES: usize = 500;

/// What a look at the change log brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Followed {
    /// These trees had changed; often none.
    Trees(Vec<ProviderId>),
    /// Too much had happened: everything was read anew.
    Everything,
}

enum Look {
    Behind,
    Seen { to: i64, notes: Vec<Note>, trees: Vec<(ProviderId, i64, Option<Tree>)> },
}

impl World {
    /// Replaces everything by what the database holds.
    ///
    /// # Errors
    /// Only of the store.
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
        writer.notes.clear();
        writer.seen.clear();
        (writer.horizon, writer.start, writer.floor) = (horizon, start, floor);
        self.0.snapshot.store(Arc::new(snapshot));
        Ok(())
    }

    /// Takes in what other replicas have committed since the last call. There must be one caller
    /// at a time.
    ///
    /// # Errors
    /// Only of the store.
    pub async fn follow(&self, store: &Store) -> Result<Followed, Error> {
        let (from, known_start) = {
            let mut writer = self.lock();
            writer.followed = true;
            (writer.horizon, writer.start)
        };
        let world = self.clone();
        let look = store
            .read(move |tx| -> Result<_, Error> {
                let start = db::changes::start(tx)?;
                if start >= from && start != known_start {
                    return Ok(Look::Behind);
                }
                let to = db::changes::horizon(tx)?;
                let notes = db::changes::since(tx, from)?;
                let changed = world.news(&notes);
                if changed.len() > MOST_TREES {
                    return Ok(Look::Behind);
                }
                let mut trees = Vec::with_capacity(changed.len());
                for (root, note) in changed {
                    trees.push((root, note, db::trees::one(tx, root)?));
                }
                Ok(Look::Seen { to, notes, trees })
            })
            .await?;
        match look {
            Look::Behind => {
                self.load(store).await?;
                Ok(Followed::Everything)
            }
            Look::Seen { to, notes, trees } => Ok(Followed::Trees(self.take_in(to, notes, trees))),
        }
    }

    /// Drops notes that were written before a moment, some at a time. Says whether there are more.
    /// A replica that has not followed since then will load everything.
    ///
    /// # Errors
    /// Only of the store.
    pub async fn forget(store: &Store, before: i64) -> Result<bool, Error> {
        store.write(move |tx| -> Result<bool, Error> { Ok(db::changes::forget(tx, before)?) }).await
    }

    /// The trees of notes that were not seen yet, each with the last of them.
    fn news(&self, notes: &[Note]) -> BTreeMap<ProviderId, i64> {
        let writer = self.lock();
        let mut changed = BTreeMap::new();
        for note in notes.iter().filter(|note| !writer.seen.contains(&note.number)) {
            let last = changed.entry(note.root).or_insert(note.number);
            *last = note.number.max(*last);
        }
        changed
    }

    fn take_in(
        &self,
        to: i64,
        notes: Vec<Note>,
        trees: Vec<(ProviderId, i64, Option<Tree>)>,
    ) -> Vec<ProviderId> {
        let mut writer = self.lock();
        let mut snapshot = Snapshot::clone(&self.0.snapshot.load());
        let mut changed = Vec::with_capacity(trees.len());
        for (root, note, tree) in trees {
            changed.push(root);
            if writer.notes.get(&root).is_some_and(|shown| *shown > note) {
                usage_only(&mut snapshot, tree);
                continue;
            }
            writer.notes.insert(root, note);
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
        if writer.seen.len() > MOST_SEEN {
            writer.seen.clear();
        }
        for note in notes {
            if note.transaction < to {
                writer.seen.remove(&note.number);
            } else {
                writer.seen.insert(note.number);
            }
        }
        changed
    }
}

/// Of a tree that this replica itself has changed later, but may be old in what others hold of it.
fn usage_only(snapshot: &mut Snapshot, tree: Option<Tree>) {
    for provider in tree.into_iter().flat_map(|tree| tree.providers) {
        let used: Vec<(&str, i64)> =
            provider.inventories.iter().map(|(class, inv)| (&**class, inv.used)).collect();
        snapshot.set_usage(provider.id, provider.generation, &used);
    }
}

//! A map keyed by provider. It consists of shards behind pointers, so a copy and a small change are both
//! cheap.
//!
//! The last byte of an id selects the shard. It is random, or part of a digest, in every kind of
//! UUID in use.

use std::collections::HashMap;
use std::sync::Arc;

use kilonova_ids::ProviderId;

const SHARDS: usize = 256;

#[derive(Debug, Clone)]
pub(crate) struct Index<V> {
    shards: Arc<Vec<Arc<HashMap<ProviderId, V>>>>,
}

impl<V> Default for Index<V> {
    fn default() -> Self {
        Self { shards: Arc::new(Vec::new()) }
    }
}

fn shard(id: ProviderId) -> usize {
    usize::from(id.as_bytes()[15])
}

impl<V: Copy + PartialEq> Index<V> {
    pub(crate) fn get(&self, id: ProviderId) -> Option<V> {
        self.shards.get(shard(id))?.get(&id).copied()
    }

    pub(crate) fn insert(&mut self, id: ProviderId, value: V) {
        if self.get(id) == Some(value) {
            return;
        }
        let shards = Arc::make_mut(&mut self.shards);
        if shards.is_empty() {
            shards.resize_with(SHARDS, Arc::default);
        }
        Arc::make_mut(&mut shards[shard(id)]).insert(id, value);
    }

    pub(crate) fn remove(&mut self, id: ProviderId) {
        if self.get(id).is_some() {
            let shards = Arc::make_mut(&mut self.shards);
            Arc::make_mut(&mut shards[shard(id)]).remove(&id);
        }
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = ProviderId> + '_ {
        self.shards.iter().flat_map(|shard| shard.keys().copied())
    }
}

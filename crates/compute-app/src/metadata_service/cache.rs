//! The documents in memory, bounded by their size.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kilonova_guest_metadata::Document;
use kilonova_ids::{HostName, ServerId};

/// Approximate maximum size of all documents together, in bytes. A document without user data takes
/// up one or two KiB.
const MAX_BYTES: usize = 64 * 1024 * 1024;
/// Approximate size of a document without its user data, in bytes.
const DOCUMENT_BYTES: usize = 2 * 1024;

/// A document with the data that determines whether it is fresh.
#[derive(Debug, Clone)]
pub(super) struct Cached {
    pub document: Arc<Document>,
    /// The server's host.
    pub host: Option<HostName>,
    /// The newest generation of that host's desired state when this document was built.
    pub generation: Option<i64>,
    /// When the rows were read, or a moment before.
    pub read_at: Instant,
    /// True if the document contains the answers of the operator's services.
    pub has_vendordata: bool,
}

impl Cached {
    fn bytes(&self) -> usize {
        let document = &self.document;
        // The guest's metadata contains the user data a second time, in base64.
        let user_data = document.user_data.as_ref().map_or(0, |data| data.len() * 7 / 3);
        let metadata: usize =
            document.guest.metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
        let vendordata = &document.vendordata.dynamic;
        let vendordata = if vendordata.is_empty() {
            0
        } else {
            serde_json::to_string(vendordata).map_or(0, |text| text.len())
        };
        DOCUMENT_BYTES + user_data + metadata + 4 * vendordata
    }
}

/// The documents, by server. The oldest are evicted first.
#[derive(Default)]
pub(super) struct Cache(Mutex<State>);

#[derive(Default)]
struct State {
    by_server: HashMap<ServerId, Cached>,
    /// All stored entries, oldest first; eviction skips entries that have been replaced.
    order: VecDeque<(ServerId, Instant)>,
    bytes: usize,
}

impl Cache {
    pub fn get(&self, server: ServerId) -> Option<Cached> {
        self.lock().by_server.get(&server).cloned()
    }

    /// Stores a document, unless the cache already contains a newer one.
    pub fn put(&self, server: ServerId, cached: Cached) {
        let mut state = self.lock();
        if state.by_server.get(&server).is_some_and(|known| known.read_at > cached.read_at) {
            return;
        }
        state.remove(server);
        state.bytes += cached.bytes();
        state.order.push_back((server, cached.read_at));
        state.by_server.insert(server, cached);
        while state.bytes > MAX_BYTES
            && let Some((oldest, read_at)) = state.order.pop_front()
        {
            if state.by_server.get(&oldest).is_some_and(|known| known.read_at == read_at) {
                state.remove(oldest);
            }
        }
        // Replaced entries remain in the order.
        if state.order.len() > 2 * state.by_server.len() + 64 {
            let State { by_server, order, .. } = &mut *state;
            order.retain(|(server, read_at)| {
                by_server.get(server).is_some_and(|known| known.read_at == *read_at)
            });
        }
    }

    pub fn forget(&self, server: ServerId) {
        self.lock().remove(server);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn remove(&mut self, server: ServerId) {
        if let Some(old) = self.by_server.remove(&server) {
            self.bytes -= old.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kilonova_guest_metadata::{BlockDevices, Images, Vendordata};
    use kilonova_node_api::GuestMetadata;

    use super::*;

    fn cached(server: ServerId, read_at: Instant, user_data: usize) -> Cached {
        let document = Document {
            server,
            instance_id: String::new(),
            name: String::new(),
            hostname: String::new(),
            guest: GuestMetadata::default(),
            user_data: Some(vec![0; user_data]),
            interfaces: Vec::new(),
            disks: Vec::new(),
            images: Images::default(),
            security_groups: Vec::new(),
            block_devices: BlockDevices::default(),
            vendordata: Vendordata::default(),
        };
        let document = Arc::new(document);
        Cached { document, host: None, generation: None, read_at, has_vendordata: false }
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_documents_go_first() {
        let (cache, begin) = (Cache::default(), Instant::now());
        let servers: Vec<ServerId> = (0..1000).map(|_| ServerId::new_v4()).collect();
        for (number, server) in (0..).zip(&servers) {
            let read_at = begin + Duration::from_millis(number);
            cache.put(*server, cached(*server, read_at, 65_535));
            // Stored twice, like the document of a guest that was built several times.
            cache.put(*server, cached(*server, read_at, 65_535));
        }
        let state = cache.lock();
        assert!(state.bytes <= MAX_BYTES && state.bytes > MAX_BYTES / 2, "{}", state.bytes);
        assert_eq!(state.bytes, state.by_server.values().map(Cached::bytes).sum::<usize>());
        assert!(state.order.len() <= 2 * state.by_server.len() + 64);
        assert!(!state.by_server.contains_key(&servers[0]));
        assert!(state.by_server.contains_key(&servers[999]));
    }

    #[test]
    fn a_slow_read_does_not_replace_a_younger_document() {
        let (cache, begin) = (Cache::default(), Instant::now());
        let server = ServerId::new_v4();
        let later = begin + Duration::from_secs(1);
        cache.put(server, cached(server, later, 1));
        cache.put(server, cached(server, begin, 2));
        assert_eq!(cache.get(server).map(|known| known.read_at), Some(later));
        cache.forget(server);
        assert!(cache.get(server).is_none() && cache.lock().bytes == 0);
    }
}

//! Keeps the metadata documents of the guests that sent requests recently.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kilonova_guest_metadata::Document;
use kilonova_ids::ServerId;

use crate::metadata::MetadataSettings;

/// Documents of this age are dropped when the next document is added. Until then they can answer
/// requests while the hypervisor is unavailable.
const KEPT: Duration = Duration::from_secs(600);

/// The documents with their settings. Bounded by the number of the host's guests.
pub(in crate::agent) struct Memory {
    settings: Arc<MetadataSettings>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of changes to guests. A document that was read before the latest change is not
    /// kept.
    version: u64,
    by_server: HashMap<ServerId, Kept>,
}

struct Kept {
    document: Arc<Document>,
    read_at: Instant,
    /// True if the document includes the answers from the operator's vendor data services.
    has_vendordata: bool,
}

impl Memory {
    pub(in crate::agent) fn new(settings: Arc<MetadataSettings>) -> Self {
        Self { settings, state: Mutex::default() }
    }

    pub(super) fn settings(&self) -> &MetadataSettings {
        &self.settings
    }

    /// The server's document and its age.
    pub(super) fn get(&self, server: ServerId) -> Option<(Arc<Document>, Duration)> {
        let state = self.lock();
        let kept = state.by_server.get(&server)?;
        Some((Arc::clone(&kept.document), kept.read_at.elapsed()))
    }

    /// The current version. The caller gets it before it reads a guest, and passes it to
    /// [`Memory::put`].
    pub(super) fn version(&self) -> u64 {
        self.lock().version
    }

    /// Keeps a document, unless a guest has been changed since `version`.
    pub(super) fn put(&self, server: ServerId, document: &Arc<Document>, version: u64) {
        let mut state = self.lock();
        if state.version == version {
            state.by_server.retain(|_, kept| kept.read_at.elapsed() < KEPT);
            let (document, read_at) = (Arc::clone(document), Instant::now());
            state.by_server.insert(server, Kept { document, read_at, has_vendordata: false });
        }
    }

    /// True if this document is kept and includes the answers from the operator's vendor data
    /// services.
    pub(super) fn has_vendordata(&self, server: ServerId, document: &Arc<Document>) -> bool {
        let state = self.lock();
        let kept = state.by_server.get(&server);
        kept.is_some_and(|kept| kept.has_vendordata && Arc::ptr_eq(&kept.document, document))
    }

    /// Replaces a document with one that includes the answers from the operator's vendor data
    /// services, unless the former has been dropped.
    pub(super) fn complete(
        &self,
        server: ServerId,
        document: &Arc<Document>,
        complete: &Arc<Document>,
    ) {
        let mut state = self.lock();
        let kept = state.by_server.get_mut(&server);
        if let Some(kept) = kept.filter(|kept| Arc::ptr_eq(&kept.document, document)) {
            kept.document = Arc::clone(complete);
            kept.has_vendordata = true;
        }
    }

    /// Records that a guest was changed.
    pub(in crate::agent) fn forget(&self, server: ServerId) {
        let mut state = self.lock();
        state.version += 1;
        state.by_server.remove(&server);
    }

    /// Records that the metadata of all guests may have changed.
    pub(in crate::agent) fn forget_all(&self) {
        let mut state = self.lock();
        state.version += 1;
        state.by_server.clear();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

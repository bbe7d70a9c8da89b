//! What every handler of the compute API is given.
//!
//! It holds handles that are cheap to clone; it must never hold a lock or a cache of its own.

use kilonova_store::Store;

/// The compute service.
#[derive(Clone)]
pub struct Compute {
    /// The database.
    pub store: Store,
}

//! The machine-readable codes of refusals (from 1.23 on the wire), which clients branch on.

/// Someone else was faster; read again and repeat.
pub const CONCURRENT_UPDATE: &str = "placement.concurrent_update";
/// A name or uuid is taken.
pub const DUPLICATE_NAME: &str = "placement.duplicate_name";
/// Somebody holds of this inventory.
pub const INVENTORY_IN_USE: &str = "placement.inventory.inuse";
/// Somebody holds something of this provider.
pub const PROVIDER_IN_USE: &str = "placement.resource_provider.inuse";
/// The provider has children.
pub const CANNOT_DELETE_PARENT: &str = "placement.resource_provider.cannot_delete_parent";
/// A body names a provider that is not there.
pub const PROVIDER_NOT_FOUND: &str = "placement.resource_provider.not_found";
/// A query key may be given once.
pub const QUERY_DUPLICATE_KEY: &str = "placement.query.duplicate_key";
/// A query value makes no sense.
pub const QUERY_BAD_VALUE: &str = "placement.query.bad_value";
/// A query lacks something.
pub const QUERY_MISSING_VALUE: &str = "placement.query.missing_value";

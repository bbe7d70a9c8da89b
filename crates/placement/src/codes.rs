//! The machine-readable codes of errors (on the wire from 1.23), which clients branch on.

/// A concurrent write succeeded first: read again and retry.
pub const CONCURRENT_UPDATE: &str = "placement.concurrent_update";
/// The name or UUID exists.
pub const DUPLICATE_NAME: &str = "placement.duplicate_name";
/// The inventory has allocations.
pub const INVENTORY_IN_USE: &str = "placement.inventory.inuse";
/// The provider has allocations.
pub const PROVIDER_IN_USE: &str = "placement.resource_provider.inuse";
/// The provider has children.
pub const CANNOT_DELETE_PARENT: &str = "placement.resource_provider.cannot_delete_parent";
/// The body names an unknown provider.
pub const PROVIDER_NOT_FOUND: &str = "placement.resource_provider.not_found";
/// A query key may appear only once.
pub const QUERY_DUPLICATE_KEY: &str = "placement.query.duplicate_key";
/// A query value is invalid.
pub const QUERY_BAD_VALUE: &str = "placement.query.bad_value";
/// A query lacks a required value.
pub const QUERY_MISSING_VALUE: &str = "placement.query.missing_value";

//! The statuses by which the dashboard and the operators' commands select servers. The API derives the status of a server.

/// The statuses of all states but `DELETED`, in alphabetical order. As filters they ignore tasks, so that together they
/// select every existing server, including soft-deleted ones.
pub const OF_EXISTING: [&str; 11] = [
    "ACTIVE",
    "BUILD",
    "ERROR",
    "PAUSED",
    "RESCUE",
    "SHELVED",
    "SHELVED_OFFLOADED",
    "SHUTOFF",
    "SOFT_DELETED",
    "SUSPENDED",
    "VERIFY_RESIZE",
];

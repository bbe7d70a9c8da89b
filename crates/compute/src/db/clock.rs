//! The newest moment that is written down: how far the clock that wrote it had come.

kilonova_store::statements! {
    /// The newest moment of hosts, operations and servers.
    NEWEST = "SELECT MAX(at) FROM (SELECT MAX(last_seen) AS at FROM hosts
        UNION ALL SELECT MAX(updated_at) FROM operations
        UNION ALL SELECT MAX(updated_at) FROM servers) newest";
}

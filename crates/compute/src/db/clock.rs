//! The newest moment that is written down: how far the clock that wrote it had come.

kilonova_store::statements! {
    /// The newest moment of hosts, operations and servers.
    NEWEST = "SELECT MAX(at) FROM (SELECT MAX(last_seen) AS at FROM hosts
        UNION ALL SELECT MAX(updated_at) FROM operations
        UNION ALL SELECT MAX(updated_at) FROM servers) newest";
    /// Hosts that were last heard of after a moment: at that moment.
    REDATE_HOSTS = "UPDATE hosts SET last_seen = ?1 WHERE last_seen > ?1";
    /// Servers that were last changed after a moment: at that moment.
    REDATE_SERVERS = "UPDATE servers SET updated_at = ?1,
        created_at = CASE WHEN created_at > ?1 THEN ?1 ELSE created_at END,
        launched_at = CASE WHEN launched_at > ?1 THEN ?1 ELSE launched_at END
        WHERE updated_at > ?1";
}

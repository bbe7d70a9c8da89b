//! The latest stored time, which shows how far the clock that wrote it had advanced.

kilonova_store::statements! {
    /// The latest time in hosts, operations and servers.
    NEWEST = "SELECT MAX(at) FROM (SELECT MAX(last_seen) AS at FROM hosts
        UNION ALL SELECT MAX(updated_at) FROM operations
        UNION ALL SELECT MAX(updated_at) FROM servers) newest";
    /// Limits the `last_seen` of hosts to a time.
    REDATE_HOSTS = "UPDATE hosts SET last_seen = ?1 WHERE last_seen > ?1";
    /// Limits the `updated_at` of servers to a time.
    REDATE_SERVERS = "UPDATE servers SET updated_at = ?1,
        created_at = CASE WHEN created_at > ?1 THEN ?1 ELSE created_at END,
        launched_at = CASE WHEN launched_at > ?1 THEN ?1 ELSE launched_at END
        WHERE updated_at > ?1";
}

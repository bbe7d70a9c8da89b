//! Rules that hold after every commit. Each is a query that returns offending rows; the tests, the
//! chaos runs and `kilonova doctor` share them.

/// The name of each rule, and a query whose column `broken` describes each violation as text.
pub const AUDIT: &[(&str, &str)] = &[
    (
        "the usage of an inventory is the sum of its allocations",
        "SELECT i.provider_id || ' ' || i.class AS broken FROM inventories i
            LEFT JOIN (SELECT provider_id, class, CAST(SUM(used) AS BIGINT) AS held
                FROM allocations GROUP BY provider_id, class) a
            ON a.provider_id = i.provider_id AND a.class = i.class
            WHERE i.used <> COALESCE(a.held, 0)",
    ),
    (
        "every allocation has an inventory",
        "SELECT a.consumer_id || ' ' || a.provider_id || ' ' || a.class AS broken FROM allocations a
            LEFT JOIN inventories i ON i.provider_id = a.provider_id AND i.class = a.class
            WHERE i.provider_id IS NULL",
    ),
    (
        "no inventory is used beyond its total unless it was made smaller than its usage",
        "SELECT provider_id || ' ' || class AS broken FROM inventories
            WHERE used > 0 AND used > total * allocation_ratio AND shrunk = 0",
    ),
    (
        "every allocation has a consumer",
        "SELECT a.consumer_id || ' ' || a.provider_id AS broken FROM allocations a
            LEFT JOIN consumers c ON c.id = a.consumer_id WHERE c.id IS NULL",
    ),
    (
        "every consumer has an allocation",
        "SELECT c.id AS broken FROM consumers c
            LEFT JOIN allocations a ON a.consumer_id = c.id WHERE a.consumer_id IS NULL",
    ),
    (
        "a drained provider has no free capacity",
        "SELECT i.provider_id || ' ' || i.class AS broken FROM inventories i
            JOIN drains d ON d.provider_id = i.provider_id
            WHERE i.reported_reserved IS NOT NULL AND i.reserved < i.total",
    ),
    (
        "every provider is in the tree of its parent",
        "SELECT p.id AS broken FROM resource_providers p
            LEFT JOIN resource_providers parent ON parent.id = p.parent_id
            WHERE (p.parent_id IS NULL AND p.root_id <> p.id)
            OR (p.parent_id IS NOT NULL AND (parent.id IS NULL OR parent.root_id <> p.root_id))",
    ),
];

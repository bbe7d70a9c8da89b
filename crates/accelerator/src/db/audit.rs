//! The rules of the ledger, as queries that return violations. An empty result means a consistent
//! ledger. The tests, the chaos runs and `kilonova doctor` share them.

/// Pairs of a rule and a query. The column `broken` names a violation.
pub const AUDIT: &[(&str, &str)] = &[
    (
        "a handle is owned exactly when it names an accelerator request",
        "SELECT uuid AS broken FROM attach_handles
         WHERE (state = 'owned' AND arq_id IS NULL) OR (state <> 'owned' AND arq_id IS NOT NULL)",
    ),
    (
        "the request that owns a handle is bound",
        "SELECT h.uuid AS broken FROM attach_handles h LEFT JOIN arqs a ON a.uuid = h.arq_id
         WHERE h.arq_id IS NOT NULL AND (a.uuid IS NULL
         OR a.state NOT IN ('Bound', 'BindStarted'))",
    ),
    (
        "a bound request has exactly one handle",
        "SELECT a.uuid AS broken FROM arqs a LEFT JOIN attach_handles h ON h.arq_id = a.uuid
         WHERE a.state IN ('Bound', 'BindStarted') GROUP BY a.uuid HAVING COUNT(h.id) <> 1",
    ),
    (
        "a bound request names its host, provider, server and consumer",
        "SELECT uuid AS broken FROM arqs WHERE state IN ('Bound', 'BindStarted') AND (host IS NULL OR provider_id IS NULL
         OR server_id IS NULL OR consumer_id IS NULL OR ordinal IS NULL)",
    ),
    (
        "a handle belongs to the provider of the request that owns it",
        "SELECT h.uuid AS broken FROM attach_handles h JOIN deployables p ON p.id = h.deployable_id
         JOIN arqs a ON a.uuid = h.arq_id WHERE a.provider_id <> p.provider_id",
    ),
    (
        "a handle is on the host of the request that owns it",
        "SELECT h.uuid AS broken FROM attach_handles h JOIN deployables p ON p.id = h.deployable_id
         JOIN devices d ON d.id = p.device_id
         JOIN arqs a ON a.uuid = h.arq_id WHERE a.host <> d.host",
    ),
    (
        "a request that is not bound has no host, provider, server or consumer",
        "SELECT uuid AS broken FROM arqs WHERE state NOT IN ('Bound', 'BindStarted')
         AND (consumer_id IS NOT NULL OR ordinal IS NOT NULL OR (state <> 'BindFailed'
           AND (host IS NOT NULL OR provider_id IS NOT NULL OR server_id IS NOT NULL)))",
    ),
    (
        "a request waits for an order if and only if it is being bound, and the order is not done",
        "SELECT a.uuid AS broken FROM arqs a LEFT JOIN device_orders o ON o.uuid = a.awaits
         WHERE (a.state = 'BindStarted') <> (a.awaits IS NOT NULL)
           OR (a.awaits IS NOT NULL AND (o.uuid IS NULL OR o.state = 'done'
             OR (o.state = 'failed' AND a.internal = 0)))",
    ),
    (
        "only an open order has a key, and every open order has one",
        "SELECT uuid AS broken FROM device_orders WHERE (state = 'open') <> (open_key IS NOT NULL)",
    ),
    (
        "only requests that wait for the order own handles of a device that is being programmed",
        "SELECT h.uuid AS broken FROM device_orders o JOIN devices d ON d.uuid = o.open_key
         JOIN deployables p ON p.device_id = d.id JOIN attach_handles h ON h.deployable_id = p.id
         JOIN arqs a ON a.uuid = h.arq_id WHERE a.awaits IS NULL OR a.awaits <> o.uuid",
    ),
    (
        "a handle is dirty exactly when it records its last consumer or why it waits",
        "SELECT uuid AS broken FROM attach_handles
         WHERE (state = 'dirty')
           <> (dirty_of IS NOT NULL OR parked IS NOT NULL OR awaits_word IS NOT NULL)",
    ),
    (
        "a card is assigned whole or in parts, not both",
        "SELECT h.uuid AS broken FROM attach_handles h JOIN deployables p ON p.id = h.deployable_id
         JOIN devices d ON d.id = p.device_id
         WHERE h.state = 'owned' AND h.attach_type <> 'TEST_PCI'
           AND EXISTS (SELECT 1 FROM attach_handles o JOIN deployables q ON q.id = o.deployable_id
             JOIN devices e ON e.id = q.device_id
             WHERE e.host = d.host AND e.card = d.card AND o.id <> h.id AND o.state = 'owned'
               AND o.attach_type <> 'TEST_PCI'
               AND ((h.address = d.card AND o.address <> d.card) OR (h.address = o.address
                 AND h.attach_type <> 'MDEV')))",
    ),
    (
        "a card with one vGPU type at a time is assigned as one type",
        "SELECT h.uuid AS broken FROM attach_handles h JOIN deployables p ON p.id = h.deployable_id
         JOIN devices d ON d.id = p.device_id
         WHERE h.state = 'owned' AND d.one_type = 1 AND h.mdev_type <> ''
           AND EXISTS (SELECT 1 FROM attach_handles o JOIN deployables q ON q.id = o.deployable_id
             JOIN devices e ON e.id = q.device_id
             WHERE e.host = d.host AND e.card = d.card AND o.state = 'owned'
               AND o.mdev_type <> '' AND o.mdev_type <> h.mdev_type)",
    ),
    (
        "the GPU instances of a card do not overlap",
        "SELECT h.uuid AS broken FROM attach_handles h JOIN deployables p ON p.id = h.deployable_id
         JOIN devices d ON d.id = p.device_id
         WHERE h.state <> 'free' AND d.mig IS NOT NULL
           AND EXISTS (SELECT 1 FROM attach_handles o JOIN deployables q ON q.id = o.deployable_id
             JOIN devices e ON e.id = q.device_id
             WHERE e.host = d.host AND e.card = d.card AND o.id <> h.id AND o.state <> 'free'
               AND o.mig_start < h.mig_start + h.mig_size
               AND h.mig_start < o.mig_start + o.mig_size)",
    ),
    (
        "no other consumer has a handle of an island that a consumer has to itself",
        "SELECT h.uuid AS broken FROM attach_handles o JOIN deployables q ON q.id = o.deployable_id
         JOIN devices e ON e.id = q.device_id JOIN arqs b ON b.uuid = o.arq_id
         JOIN devices d ON d.host = e.host AND d.island = e.island
         JOIN deployables p ON p.device_id = d.id JOIN attach_handles h ON h.deployable_id = p.id
         JOIN arqs a ON a.uuid = h.arq_id
         WHERE o.island_arq_id = o.arq_id AND a.consumer_id <> b.consumer_id",
    ),
    (
        "an absent handle has an owner or is dirty",
        "SELECT uuid AS broken FROM attach_handles WHERE present = 0 AND arq_id IS NULL
         AND state <> 'dirty'",
    ),
];

//! The rules of the network service as queries that find violations. They read whole tables.

/// Pairs of a rule and a query whose column `broken` names a violation.
pub const AUDIT: &[(&str, &str)] = &[
    (
        "an address on a network has one port",
        "SELECT a.address AS broken FROM port_addresses a JOIN subnets s ON s.id = a.subnet_id
         GROUP BY s.network_id, a.address HAVING COUNT(*) > 1",
    ),
    (
        "an address belongs to a port on the network of its subnet",
        "SELECT a.address AS broken FROM port_addresses a LEFT JOIN ports p ON p.id = a.port_id
         LEFT JOIN subnets s ON s.id = a.subnet_id
         WHERE p.id IS NULL OR s.id IS NULL OR s.network_id <> p.network_id",
    ),
    (
        "a port that was created for a server belongs to it",
        "SELECT id AS broken FROM ports WHERE made_for IS NOT NULL
         AND (server_id IS NULL OR server_id <> made_for)",
    ),
    (
        "the device id of a server's port is the server's id",
        "SELECT id AS broken FROM ports WHERE server_id IS NOT NULL AND device_id <> server_id",
    ),
    (
        "a port with a device belongs to a server on a host",
        "SELECT id AS broken FROM ports WHERE arq_id IS NOT NULL AND (server_id IS NULL OR host = '')",
    ),
];

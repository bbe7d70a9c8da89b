//! The invariants of the network service, as queries that find violations. They read whole tables.

/// Pairs of an invariant and a query that returns one row per violation, with the id or address in
/// the column `broken`.
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
    (
        "a floating IP has a port of its own with its address, on its network",
        "SELECT f.id AS broken FROM floating_ips f JOIN ports p ON p.id = f.own_port
         WHERE p.network_id <> f.network_id OR NOT EXISTS (
             SELECT 1 FROM port_addresses a WHERE a.port_id = p.id AND a.address = f.address)",
    ),
    (
        "a floating IP has a fixed address, its port and a router, or none of them",
        "SELECT id AS broken FROM floating_ips WHERE (port_id IS NULL) <> (fixed_address IS NULL)
         OR (port_id IS NULL) <> (router_id IS NULL)",
    ),
    (
        "the fixed address behind a floating IP belongs to its port",
        "SELECT f.id AS broken FROM floating_ips f WHERE f.port_id IS NOT NULL AND NOT EXISTS (
             SELECT 1 FROM port_addresses a
             WHERE a.port_id = f.port_id AND a.address = f.fixed_address)",
    ),
    (
        "the router of a floating IP connects its network with the subnet of its fixed address",
        "SELECT f.id AS broken FROM floating_ips f WHERE f.router_id IS NOT NULL AND NOT EXISTS (
             SELECT 1 FROM port_addresses a
             JOIN router_subnets s ON s.subnet_id = a.subnet_id AND s.router_id = f.router_id
             JOIN router_ports g ON g.router_id = f.router_id AND g.gateway = 1
             JOIN ports p ON p.id = g.port_id AND p.network_id = f.network_id
             WHERE a.port_id = f.port_id AND a.address = f.fixed_address)",
    ),
    (
        "a subnet of a router's interface is a subnet of its port",
        "SELECT s.port_id AS broken FROM router_subnets s
         LEFT JOIN router_ports r ON r.port_id = s.port_id
         LEFT JOIN port_addresses a ON a.port_id = s.port_id AND a.subnet_id = s.subnet_id
         WHERE r.router_id IS NULL OR r.router_id <> s.router_id OR r.gateway = 1
         OR a.port_id IS NULL",
    ),
    (
        "a gateway and a floating IP are on an external network",
        "SELECT u.id AS broken FROM (
             SELECT router_id AS id, network_id FROM router_ports WHERE gateway = 1
             UNION ALL SELECT id, network_id FROM floating_ips
         ) u JOIN networks n ON n.id = u.network_id WHERE n.external = 0",
    ),
    (
        "a router's port has the router's id and host, and the network of its row",
        "SELECT p.id AS broken FROM router_ports r JOIN ports p ON p.id = r.port_id
         LEFT JOIN router_places h ON h.router_id = r.router_id
         WHERE p.device_id <> r.router_id OR p.network_id <> r.network_id
         OR p.host <> COALESCE(h.host, '')",
    ),
];

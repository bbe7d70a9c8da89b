//! The tables of the network service.
//!
//! References prevent dependent rows from outliving their parents, even under concurrency. Unique keys ensure that an
//! address, a MAC address and a VLAN have only one owner.

use kilonova_store::Migration;

/// The schema migrations in order.
pub const MIGRATIONS: &[Migration] = &[TABLES, EXTERNAL, PLANS, ROUTERS, GUARDS];

const TABLES: Migration = Migration {
    name: "network-1-tables",
    sql: "
CREATE TABLE networks (
    seq {serial}, id TEXT NOT NULL UNIQUE, project_id TEXT NOT NULL, shared BIGINT NOT NULL,
    segment TEXT UNIQUE, dhcp_port TEXT, body TEXT NOT NULL, revision BIGINT NOT NULL,
    created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL
);
CREATE INDEX networks_project ON networks (project_id);
CREATE TABLE subnets (
    seq {serial}, id TEXT NOT NULL UNIQUE, project_id TEXT NOT NULL,
    network_id TEXT NOT NULL REFERENCES networks (id), cursor TEXT NOT NULL, body TEXT NOT NULL,
    revision BIGINT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL
);
CREATE INDEX subnets_network ON subnets (network_id);
CREATE TABLE ports (
    seq {serial}, id TEXT NOT NULL UNIQUE, project_id TEXT NOT NULL,
    network_id TEXT NOT NULL REFERENCES networks (id), mac TEXT NOT NULL, device_id TEXT NOT NULL,
    host TEXT NOT NULL, server_id TEXT, made_for TEXT, ordinal BIGINT NOT NULL, arq_id TEXT,
    pci_slot TEXT, tag TEXT, body TEXT NOT NULL, revision BIGINT NOT NULL,
    created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
    UNIQUE (network_id, mac)
);
CREATE INDEX ports_project ON ports (project_id);
CREATE INDEX ports_device ON ports (device_id);
CREATE INDEX ports_server ON ports (server_id, ordinal);
CREATE TABLE port_addresses (
    subnet_id TEXT NOT NULL REFERENCES subnets (id), address_key TEXT NOT NULL,
    port_id TEXT NOT NULL REFERENCES ports (id), ordinal BIGINT NOT NULL, address TEXT NOT NULL,
    PRIMARY KEY (subnet_id, address_key)
);
CREATE INDEX port_addresses_port ON port_addresses (port_id, ordinal);
CREATE TABLE security_groups (
    seq {serial}, id TEXT NOT NULL UNIQUE, project_id TEXT NOT NULL, default_of TEXT UNIQUE,
    body TEXT NOT NULL, revision BIGINT NOT NULL,
    created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL
);
CREATE INDEX security_groups_project ON security_groups (project_id);
CREATE TABLE security_group_rules (
    seq {serial}, id TEXT NOT NULL UNIQUE, project_id TEXT NOT NULL,
    security_group_id TEXT NOT NULL REFERENCES security_groups (id), remote_group_id TEXT,
    body TEXT NOT NULL, revision BIGINT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL
);
CREATE INDEX security_group_rules_group ON security_group_rules (security_group_id);
CREATE INDEX security_group_rules_remote ON security_group_rules (remote_group_id);
CREATE TABLE port_groups (
    group_id TEXT NOT NULL REFERENCES security_groups (id),
    port_id TEXT NOT NULL REFERENCES ports (id) ON DELETE CASCADE,
    PRIMARY KEY (group_id, port_id)
);
CREATE INDEX port_groups_port ON port_groups (port_id);
CREATE TABLE network_changes (seq {serial}, kind TEXT NOT NULL, id TEXT NOT NULL);
CREATE TABLE network_quotas (
    project_id TEXT NOT NULL, resource TEXT NOT NULL, most BIGINT NOT NULL,
    PRIMARY KEY (project_id, resource)
);
",
};

/// Makes external networks visible to all projects.
const EXTERNAL: Migration = Migration {
    name: "network-2-external",
    sql: "
ALTER TABLE networks ADD COLUMN external BIGINT NOT NULL DEFAULT 0;
UPDATE networks SET external = 1 WHERE body LIKE '%\"router:external\":true%';
",
};

/// Adds indexes for a server's ports and a project's resources.
const PLANS: Migration = Migration {
    name: "network-3-plans",
    sql: "
CREATE INDEX ports_made_for ON ports (made_for) WHERE made_for IS NOT NULL;
CREATE INDEX subnets_project ON subnets (project_id);
CREATE INDEX security_group_rules_project ON security_group_rules (project_id);
",
};

/// Adds routers and floating IPs. A router's gateway host is stored in a separate table,
/// whose row outlives a deleted router until the host has been notified.
const ROUTERS: Migration = Migration {
    name: "network-4-routers",
    sql: "
CREATE TABLE routers (
    seq {serial}, id TEXT NOT NULL UNIQUE, project_id TEXT NOT NULL, body TEXT NOT NULL,
    revision BIGINT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL
);
CREATE INDEX routers_project ON routers (project_id);
CREATE TABLE router_ports (
    port_id TEXT NOT NULL PRIMARY KEY REFERENCES ports (id),
    router_id TEXT NOT NULL REFERENCES routers (id),
    network_id TEXT NOT NULL REFERENCES networks (id), gateway BIGINT NOT NULL
);
CREATE INDEX router_ports_router ON router_ports (router_id);
CREATE INDEX router_ports_network ON router_ports (network_id, gateway);
CREATE UNIQUE INDEX router_ports_gateway ON router_ports (router_id) WHERE gateway = 1;
CREATE TABLE router_subnets (
    router_id TEXT NOT NULL REFERENCES routers (id), subnet_id TEXT NOT NULL REFERENCES subnets (id),
    port_id TEXT NOT NULL REFERENCES router_ports (port_id) ON DELETE CASCADE,
    PRIMARY KEY (router_id, subnet_id)
);
CREATE INDEX router_subnets_subnet ON router_subnets (subnet_id);
CREATE INDEX router_subnets_port ON router_subnets (port_id);
CREATE TABLE router_places (router_id TEXT NOT NULL PRIMARY KEY, host TEXT NOT NULL);
CREATE INDEX router_places_host ON router_places (host);
CREATE TABLE floating_ips (
    seq {serial}, id TEXT NOT NULL UNIQUE, project_id TEXT NOT NULL,
    network_id TEXT NOT NULL REFERENCES networks (id),
    own_port TEXT NOT NULL UNIQUE REFERENCES ports (id), address TEXT NOT NULL,
    port_id TEXT REFERENCES ports (id), fixed_address TEXT,
    router_id TEXT REFERENCES routers (id), body TEXT NOT NULL, revision BIGINT NOT NULL,
    created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL
);
CREATE INDEX floating_ips_project ON floating_ips (project_id);
CREATE INDEX floating_ips_network ON floating_ips (network_id);
CREATE INDEX floating_ips_router ON floating_ips (router_id) WHERE router_id IS NOT NULL;
CREATE UNIQUE INDEX floating_ips_fixed ON floating_ips (port_id, fixed_address, network_id)
    WHERE port_id IS NOT NULL;
",
};

/// Adds rows that serialize the concurrent creation of a project's resources of one kind.
const GUARDS: Migration = Migration {
    name: "network-5-quota-guards",
    sql: "
CREATE TABLE network_quota_guards (
    project_id TEXT NOT NULL, resource TEXT NOT NULL, generation BIGINT NOT NULL,
    PRIMARY KEY (project_id, resource)
);
",
};

//! The tables of servers and of the documents for the agents.

use kilonova_store::Migration;

/// Schema of servers and documents.
pub const SERVERS: &[Migration] = &[
    BASE,
    super::migrations_aggregates::AGGREGATES,
    super::migrations_moves::MOVES,
    super::migrations_actions::ACTIONS,
    super::counted::COUNTED,
    PLANS,
    super::reserved::RESERVED,
    super::hosts::REVISIONS,
    super::documents::HISTORY,
    super::guest_metadata::GUEST_METADATA,
    super::glance_images::GLANCE_IMAGES,
    super::consoles::CONSOLES,
    super::hosts::GATEWAYS,
    super::volumes::VOLUMES,
    super::external_ports::EXTERNAL_PORTS,
    super::documents::HELD,
    super::demand::DEMAND,
    super::volume_snapshots::VOLUME_SNAPSHOTS,
    super::rebalance::REBALANCE,
    super::external_ports::WAITS,
    super::external_ports::TAKEN_BY,
    super::volumes::REIMAGED,
    super::cells::CELLS,
    super::fits::FITS,
    super::samples::SAMPLES,
    super::port_claims::PORT_CLAIMS,
    super::drains::DRAINS,
    super::external_ports::NEXT_PLUGGED,
    super::drains::PAUSES,
    super::hosts::VERSIONS,
    super::cells::DIVISION,
    super::documents::REPORTS,
    super::documents::REGISTRATIONS,
    super::volumes::ACTIONS,
    super::left_guests::LEFT_GUESTS,
    super::hosts::DELETED_HOSTS,
    super::migrations_deleted::MACHINE_TYPES,
    FILES,
];

/// Indexes that prevent scans over all migrations and questions.
const PLANS: Migration = Migration {
    name: "compute-0410-plans",
    sql: "
CREATE INDEX moves_held ON moves (held_on) WHERE held_on IS NOT NULL;
CREATE INDEX moves_open_from ON moves (source_host) WHERE open_server IS NOT NULL;
CREATE INDEX moves_open_status ON moves (status, updated_at) WHERE open_server IS NOT NULL;
CREATE INDEX questions_asked ON questions (asked_at);",
};

const BASE: Migration = Migration {
    name: "compute-0100-servers",
    sql: "
CREATE TABLE servers (
    seq {serial},
    id TEXT NOT NULL UNIQUE,
    project_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    name TEXT NOT NULL,
    description TEXT,
    host TEXT,
    vm_state TEXT NOT NULL,
    task_state TEXT,
    power_state BIGINT NOT NULL,
    vcpus BIGINT NOT NULL,
    memory_mb BIGINT NOT NULL,
    spec TEXT NOT NULL,
    metadata TEXT NOT NULL,
    tags TEXT NOT NULL,
    fault TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    launched_at BIGINT,
    locked_by TEXT,
    locked_reason TEXT
);
CREATE INDEX servers_by_project ON servers (project_id, seq);
CREATE INDEX servers_by_host ON servers (host);
CREATE INDEX servers_used ON servers (project_id, user_id, vm_state, vcpus, memory_mb);
CREATE TABLE documents (
    host TEXT NOT NULL,
    server_id TEXT NOT NULL,
    generation BIGINT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (host, server_id)
);
CREATE INDEX documents_by_generation ON documents (host, generation);
CREATE INDEX documents_by_server ON documents (server_id);",
};

/// Marks the servers whose row has injected files. Earlier versions refuse such files.
const FILES: Migration = Migration {
    name: "compute-0920-injected-files",
    sql: "
ALTER TABLE servers ADD COLUMN has_files BIGINT NOT NULL DEFAULT 0;
CREATE INDEX servers_with_files ON servers (seq) WHERE has_files = 1;",
};

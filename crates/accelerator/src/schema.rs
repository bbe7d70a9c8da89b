//! The tables of the ledger.
//!
//! Two keys carry the guarantees. `attach_handles.arq_id` is unique, so a handle has at most one owner
//! and an ARQ at most one handle. `arqs (consumer_id, ordinal)` is unique, so two concurrent binds for
//! one instance cannot both commit.
//!
//! `attributes.reported` is 0 for attributes that an administrator added; reports do not change
//! them.
//!
//! `handle_changes` is append-only. Its rows copy the values of the objects that they describe, because
//! those objects may be deleted. `nova_events` is an outbox; a row is deleted once its event has been
//! delivered.
//!
//! `dirty_of` is the consumer that released a handle on a host that could not be reached. Such a
//! handle has no owner, and is not assigned until the host has removed the guest.
//!
//! `devices.card` is the physical function that a device belongs to, usually itself. `mixed` is 1
//! if handles of one card exclude each other. `one_type` is 1 if only one vGPU type can be in use
//! on the card at a time. `mig` is the geometry of a GPU in MIG mode (`kilonova_node_api::Mig`); a
//! handle in use occupies `mig_size` memory slices of that GPU, from `mig_start` on. `pcie_switch` is
//! the switch above the device. `island` identifies the cards that are all connected to each other by
//! NVLink or xGMI; its value is the first of them. `health` is the effective health, which disregards
//! an event that an administrator has acknowledged: `health_event` is the time of the last event by
//! the host's clock, and `health_dealt` that of the acknowledged one.
//!
//! `island_arq_id` is the request that has the island of the handle's device to itself. While that
//! request owns the handle, or while `dirty_of` is set, no other handle of the island is assigned.
//!
//! `parked` is the reason why a handle without an owner waits to be cleaned. Such a handle is
//! dirty, and its row is kept even while its device is absent. `device_orders` contains the orders to
//! hosts. Until an order ends, `open_key` is the device that it programs or the handle that it cleans;
//! the column is unique, so each has one open order at a time. `arqs.awaits` is the order that a
//! request in `BindStarted` waits for. `deployables.function_id` is the function of the bitstream
//! according to its image.
//!
//! `awaits_word` is the generation of the host's documents that announces the release of an
//! external instance's handle. The handle is dirty until that host (`awaits_host`) requests later
//! documents. `arqs.asked_at` is the time of the last query to the external Nova about a request's
//! instance. `request_makers` has a row for each project that has created requests: writing that row
//! serializes concurrent calls from the project, so that all of them count against its limit.
//!
//! `present` is 0 for an object that the host no longer has but a guest still uses. Such a row is
//! never assigned again and is deleted when its owner releases it.

use kilonova_store::Migration;

/// The schema of this service.
pub const MIGRATIONS: &[Migration] = &[
    Migration { name: "accelerator-001-ledger", sql: LEDGER },
    Migration { name: "accelerator-002-instances-elsewhere", sql: ELSEWHERE },
    Migration { name: "accelerator-003-hosts-to-speak", sql: SPEAKERS },
    Migration { name: "accelerator-004-mixed-cards", sql: MIXED_CARDS },
    Migration { name: "accelerator-005-plans", sql: PLANS },
    Migration { name: "accelerator-006-one-type", sql: ONE_TYPE },
    Migration { name: "accelerator-007-mig", sql: MIG },
    Migration { name: "accelerator-008-places", sql: PLACES },
    Migration { name: "accelerator-009-closed-islands", sql: CLOSED_ISLANDS },
    Migration { name: "accelerator-010-floor", sql: FLOOR },
];

/// Indexes for reading the devices of many hosts together: the few handles that are not free, and the
/// requests on a host.
const FLOOR: &str = "
CREATE INDEX attach_handles_taken ON attach_handles (deployable_id) WHERE state <> 'free';
CREATE INDEX arqs_host ON arqs (host) WHERE host IS NOT NULL;
";

const SPEAKERS: &str = "
ALTER TABLE attach_handles ADD COLUMN awaits_host TEXT;
CREATE INDEX attach_handles_speaker ON attach_handles (awaits_host, awaits_word)
    WHERE awaits_host IS NOT NULL;
";

const ELSEWHERE: &str = "
ALTER TABLE attach_handles ADD COLUMN awaits_word BIGINT;
CREATE INDEX attach_handles_word ON attach_handles (awaits_word) WHERE awaits_word IS NOT NULL;
ALTER TABLE arqs ADD COLUMN asked_at BIGINT;
CREATE INDEX arqs_elsewhere ON arqs (id) WHERE internal = 0 AND state = 'Bound';
CREATE INDEX arqs_unbound ON arqs (project_id)
    WHERE state IN ('Initial', 'Unbound', 'BindFailed') AND internal = 0;
CREATE TABLE request_makers (
    project_id TEXT NOT NULL UNIQUE,
    calls BIGINT NOT NULL
);
";

/// Indexes that find the events of one batch, and old orders, without a full scan.
const PLANS: &str = "
CREATE INDEX nova_events_batch ON nova_events (batch);
CREATE INDEX device_orders_made ON device_orders (created_at);
";

const ONE_TYPE: &str = "
ALTER TABLE devices ADD COLUMN one_type BIGINT NOT NULL DEFAULT 0;
";

const MIG: &str = "
ALTER TABLE devices ADD COLUMN mig TEXT;
ALTER TABLE attach_handles ADD COLUMN mig_start BIGINT;
ALTER TABLE attach_handles ADD COLUMN mig_size BIGINT;
";

const PLACES: &str = "
ALTER TABLE devices ADD COLUMN pcie_switch TEXT;
ALTER TABLE devices ADD COLUMN island TEXT;
";

const CLOSED_ISLANDS: &str = "
ALTER TABLE attach_handles ADD COLUMN island_arq_id TEXT;
";

/// Indexes for explaining why a boot found no valid host.
const MIXED_CARDS: &str = "
CREATE INDEX devices_mixed ON devices (host, card) WHERE mixed = 1;
CREATE INDEX deployables_class ON deployables (resource_class, device_id);
";

const LEDGER: &str = "
CREATE TABLE devices (
    id {serial},
    uuid TEXT NOT NULL UNIQUE,
    host TEXT NOT NULL,
    address TEXT NOT NULL,
    card TEXT NOT NULL,
    mixed BIGINT NOT NULL,
    kind TEXT NOT NULL,
    vendor_id TEXT NOT NULL,
    product_id TEXT NOT NULL,
    model TEXT NOT NULL,
    numa_node BIGINT NOT NULL,
    status TEXT NOT NULL,
    health TEXT NOT NULL,
    health_reason TEXT,
    health_since BIGINT,
    health_event BIGINT,
    health_dealt BIGINT,
    present BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT,
    UNIQUE (host, address)
);
CREATE INDEX devices_card ON devices (host, card);
CREATE INDEX devices_health ON devices (health);
CREATE TABLE host_reports (
    host TEXT NOT NULL UNIQUE,
    mark TEXT NOT NULL
);
CREATE TABLE deployables (
    id {serial},
    uuid TEXT NOT NULL UNIQUE,
    device_id BIGINT NOT NULL REFERENCES devices (id),
    provider_id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    resource_class TEXT NOT NULL,
    driver TEXT NOT NULL,
    bitstream_id TEXT,
    function_id TEXT,
    present BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT
);
CREATE INDEX deployables_device ON deployables (device_id);
CREATE TABLE attributes (
    id {serial},
    uuid TEXT NOT NULL UNIQUE,
    deployable_id BIGINT NOT NULL REFERENCES deployables (id),
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    reported BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT
);
CREATE INDEX attributes_deployable ON attributes (deployable_id, name);
CREATE TABLE device_profiles (
    id {serial},
    uuid TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL UNIQUE,
    description TEXT,
    groups_json TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT
);
CREATE TABLE arqs (
    id {serial},
    uuid TEXT NOT NULL UNIQUE,
    project_id TEXT NOT NULL,
    state TEXT NOT NULL,
    profile_id TEXT REFERENCES device_profiles (uuid),
    group_id BIGINT NOT NULL,
    internal BIGINT NOT NULL,
    host TEXT,
    provider_id TEXT,
    server_id TEXT,
    consumer_id TEXT,
    ordinal BIGINT,
    awaits TEXT,
    port_id TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT,
    UNIQUE (consumer_id, ordinal)
);
CREATE INDEX arqs_server ON arqs (server_id);
CREATE INDEX arqs_project ON arqs (project_id);
CREATE INDEX arqs_profile ON arqs (profile_id);
CREATE INDEX arqs_awaits ON arqs (awaits) WHERE awaits IS NOT NULL;
CREATE TABLE attach_handles (
    id {serial},
    uuid TEXT NOT NULL UNIQUE,
    deployable_id BIGINT NOT NULL REFERENCES deployables (id),
    attach_type TEXT NOT NULL,
    address TEXT NOT NULL,
    mdev_type TEXT NOT NULL,
    slot BIGINT NOT NULL,
    state TEXT NOT NULL,
    present BIGINT NOT NULL,
    arq_id TEXT REFERENCES arqs (uuid),
    dirty_of TEXT,
    parked TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT,
    UNIQUE (deployable_id, attach_type, address, mdev_type, slot)
);
CREATE UNIQUE INDEX attach_handles_arq ON attach_handles (arq_id) WHERE arq_id IS NOT NULL;
CREATE INDEX attach_handles_free ON attach_handles (deployable_id, state);
CREATE INDEX attach_handles_dirty ON attach_handles (dirty_of) WHERE dirty_of IS NOT NULL;
CREATE INDEX attach_handles_parked ON attach_handles (parked) WHERE parked IS NOT NULL;
CREATE TABLE handle_changes (
    id {serial},
    at BIGINT NOT NULL,
    change TEXT NOT NULL,
    handle_id TEXT NOT NULL,
    attach_type TEXT NOT NULL,
    address TEXT NOT NULL,
    mdev_type TEXT NOT NULL,
    host TEXT NOT NULL,
    provider_id TEXT NOT NULL,
    arq_id TEXT NOT NULL,
    server_id TEXT,
    project_id TEXT NOT NULL,
    user_id TEXT,
    request_id TEXT
);
CREATE INDEX handle_changes_server ON handle_changes (server_id);
CREATE INDEX handle_changes_at ON handle_changes (at);
CREATE TABLE device_orders (
    id {serial},
    uuid TEXT NOT NULL UNIQUE,
    host TEXT NOT NULL,
    generation BIGINT,
    task TEXT NOT NULL,
    address TEXT NOT NULL,
    device_id TEXT NOT NULL,
    deployable_id TEXT NOT NULL,
    handle_id TEXT,
    server_id TEXT,
    image_id TEXT,
    function_id TEXT,
    body TEXT NOT NULL,
    state TEXT NOT NULL,
    open_key TEXT UNIQUE,
    message TEXT,
    output TEXT,
    user_id TEXT,
    request_id TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT
);
CREATE INDEX device_orders_host ON device_orders (host, state, generation);
CREATE INDEX device_orders_state ON device_orders (state, generation);
CREATE INDEX device_orders_handle ON device_orders (handle_id);
CREATE TABLE nova_events (
    id {serial},
    batch TEXT NOT NULL,
    server_id TEXT NOT NULL,
    arq_id TEXT NOT NULL,
    status TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    due_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX nova_events_due ON nova_events (due_at);
CREATE INDEX nova_events_arq ON nova_events (arq_id);
";

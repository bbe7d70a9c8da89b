//! The accelerator service: the device ledger and the Cyborg v2 API over it.
//!
//! The ledger is authoritative for the owner of each device. Each *handle* row names its owner, an
//! ARQ, under a unique key. A device therefore cannot have two owners, even if a caller has a
//! defect. Assigning or releasing a device is part of the caller's own transaction.
//!
//! For an external Nova the service also supports Cyborg's asynchronous binding, with an outbox for
//! the events that Nova waits for ([`nova`], [`reconcile`]).
//!
//! This crate must never start, stop or call an agent. It must never choose the host of a server:
//! callers pass a provider, and the crate selects a handle of that provider.

mod api;
mod app;
mod db;
mod error;
pub mod ledger;
pub mod nova;
pub mod reconcile;
mod schema;
mod states;
mod topology;

pub use api::{RULES, State, UNBOUND_LIMIT, operations, routes, service};
pub use db::statements;
pub use error::Error;
pub use ledger::orders::{Bitstream, Bitstreams, HostNotifier};
pub use schema::MIGRATIONS;
pub use states::{
    ArqState, AttachType, DeviceStatus, EventStatus, HandleState, HealthState, OrderState,
    OrderTask, OwnerChange,
};
pub use topology::{TOPOLOGY, Topology};

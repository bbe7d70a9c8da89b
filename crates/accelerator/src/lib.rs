//! The accelerator service: the device ledger and the Cyborg v2 API over it.
//!
//! The ledger is the truth about which guest holds which device. Its one idea: the *handle* row
//! names its owner, an ARQ, under a unique key, so a device cannot have two owners whatever the
//! callers do, and taking or giving back a device is part of the caller's own transaction.
//!
//! For a Nova of somebody else the Cyborg dance is there too, with an outbox for the events that it
//! waits for ([`nova`], [`reconcile`]).
//!
//! This crate must never start, stop or ask a node, and never decide where a server goes: it is
//! told a provider and picks the handle there.

mod api;
mod app;
mod db;
mod error;
pub mod ledger;
pub mod nova;
pub mod reconcile;
mod schema;

pub use api::{RULES, State, UNBOUND_LIMIT, operations, routes, service};
pub use db::statements;
pub use error::Error;
pub use ledger::orders::{Bitstream, Bitstreams, Nodes};
pub use schema::MIGRATIONS;

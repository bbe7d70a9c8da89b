//! Servers from the request to the guest: all services over one database, with simulated hosts, on
//! both stores.

#[path = "../common/mod.rs"]
mod common;
mod kit;

mod boot;

//! The image service over HTTP, in process, on every available database.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

mod changes;
mod clients;
mod controllers;
mod data;
mod forms;
mod full_disk;
mod limits;
mod lists;
mod members;
mod metadefs;
mod object_store;
mod policy;
mod proxy;
mod refusing_store;
mod shelf;
mod slow;
mod sweeps;
mod visibility;

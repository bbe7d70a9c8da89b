//! The identity service over HTTP, in process, on every available database.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

mod cloud;
mod controllers;
mod credentials;
mod ec2;
mod groups;
mod implied;
mod keys;
mod limits;
mod login;
mod management;
mod policy;
mod registered;
mod secrets;
mod signatures;
mod starvation;
mod statements;
mod tokens;
mod trusts;
mod upgrade;

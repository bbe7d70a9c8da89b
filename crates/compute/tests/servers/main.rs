//! Servers from the request to the guest: all services over one database, with simulated hosts, on
//! both stores.

#[path = "../common/mod.rs"]
mod common;
mod kit;

mod actions;
mod boot;
mod choosing;
mod concurrent;
mod crash;
mod deleting;
mod device_orders;
mod evacuating;
mod failing;
mod failing_power;
mod fencing;
mod guest;
mod leaving;
mod lost_host;
mod matrix_ops;
mod migrations;
mod moving;
mod operator;
mod owners;
mod pictures;
mod placing;
mod power;
mod refusals;
mod request;
mod several;
mod shelving;
mod stay;
mod taken;

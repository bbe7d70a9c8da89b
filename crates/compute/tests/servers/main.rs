//! Servers from the request to the guest: all services over one database, with simulated hosts, on
//! both stores.

#[path = "../common/mod.rs"]
mod common;
mod kit;

mod actions;
mod aliases;
mod as_upstream;
mod boot;
mod by_itself;
mod checklist;
mod choosing;
mod concurrent;
mod crash;
mod deleting;
mod device_orders;
mod elsewhere;
mod evacuating;
mod explaining;
mod failing;
mod failing_power;
mod fencing;
mod filters;
mod full;
mod golden;
mod guest;
mod kept;
mod leaving;
mod lost_host;
mod matrix;
mod migrations;
mod moving;
mod networks;
mod no_room;
mod operator;
mod owners;
mod pictures;
mod placing;
mod ports;
mod power;
mod refusals;
mod request;
mod retrying;
mod several;
mod shelving;
mod showing;
mod slow;
mod stay;
mod taken;
mod telling;
mod told;
mod unsupported;
mod whereabouts;

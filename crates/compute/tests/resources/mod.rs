//! The compute API apart from servers, over HTTP in process, on both stores.

mod aggregates;
mod flavors;
mod flavors_input;
mod hosts;
mod images;
mod keypairs;
mod kit;
mod lists;
mod os_hosts;
mod quotas;
mod rows;
mod server_groups;
mod usage;
mod versions;

//! What the compute service does here, with its own transaction: servers' ports.
//!
//! The rules, checked by [`AUDIT`] and by the compute service's own after any commit:
//!
//! - an address has one port, and that port exists (keys and references see to it);
//! - a port that was made for a server is that server's;
//! - a port with a device is a server's, and on a host.
//!
//! Nothing here opens a transaction, waits, or knows what a server is but its id.

mod attach;
mod audit;
mod hosts;
mod look;
mod show;

pub use attach::{Attach, Nic, attach, bind, detach, leave, set_device};
pub use audit::AUDIT;
pub(crate) use hosts::STATEMENTS as HOSTS;
pub use hosts::{
    Change, connected_otherwise, filtered_otherwise, filters, has_changed, put_back, take_changes,
};
pub use look::{
    NetworkFacts, PortFacts, available, check_quota, groups_by_name, network, port, set_groups,
};
pub(crate) use show::STATEMENTS as SHOW;
pub use show::{
    Fixed, GroupFacts, ServerPort, at_address, group_names, group_views, of_server, of_servers,
};

//! A client of an external Neutron, with the requests that a compute service needs.
//!
//! ```text
//!   client          requests, answers, pages
//!   extensions      the extensions of the API, cached for some minutes
//!   network         networks and subnets
//!   port            ports of servers
//!   binding         the bindings of a port to hosts, one of which is active
//!   resources       the resources that a port requests from resource providers
//!   profile         the compute service's keys of binding:profile
//!   security_group  security groups, without their rules
//!   floating_ip     floating IPs of ports
//!   quota           the quota of ports
//!   topology        networks that Neutron creates for a project on demand
//! ```
//!
//! Each function is one request, or one for each page of a list. The client must never decide what
//! a server gets or the order of requests: its caller does, and journals them.

mod binding;
mod client;
mod error;
mod extensions;
mod floating_ip;
mod network;
mod port;
mod profile;
mod quota;
mod resources;
mod security_group;
mod topology;
mod values;

pub use binding::{Binding, BindingStatus, NewBinding};
pub use client::{Call, Neutron};
pub use error::{Error, Refused, Type};
pub use extensions::Extension;
pub use floating_ip::FloatingIp;
pub use network::{Network, NetworkFilter, Route, Segment, Subnet};
pub use port::{ChangedIp, FixedIp, NewPort, Port, PortChange, PortFilter, RequestedIp};
pub use profile::{Profile, released};
pub use resources::{RequestGroup, ResourceRequest, allocation};
pub use security_group::{GroupFilter, SecurityGroup};

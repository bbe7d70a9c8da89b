//! NUMA topologies: the cells of a host, the cells that a guest requests, and the fit of one onto the other.
//!
//! [`Request::parse`] reads a flavor's extra specs and an image's properties with Nova's precedence and Nova's
//! refusals. [`fit`] chooses a host cell for each guest cell, and a host CPU for each dedicated vCPU. The
//! same input always gives the same fit. [`HostTopology::claim`] counts a fit, and refuses one that
//! overlaps another.
//!
//! The crate is pure: no clock, no I/O, no async and no randomness. It must never know servers,
//! providers or rows.

mod cpus;
mod fit;
mod guest;
mod host;
mod request;
mod split;
mod usage;

pub use cpus::{Cpus, InvalidCpus, format_cpus, parse_cpus};
pub use fit::{
    CellMisfit, DevicePick, DevicePool, DeviceRequest, Devices, Fitted, FittedCell, Limits, Misfit,
    Strategy, fit,
};
pub use guest::{
    CpuPolicy, EmulatorPolicy, GuestCell, GuestTopology, Needs, PageSize, PciPolicy, ThreadPolicy,
};
pub use host::{CellLimit, HostCell, HostTopology, InvalidHost, Pages};
pub use request::{Asked, MOST_CELLS, MOST_VCPUS, Refusal, Request, Source};
pub use split::{CellRoom, share, split};
pub use usage::Conflict;

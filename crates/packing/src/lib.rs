//! Chooses a host and a device for a request so that later requests fit too.
//!
//! A host has a cost: accelerators that typical requests cannot use ([`Cost`]). A request goes to
//! the host whose cost falls most. Typical requests are learned from both placed *and* refused ones
//! ([`Demand`]). Hosts in the same state are one class, and a class's score for a shape is computed
//! once ([`Fleet`]).
//!
//! Cards that are cut into MIG instances have a geometry of their own ([`mig`]).
//!
//! The crate is pure: no clock, no I/O, no async, and no randomness but the caller's seed. It must
//! never know servers, providers or rows, and it never decides whether a claim succeeds.

mod cost;
mod demand;
mod fleet;
mod islands;
pub mod mig;
mod state;

pub use cost::{Cost, Scorer, Weights, fragment};
pub use demand::{Demand, Profile, Typical};
pub use fleet::{Fleet, Place, Placement};
pub use islands::SPLIT_COST;
pub use state::{Device, Host, Model, Models, Shape, WHOLE};

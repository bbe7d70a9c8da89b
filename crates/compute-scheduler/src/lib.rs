//! The scheduler: the engine finds hosts with resources, filters exclude hosts, weighers rank the
//! rest.
//!
//! ```text
//!   packer: hosts by cost ─► filters ─► engine: candidates ─┬─► a plan for N servers ─► the claim re-checks
//!   engine: candidates ────► filters ─► weighers ───────────┘        (with `packing = upstream`)
//!              │                │
//!              └─── explain ────┴─► the reason, if there is no valid host
//! ```
//!
//! The scheduler is pure, except that [`facts`] reads the database for requests that need it.

mod atomic;
pub mod capacity;
mod choose;
mod constraints;
mod extra_specs;
mod facts;
mod filters;
pub mod fleet;
mod intended;
pub mod owners;
pub mod packer;
mod place;
mod reason;
pub mod rebalance;
mod rules;
mod unplaced;
mod weighers;

pub use choose::{Requirements, choose};
pub use constraints::{Constraints, GroupFacts, Load, Scope};
pub use facts::{Facts, Subject, are_needed, facts, group_facts};
pub use filters::Filter;
pub use intended::{Intended, Intention};
pub use place::{Choice, Plan, device_groups, places, places_with_intentions};
pub use reason::NoHost;
pub use rules::{Packing, Rules, Weights};
pub use unplaced::{Reasons, Unplaced};

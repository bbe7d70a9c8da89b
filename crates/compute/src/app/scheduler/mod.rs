//! The choice of a host: the engine says where there is room, filters say which of these may be
//! taken, weighers which is best.
//!
//! ```text
//!   engine: candidates ─► filters ─► weighers ─► places for N servers ─► the claim re-checks
//!              │             │
//!              └─ explain ───┴─► the reason, when there is none
//! ```
//!
//! The choice itself is pure but for what it is handed; only [`facts`] reads the database, for those
//! requests that need it.

mod choose;
mod extra_specs;
mod facts;
mod filters;
mod place;
mod reason;
mod rules;
mod scene;
mod unplaced;
mod weighers;

pub use choose::{Wanted, choose};
pub use facts::{Facts, For, are_needed, facts, group_facts, group_hint};
pub use filters::Filter;
pub use place::{Choice, Plan, places};
pub use reason::NoHost;
pub use rules::{Rules, Weights};
pub use scene::{GroupFacts, Load, Scene};
pub use unplaced::{Reasons, Unplaced};

//! Draining a host: disables it and migrates its servers, as far as the operator allows.
//!
//! ```text
//!   disable ─► query ─► decide, guest by guest ─► request some moves concurrently ─┐
//!                ▲                                                                 │
//!                └───────────────────────── until nothing more can be done ◄───────┘
//! ```
//!
//! All state is in the cloud: each round starts from the current state, so an interrupted drain is
//! resumed by starting it again.

mod report;
mod run;

pub use kilonova_compute_app::drain::Allowed;
pub use run::{DrainRequest, drain, undrain};

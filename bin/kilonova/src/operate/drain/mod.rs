//! Starts, follows and stops the drain of a host, which the controllers perform.
//!
//! ```text
//!   POST …/drain ─► GET the host, print what changed ─► until the drain ends
//!                      │
//!                      └─ Ctrl-C, the timeout, the death of this process: the drain continues
//! ```
//!
//! This module must never request a move: the drain is a row in the database, from which the controllers decide.

mod report;
mod run;

pub use run::{DrainRequest, begin, drain, stop, undrain};

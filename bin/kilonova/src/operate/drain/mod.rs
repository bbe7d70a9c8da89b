//! The drain of a host, which the controllers carry out: begins it, follows it and stops it.
//!
//! ```text
//!   POST …/drain ─► GET the host, print what changed ─► until the drain is over
//!                      │
//!                      └─ Ctrl-C, the timeout, the death of this process: the drain goes on
//! ```
//!
//! This module must never request a move: the drain is a row of the cloud, and its rounds decide from the rows.

mod report;
mod run;

pub use run::{DrainRequest, begin, drain, stop, undrain};

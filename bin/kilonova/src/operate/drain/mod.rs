//! A host is emptied: it is given no new servers, and what is on it is moved, as the operator allows.
//!
//! ```text
//!   disable ─► look ─► decide, guest by guest ─► ask for a few moves at once ─┐
//!                ▲                                                            │
//!                └──────────────────────── until nothing more can be done ◄───┘
//! ```
//!
//! Nothing is kept but at the cloud: each round starts from what is there, so a drain that was ended in
//! the middle, here or there, is gone on with by starting it again.

mod board;
mod decide;
mod guest;
mod report;
mod run;

pub use decide::Allowed;
pub use run::{Wish, drain, undrain};

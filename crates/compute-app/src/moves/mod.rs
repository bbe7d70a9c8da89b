//! The effect of a move on the ledgers: claim resources on a new host, and let server and migration
//! hold one side each.
//!
//! ```text
//!                         server holds   migration holds
//!   before                source         nothing
//!   leave, then place     destination    source            the destination is being prepared
//!   swap                  source         destination       the move is being reverted
//!   drop_held             …              nothing           that host has reported that nothing is
//! left
//! ```
//!
//! The claim of a migration is released by one rule only: its host reports that nothing of the
//! server is left there. This module knows no flow and writes no document.

mod claims;
mod place;

pub use claims::{abandon_held, drop_held, drop_moves, leave, swap, take_back};
pub use place::{Search, place};

//! The effect of a move on the ledgers: claims resources on a new host, so that the server and the
//! migration hold one side each.
//!
//! ```text
//!                         server holds   migration holds
//!   before                source         nothing
//!   leave, then place     destination    source            the destination is being prepared
//!   swap                  source         destination       the move is being reverted
//!   drop_held             …              nothing           that host has removed the guest
//! ```
//!
//! The claim of a migration is released by one rule only: its host reports that it has removed the
//! guest. This module must never know a flow or write a document.

mod claims;
mod place;

pub use claims::{abandon_held, drop_held, drop_moves, leave, swap, take_back};
pub use place::{Search, place, query};

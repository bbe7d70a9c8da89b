//! What a move does to the ledger: find a place, and have server and migration hold one side each.
//!
//! ```text
//!                         server holds   migration holds
//!   before                source         nothing
//!   leave, then place     the new place  source            the new place is being made
//!   swap                  source         the new place     the move is being undone
//!   drop_held             …              nothing           that host has said that nothing is left
//! ```
//!
//! What a migration holds is given back by one rule only: when the host on which it is says that
//! nothing of the server is left there. It knows no flow and writes no document.

mod claims;
mod place;

pub use claims::{abandon_held, drop_held, leave, swap, take_back};
pub use place::{Search, place};

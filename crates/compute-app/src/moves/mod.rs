//! The effect of a move on the ledgers: claims resources on a new host, so that the server holds the claim on one side,
//! and the migration the claim on the other.
//!
//! ```text
//!                                  server holds   migration holds
//!   before                         source         nothing
//!   move_to_migration, then place  destination    source            the destination is being prepared
//!   swap                           source         destination       the move is being reverted
//!   release_claims_of_migrations   …              nothing           that host has removed the guest
//! ```
//!
//! The claim of a migration is released by one rule only: its host reports that it has removed the guest. This module
//! must never depend on a flow or write a document.

mod claims;
mod place;

pub use claims::{
    abandon_claims_of_migrations, drop_moves, move_to_migration, move_to_server,
    release_claims_of_migrations, swap,
};
pub use place::{Search, place, query};

//! Random requests to every service: whatever is sent, the response is in the form of its service
//! and not an internal error, and the ledger stays consistent.
//!
//! `KILONOVA_FUZZ_BODIES` is the number of bodies for each store, and `KILONOVA_FUZZ_SEED` selects
//! them. Both are printed, and so is each request with a wrong response, minimized.

mod cleanup;
pub mod cloud;
mod compose;
mod database;
mod generate;
mod headers;
mod identifiers;
mod mutate;
mod random;
mod run;
mod seeds;
mod shrink;
mod uri;
mod values;
mod verdict;

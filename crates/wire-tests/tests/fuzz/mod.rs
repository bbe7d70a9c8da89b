//! Random requests to every service: whatever is sent, the answer is no fault of ours, is in the
//! form of its service, and leaves a ledger that is clean.
//!
//! `KILONOVA_FUZZ_BODIES` says how many bodies are sent to each store, `KILONOVA_FUZZ_SEED` which
//! ones; both are printed, and so is each request that was answered wrongly, made as small as it
//! stays wrong.

pub mod cloud;
mod compose;
mod database;
mod grow;
mod headers;
mod judge;
mod pool;
mod random;
mod run;
mod seeds;
mod shrink;
mod spoil;
mod tidy;
mod uri;
mod values;

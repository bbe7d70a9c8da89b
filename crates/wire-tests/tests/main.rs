//! Judges the APIs by upstream's documents, recordings, random requests and rules.

mod compute;
mod fuzz;
mod policy;

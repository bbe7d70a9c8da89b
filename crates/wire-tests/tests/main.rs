//! What goes over the wire, judged by upstream's documents, recordings, random requests and rules.

mod compute;
mod fuzz;
mod policy;

//! Shared by all tests: a place to start the program in, the running program, and a client that can
//! send malformed requests.

pub mod client;
pub mod cloud;
pub mod place;
pub mod serve;

pub use client::{Answer, Session};
pub use cloud::Cloud;
pub use place::Place;
pub use serve::Serve;

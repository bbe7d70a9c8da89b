//! Shared by all tests: a place to start the program in, the running program, and a client that can
//! send malformed requests.

pub mod client;
pub mod cloud;
pub mod environment;
pub mod serve;

pub use client::{Answer, Session};
pub use cloud::Cloud;
pub use environment::Environment;
pub use serve::Serve;

//! The tests of this crate that need a database: one program, so that it is linked once.

mod http;
mod kit;
mod policy;

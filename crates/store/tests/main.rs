//! The tests of this crate that need a database.

mod doubt;
mod full;
mod readers;
mod statistics;

//! The failure of a command.

pub use kilonova_program::Failure;

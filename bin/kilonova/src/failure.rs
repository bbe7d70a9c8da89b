//! How a command ends badly.

pub use kilonova_program::Failure;

//! The links of a host: what there is, and the steps from there to what is wanted.

mod plan;
mod read;

pub(crate) use plan::plan;
pub(crate) use read::{Address, Link, Links, parse, read};

/// The alias of what is ours.
pub(crate) const OURS: &str = "kilonova";

#[cfg(test)]
mod tests;

//! The links of a host: reading them, and the steps to the desired links.

mod plan;
mod read;
mod veth;

pub(crate) use plan::plan;
pub(crate) use read::{Address, Link, Links, read};
pub(crate) use veth::{Veth, veth};

/// The alias of our links.
pub(crate) const OURS: &str = "kilonova";

#[cfg(test)]
mod tests;

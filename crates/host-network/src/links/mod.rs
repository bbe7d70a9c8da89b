//! The links of a host: reading them, and the steps to the desired links.

mod hybrid;
mod plan;
mod read;
mod veth;

pub(crate) use hybrid::is_used;
pub(crate) use plan::plan;
#[cfg(test)]
pub(crate) use read::parse as parse_links;
pub(crate) use read::{Address, Link, Links, read};
pub(crate) use veth::{Veth, veth};

/// The alias of our links.
pub(crate) const OURS: &str = "kilonova";

#[cfg(test)]
mod tests;

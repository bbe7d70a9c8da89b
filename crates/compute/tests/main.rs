//! The tests of this crate over its API, with simulated hosts and a database.

mod common;
mod machines;
mod resources;
mod servers;

use servers::kit;

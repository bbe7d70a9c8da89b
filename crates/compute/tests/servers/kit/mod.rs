//! A whole cloud in the test's process: services over a database, simulated hosts, a client.

mod cloud;
mod ledger;
mod nets;
mod nodes;
mod topology;
mod up;
mod wait;
mod wire;

pub use crate::common::{ADMIN, ANN, Answer, BOB, Client};
pub use cloud::{Cloud, client};
pub use ledger::fault;
pub use topology::{DISK, FPGA, GPU, GPUS, INTEL, ONCE, TYPED, aliases, cards, hosts};
pub use up::Up;
pub use wait::patiently;

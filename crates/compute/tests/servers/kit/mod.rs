//! A whole cloud in the test's process: services over a database, simulated hosts, a client.

mod cloud;
mod ledger;
mod topology;
mod up;

pub use crate::common::{ADMIN, ANN, Answer, BOB};
pub use cloud::Cloud;
pub use ledger::fault;
pub use topology::{FPGA, GPU, GPUS, hosts};
pub use up::{Up, patiently};

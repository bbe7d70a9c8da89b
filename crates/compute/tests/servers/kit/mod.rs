//! A cloud in the test's process: services over a database, simulated hosts, a client.

mod cloud;
mod controllers;
mod external;
mod ledger;
mod link;
mod networks;
mod nodes;
mod running;
mod topology;
mod wait;

pub use crate::common::{ADMIN, ANN, Answer, BOB, Client};
pub use cloud::{Cloud, client};
pub use controllers::{Controller, Controllers};
pub use ledger::fault;
pub use running::RunningCloud;
pub use topology::{
    DISK, FPGA, GPU, GPUS, INTEL, MIG, MIG_CLASSES, ONCE, RETYPED, RETYPED_VFIO, TWO_CELLS,
    VFIO_VGPU, aliases, hosts, network_cards,
};
pub use wait::wait_until;

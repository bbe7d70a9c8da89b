//! Deletes that die on their way.

use super::{Act, Before, Flow, matrix};
use crate::kit::{FPGA, GPU, hosts};

const SLOW: &str = "times_ms = { image = 5, define = 5, start = 5, destroy = 5 }";

#[tokio::test]
async fn of_a_server_with_a_vgpu() {
    matrix::run(Flow {
        name: "delete with a vGPU",
        topology: || hosts(&[("a", &[GPU])]),
        flavor: "vgpu",
        before: Before::Active,
        act: Act::Delete,
        done: &[],
        otherwise: &[&["ACTIVE"]],
    })
    .await;
}

#[tokio::test]
async fn of_a_stopped_server_with_an_fpga() {
    matrix::run(Flow {
        name: "delete of a stopped one",
        topology: || hosts(&[("a", &[FPGA])]),
        flavor: "fpga",
        before: Before::Stopped,
        act: Act::Delete,
        done: &[],
        otherwise: &[&["SHUTOFF"]],
    })
    .await;
}

#[tokio::test]
async fn during_the_build() {
    matrix::run(Flow {
        name: "delete during the build",
        topology: || hosts(&[("a", &[GPU, SLOW])]),
        flavor: "vgpu",
        before: Before::Nothing,
        act: Act::BootAndDelete,
        done: &[],
        otherwise: &[&["ACTIVE"]],
    })
    .await;
}

#[tokio::test]
async fn on_a_host_that_counts_as_lost() {
    matrix::run(Flow {
        name: "delete on a lost host",
        topology: || hosts(&[("a", &[GPU])]),
        flavor: "vgpu-pair",
        before: Before::Active,
        act: Act::DeleteOnLostHost("a"),
        done: &[],
        otherwise: &[&["ACTIVE"]],
    })
    .await;
}

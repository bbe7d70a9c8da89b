//! Deletes with crashes.

use super::{Act, Before, Flow, matrix};
use crate::kit::{FPGA, GPU, hosts};

const SLOW: &str = "times_ms = { image = 5, define = 5, start = 5, destroy = 5 }";

#[tokio::test]
async fn delete_with_a_vgpu() {
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
async fn delete_of_a_stopped_server_with_an_fpga() {
    matrix::run(Flow {
        name: "delete after a stop",
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
async fn delete_during_the_build() {
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
async fn delete_on_a_lost_host() {
    matrix::run(Flow {
        name: "delete on a host that is down",
        topology: || hosts(&[("a", &[GPU])]),
        flavor: "vgpu-pair",
        before: Before::Active,
        act: Act::DeleteOnLostHost("a"),
        done: &[],
        otherwise: &[&["ACTIVE"]],
    })
    .await;
}

//! Boots with crashes.

use kilonova_node::topology::Topology;

use super::{Act, Before, Flow, matrix};
use crate::kit::{FPGA, GPU, MIG, RETYPED, RETYPED_VFIO, TWO_CELLS, hosts};

const BAD: &str = "fail = [{ step = \"start\" }]";

#[tokio::test]
async fn a_boot_with_a_vgpu() {
    matrix::run(Flow {
        name: "boot with a vGPU",
        topology: || hosts(&[("a", &[GPU])]),
        flavor: "vgpu",
        before: Before::Nothing,
        act: Act::Boot,
        done: &["ACTIVE"],
        otherwise: &[&[]],
    })
    .await;
}

#[tokio::test]
async fn a_boot_with_dedicated_cpus() {
    matrix::run(Flow {
        name: "boot with dedicated CPUs",
        topology: || hosts(&[("a", &[TWO_CELLS])]),
        flavor: "dedicated",
        before: Before::Nothing,
        act: Act::Boot,
        done: &["ACTIVE"],
        otherwise: &[&[]],
    })
    .await;
}

#[tokio::test]
async fn a_boot_with_an_fpga() {
    matrix::run(Flow {
        name: "boot with an FPGA",
        topology: || hosts(&[("a", &[FPGA])]),
        flavor: "fpga",
        before: Before::Nothing,
        act: Act::Boot,
        done: &["ACTIVE"],
        otherwise: &[&[]],
    })
    .await;
}

#[tokio::test]
async fn a_boot_that_changes_a_cards_type() {
    matrix::run(retyping(|| hosts(&[("a", &[RETYPED])]))).await;
}

#[tokio::test]
async fn a_boot_that_changes_the_type_of_functions() {
    matrix::run(retyping(|| hosts(&[("a", &[RETYPED_VFIO])]))).await;
}

#[tokio::test]
async fn a_boot_with_another_gpu_instance() {
    matrix::run(retyping(|| hosts(&[("a", &[MIG])]))).await;
}

fn retyping(topology: fn() -> Topology) -> Flow {
    Flow {
        name: "boot on a card of another type",
        topology,
        flavor: "small",
        before: Before::Active,
        act: Act::ChangeType("large"),
        done: &["ACTIVE"],
        otherwise: &[&[]],
    }
}

#[tokio::test]
async fn boot_of_three() {
    matrix::run(Flow {
        name: "boot of three",
        topology: || hosts(&[("a", &[GPU]), ("b", &[GPU])]),
        flavor: "vgpu",
        before: Before::Nothing,
        act: Act::BootThree,
        done: &["ACTIVE", "ACTIVE", "ACTIVE"],
        otherwise: &[&[]],
    })
    .await;
}

#[tokio::test]
async fn boot_of_one_to_four() {
    matrix::run(Flow {
        name: "boot of one to four",
        topology: || hosts(&[("a", &[GPU])]),
        flavor: "vgpu4",
        before: Before::Nothing,
        act: Act::BootSome,
        done: &["ACTIVE", "ACTIVE"],
        otherwise: &[&[]],
    })
    .await;
}

#[tokio::test]
async fn a_boot_that_fails_on_its_only_host() {
    matrix::run(Flow {
        name: "boot that fails",
        topology: || hosts(&[("bad", &[GPU, BAD])]),
        flavor: "vgpu",
        before: Before::Nothing,
        act: Act::Boot,
        done: &["ERROR"],
        otherwise: &[&[]],
    })
    .await;
}

#[tokio::test]
async fn a_boot_that_fails_on_two_hosts() {
    matrix::run(Flow {
        name: "boot that fails twice",
        topology: || hosts(&[("bad1", &[GPU, BAD]), ("bad2", &[GPU, BAD])]),
        flavor: "vgpu",
        before: Before::Nothing,
        act: Act::Boot,
        done: &["ERROR"],
        otherwise: &[&[]],
    })
    .await;
}

#[tokio::test]
async fn a_boot_rescheduled_to_another_host() {
    matrix::run(Flow {
        name: "boot, rescheduled",
        topology: || hosts(&[("bad1", &[GPU, BAD]), ("bad2", &[GPU, BAD]), ("good", &[GPU])]),
        flavor: "vgpu",
        before: Before::Nothing,
        act: Act::Boot,
        done: &["ACTIVE"],
        otherwise: &[&[]],
    })
    .await;
}

#[tokio::test]
async fn a_boot_without_a_valid_host() {
    matrix::run(Flow {
        name: "boot without valid hosts",
        topology: || hosts(&[("a", &[])]),
        flavor: "vgpu",
        before: Before::Nothing,
        act: Act::Boot,
        done: &["ERROR"],
        otherwise: &[&[]],
    })
    .await;
}

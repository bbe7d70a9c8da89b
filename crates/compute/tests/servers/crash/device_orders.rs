//! Boots that program an FPGA and deletes that clean a disk, with crashes.

use super::{Act, Before, Flow, matrix};
use crate::kit::{DISK, INTEL, hosts};

#[tokio::test]
async fn a_boot_that_programs_an_fpga() {
    matrix::run(Flow {
        name: "boot with a bitstream",
        topology: || hosts(&[("a", &[INTEL])]),
        flavor: "loaded",
        before: Before::Nothing,
        act: Act::Boot,
        done: &["ACTIVE"],
        otherwise: &[&[]],
    })
    .await;
}

#[tokio::test]
async fn a_boot_with_an_invalid_bitstream() {
    matrix::run(Flow {
        name: "boot with a bad bitstream",
        topology: || hosts(&[("a", &[INTEL])]),
        flavor: "spoilt",
        before: Before::Nothing,
        act: Act::Boot,
        done: &["ERROR"],
        otherwise: &[&[]],
    })
    .await;
}

#[tokio::test]
async fn a_delete_followed_by_disk_cleaning() {
    matrix::run(Flow {
        name: "delete with a disk",
        topology: || hosts(&[("a", &[DISK])]),
        flavor: "disk",
        before: Before::Active,
        act: Act::Delete,
        done: &[],
        otherwise: &[&["ACTIVE"]],
    })
    .await;
}

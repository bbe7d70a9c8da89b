//! Boots that have a card programmed, and deletes that have a disk cleared, dying on their way.

use super::{Act, Before, Flow, matrix};
use crate::kit::{DISK, INTEL, hosts};

#[tokio::test]
async fn a_boot_that_has_a_card_programmed() {
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
async fn a_boot_whose_bitstream_is_none() {
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
async fn a_delete_after_which_a_disk_is_cleared() {
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

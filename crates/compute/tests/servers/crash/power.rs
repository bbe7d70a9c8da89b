//! Power operations with crashes.

use super::{Before, Flow, flow, matrix};
use crate::kit::{GPU, hosts};

const STOP: &str = r#"{"os-stop": null}"#;
const START: &str = r#"{"os-start": null}"#;
const SOFT: &str = r#"{"reboot": {"type": "SOFT"}}"#;
const HARD: &str = r#"{"reboot": {"type": "HARD"}}"#;

#[tokio::test]
async fn stop() {
    matrix::run(flow("stop", Before::Active, &[STOP], &["SHUTOFF"], &[&["ACTIVE"]])).await;
}

#[tokio::test]
async fn start() {
    matrix::run(flow("start", Before::Stopped, &[START], &["ACTIVE"], &[&["SHUTOFF"]])).await;
}

#[tokio::test]
async fn soft_reboot() {
    matrix::run(flow("soft reboot", Before::Active, &[SOFT], &["ACTIVE"], &[])).await;
}

#[tokio::test]
async fn hard_reboot() {
    matrix::run(flow("hard reboot", Before::Active, &[HARD], &["ACTIVE"], &[])).await;
}

#[tokio::test]
async fn hard_reboot_of_a_stopped_server() {
    let hard = flow("boot by reboot", Before::Stopped, &[HARD], &["ACTIVE"], &[&["SHUTOFF"]]);
    matrix::run(hard).await;
}

#[tokio::test]
async fn hard_reboot_during_a_soft_reboot() {
    let topology = || hosts(&[("a", &[GPU, "times_ms = { reboot = 20 }"])]);
    let both = flow("hard over soft", Before::Active, &[SOFT, HARD], &["ACTIVE"], &[]);
    matrix::run(Flow { topology, ..both }).await;
}

#[tokio::test]
async fn a_stop_that_fails() {
    let topology = || hosts(&[("a", &[GPU, "fail = [{ step = \"stop\" }]"])]);
    let stop = flow("stop that fails", Before::Active, &[STOP], &["ACTIVE"], &[]);
    matrix::run(Flow { topology, ..stop }).await;
}

//! Power operations that die on their way.

use super::{Act, Before, Flow, matrix};
use crate::kit::{GPU, hosts};

async fn power(
    name: &'static str,
    before: Before,
    body: &'static str,
    done: &'static [&'static str],
    otherwise: &'static [&'static [&'static str]],
) {
    let act = Act::Action(body);
    let topology = || hosts(&[("a", &[GPU])]);
    matrix::run(Flow { name, topology, flavor: "vgpu", before, act, done, otherwise }).await;
}

#[tokio::test]
async fn stop() {
    power("stop", Before::Active, r#"{"os-stop": null}"#, &["SHUTOFF"], &[&["ACTIVE"]]).await;
}

#[tokio::test]
async fn start() {
    power("start", Before::Stopped, r#"{"os-start": null}"#, &["ACTIVE"], &[&["SHUTOFF"]]).await;
}

#[tokio::test]
async fn soft_reboot() {
    let body = r#"{"reboot": {"type": "SOFT"}}"#;
    power("soft reboot", Before::Active, body, &["ACTIVE"], &[]).await;
}

#[tokio::test]
async fn hard_reboot() {
    let body = r#"{"reboot": {"type": "HARD"}}"#;
    power("hard reboot", Before::Active, body, &["ACTIVE"], &[]).await;
}

#[tokio::test]
async fn hard_reboot_of_a_stopped_one() {
    let body = r#"{"reboot": {"type": "HARD"}}"#;
    power("boot by reboot", Before::Stopped, body, &["ACTIVE"], &[&["SHUTOFF"]]).await;
}

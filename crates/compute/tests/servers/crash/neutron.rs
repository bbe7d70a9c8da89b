//! Crashes before and after each call to the Neutron of a cloud: each call is between two writes.

use super::{Act, Before, Flow, matrix};
use crate::kit::hosts;

fn on_neutron(name: &'static str, before: Before, act: Act) -> Flow {
    let topology = || hosts(&[("a", &[]), ("b", &[])]);
    Flow { name, topology, flavor: "plain", before, act, done: &["ACTIVE"], otherwise: &[&[]] }
}

#[tokio::test]
async fn a_boot() {
    matrix::run_on_neutron(on_neutron("boot", Before::Nothing, Act::Boot)).await;
}

#[tokio::test]
async fn a_boot_and_a_deletion() {
    let flow = on_neutron("boot and delete", Before::Nothing, Act::BootAndDelete);
    matrix::run_on_neutron(Flow { done: &[], otherwise: &[&["ACTIVE"]], ..flow }).await;
}

#[tokio::test]
async fn a_deletion() {
    let flow = on_neutron("delete", Before::Active, Act::Delete);
    matrix::run_on_neutron(Flow { done: &[], otherwise: &[&["ACTIVE"]], ..flow }).await;
}

#[tokio::test]
async fn a_boot_that_waits_for_plugged_ports() {
    matrix::run_on_late_neutron(on_neutron("boot, plugged late", Before::Nothing, Act::Boot)).await;
}

#[tokio::test]
async fn an_unshelving_that_waits_for_plugged_ports() {
    let before = Before::AfterActions(&[(r#"{"shelve": null}"#, "SHELVED_OFFLOADED")]);
    let act = Act::Actions(&[r#"{"unshelve": null}"#]);
    let flow = on_neutron("unshelve, plugged late", before, act);
    let otherwise: &[&[&str]] = &[&["SHELVED_OFFLOADED"]];
    matrix::run_on_late_neutron(Flow { otherwise, ..flow }).await;
}

#[tokio::test]
async fn an_evacuation_that_waits_for_plugged_ports() {
    let flow = on_neutron("evacuate, plugged late", Before::ActiveOnA, Act::Evacuate);
    matrix::run_on_late_neutron(Flow { otherwise: &[&["ACTIVE"]], ..flow }).await;
}

#[tokio::test]
async fn a_revert_that_waits_for_plugged_ports() {
    let act = Act::Operate(&[r#"{"revertResize": null}"#]);
    let flow = on_neutron("revert, plugged late", Before::Migrated, act);
    matrix::run_on_late_neutron(Flow { otherwise: &[&["VERIFY_RESIZE"]], ..flow }).await;
}

#[tokio::test]
async fn a_cold_migration() {
    let act = Act::Operate(&[r#"{"migrate": null}"#]);
    let flow = on_neutron("migrate", Before::ActiveOnA, act);
    let otherwise: &[&[&str]] = &[&["ACTIVE"]];
    matrix::run_on_neutron(Flow { done: &["VERIFY_RESIZE"], otherwise, ..flow }).await;
}

#[tokio::test]
async fn a_revert() {
    let act = Act::Operate(&[r#"{"revertResize": null}"#]);
    let flow = on_neutron("revert", Before::Migrated, act);
    matrix::run_on_neutron(Flow { otherwise: &[&["VERIFY_RESIZE"]], ..flow }).await;
}

#[tokio::test]
async fn a_live_migration() {
    let act = Act::Operate(&[r#"{"os-migrateLive": {"host": null, "block_migration": "auto"}}"#]);
    matrix::run_on_neutron(on_neutron("live migration", Before::ActiveOnA, act)).await;
}

#[tokio::test]
async fn an_evacuation() {
    let flow = on_neutron("evacuate", Before::ActiveOnA, Act::Evacuate);
    matrix::run_on_neutron(Flow { otherwise: &[&["ACTIVE"]], ..flow }).await;
}

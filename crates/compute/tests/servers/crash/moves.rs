//! Moves that die on their way.

use super::{Act, Before, Flow, matrix};
use crate::kit::{GPU, hosts};

const MIGRATE: &str = r#"{"migrate": null}"#;
const CONFIRM: &str = r#"{"confirmResize": null}"#;
const REVERT: &str = r#"{"revertResize": null}"#;
const LIVE: &str = r#"{"os-migrateLive": {"host": null, "block_migration": "auto"}}"#;
const SLOW: &str = "times_ms = { start = 5, stop = 5, migrate = 5 }";

fn flow(
    name: &'static str,
    before: Before,
    act: Act,
    done: &'static [&'static str],
    otherwise: &'static [&'static [&'static str]],
) -> Flow {
    let topology = || hosts(&[("a", &[GPU]), ("b", &[GPU])]);
    Flow { name, topology, flavor: "vgpu", before, act, done, otherwise }
}

#[tokio::test]
async fn a_cold_migration() {
    let act = Act::Operate(&[MIGRATE]);
    let flow = flow("cold migration", Before::OnA, act, &["VERIFY_RESIZE"], &[&["ACTIVE"]]);
    matrix::run(flow).await;
}

#[tokio::test]
async fn a_cold_migration_that_fails_there() {
    let topology = || hosts(&[("a", &[GPU]), ("b", &[GPU, "fail = [{ step = \"start\" }]"])]);
    let act = Act::Operate(&[MIGRATE]);
    let flow = flow("cold migration that fails", Before::OnA, act, &["ACTIVE"], &[]);
    matrix::run(Flow { topology, ..flow }).await;
}

#[tokio::test]
async fn a_confirmation() {
    let act = Act::Operate(&[CONFIRM]);
    let flow = flow("confirmation", Before::Moved, act, &["ACTIVE"], &[&["VERIFY_RESIZE"]]);
    matrix::run(flow).await;
}

#[tokio::test]
async fn a_revert() {
    let act = Act::Operate(&[REVERT]);
    let flow = flow("revert", Before::Moved, act, &["ACTIVE"], &[&["VERIFY_RESIZE"]]);
    matrix::run(flow).await;
}

#[tokio::test]
async fn a_delete_on_the_way() {
    let topology = || hosts(&[("a", &[GPU, SLOW]), ("b", &[GPU, SLOW])]);
    let act = Act::OperateAndDelete(MIGRATE);
    let otherwise: &[&[&str]] = &[&["ACTIVE"], &["VERIFY_RESIZE"]];
    let flow = flow("delete on the way", Before::OnA, act, &[], otherwise);
    matrix::run(Flow { topology, ..flow }).await;
}

#[tokio::test]
async fn a_delete_of_a_moved_one() {
    let act = Act::OperateAndDelete(REVERT);
    let otherwise: &[&[&str]] = &[&["ACTIVE"], &["VERIFY_RESIZE"]];
    matrix::run(flow("delete of a moved one", Before::Moved, act, &[], otherwise)).await;
}

#[tokio::test]
async fn an_evacuation() {
    matrix::run(flow("evacuation", Before::OnA, Act::Evacuate, &["ACTIVE"], &[])).await;
}

#[tokio::test]
async fn a_live_migration() {
    let act = Act::Operate(&[LIVE]);
    matrix::run(flow("live migration", Before::OnA, act, &["ACTIVE"], &[])).await;
}

#[tokio::test]
async fn a_live_migration_that_fails_on_its_way() {
    let topology = || hosts(&[("a", &[GPU, "fail = [{ step = \"migrate\" }]"]), ("b", &[GPU])]);
    let act = Act::Operate(&[LIVE]);
    let flow = flow("live migration that fails", Before::OnA, act, &["ACTIVE"], &[]);
    matrix::run(Flow { topology, ..flow }).await;
}

#[tokio::test]
async fn a_delete_of_one_that_leaves() {
    let topology = || hosts(&[("a", &[GPU, SLOW]), ("b", &[GPU, SLOW])]);
    let act = Act::OperateAndDelete(LIVE);
    let flow = flow("delete while it leaves", Before::OnA, act, &[], &[&["ACTIVE"]]);
    matrix::run(Flow { topology, ..flow }).await;
}

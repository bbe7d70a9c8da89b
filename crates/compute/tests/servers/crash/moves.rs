//! Migrations, resizes and evacuations with crashes.

use kilonova_compute_app::Options;
use kilonova_node::topology::Topology;

use super::{Act, Before, Flow, matrix};
use crate::kit::{GPU, TWO_CELLS, hosts};

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
    let flow = flow("cold migration", Before::ActiveOnA, act, &["VERIFY_RESIZE"], &[&["ACTIVE"]]);
    matrix::run(flow).await;
}

#[tokio::test]
async fn a_cold_migration_of_dedicated_cpus() {
    let act = Act::Operate(&[MIGRATE]);
    run_with_cpus(flow(
        "CPUs: migration",
        Before::ActiveOnA,
        act,
        &["VERIFY_RESIZE"],
        &[&["ACTIVE"]],
    ))
    .await;
}

/// Runs with a server that has dedicated CPUs, on hosts with NUMA cells.
async fn run_with_cpus(flow: Flow) {
    let topology = || hosts(&[("a", &[TWO_CELLS]), ("b", &[TWO_CELLS])]);
    matrix::run(Flow { topology, flavor: "dedicated", ..flow }).await;
}

#[tokio::test]
async fn a_confirmation_of_dedicated_cpus() {
    let act = Act::Operate(&[CONFIRM]);
    let otherwise: &[&[&str]] = &[&["VERIFY_RESIZE"]];
    run_with_cpus(flow("CPUs: confirmation", Before::Migrated, act, &["ACTIVE"], otherwise)).await;
}

#[tokio::test]
async fn a_revert_of_dedicated_cpus() {
    let act = Act::Operate(&[REVERT]);
    let otherwise: &[&[&str]] = &[&["VERIFY_RESIZE"]];
    run_with_cpus(flow("CPUs: revert", Before::Migrated, act, &["ACTIVE"], otherwise)).await;
}

#[tokio::test]
async fn an_evacuation_of_dedicated_cpus() {
    let act = Act::Evacuate;
    run_with_cpus(flow("CPUs: evacuation", Before::ActiveOnA, act, &["ACTIVE"], &[])).await;
}

#[tokio::test]
async fn a_live_migration_of_dedicated_cpus() {
    let act = Act::Operate(&[LIVE]);
    run_with_cpus(flow("CPUs: live migration", Before::ActiveOnA, act, &["ACTIVE"], &[])).await;
}

#[tokio::test]
async fn a_cold_migration_that_fails_on_the_destination() {
    let topology = || hosts(&[("a", &[GPU]), ("b", &[GPU, "fail = [{ step = \"start\" }]"])]);
    let act = Act::Operate(&[MIGRATE]);
    let flow = flow("cold migration that fails", Before::ActiveOnA, act, &["ACTIVE"], &[]);
    matrix::run(Flow { topology, ..flow }).await;
}

#[tokio::test]
async fn a_confirmation() {
    let act = Act::Operate(&[CONFIRM]);
    let flow = flow("confirmation", Before::Migrated, act, &["ACTIVE"], &[&["VERIFY_RESIZE"]]);
    matrix::run(flow).await;
}

#[tokio::test]
async fn a_revert() {
    let act = Act::Operate(&[REVERT]);
    let flow = flow("revert", Before::Migrated, act, &["ACTIVE"], &[&["VERIFY_RESIZE"]]);
    matrix::run(flow).await;
}

#[tokio::test]
async fn a_delete_during_a_cold_migration() {
    let topology = || hosts(&[("a", &[GPU, SLOW]), ("b", &[GPU, SLOW])]);
    let act = Act::OperateAndDelete(MIGRATE);
    let otherwise: &[&[&str]] = &[&["ACTIVE"], &["VERIFY_RESIZE"]];
    let flow = flow("cold migration, then delete", Before::ActiveOnA, act, &[], otherwise);
    matrix::run(Flow { topology, ..flow }).await;
}

#[tokio::test]
async fn a_delete_during_a_revert() {
    let act = Act::OperateAndDelete(REVERT);
    let otherwise: &[&[&str]] = &[&["ACTIVE"], &["VERIFY_RESIZE"]];
    matrix::run(flow("revert, then delete", Before::Migrated, act, &[], otherwise)).await;
}

#[tokio::test]
async fn an_evacuation() {
    matrix::run(flow("evacuation", Before::ActiveOnA, Act::Evacuate, &["ACTIVE"], &[])).await;
}

#[tokio::test]
async fn an_evacuation_that_fails_on_the_destination() {
    let topology = || hosts(&[("a", &[GPU]), ("b", &[GPU, "fail = [{ step = \"start\" }]"])]);
    let flow = flow("evacuation that fails", Before::ActiveOnA, Act::Evacuate, &["ACTIVE"], &[]);
    matrix::run(Flow { topology, ..flow }).await;
}

/// Runs on a single host, with `allow_resize_to_same_host`.
async fn run_on_one_host(flow: Flow) {
    let options = Options { allow_resize_to_same_host: true, ..Options::default() };
    let topology = || hosts(&[("a", &[GPU])]);
    matrix::run_with(Flow { topology, ..flow }, options).await;
}

const PAIR: &str = r#"{"resize": {"flavorRef": "vgpu-pair"}}"#;
const RESIZED_TO_PAIR: Before = Before::AfterActionsOnA(&[(PAIR, "VERIFY_RESIZE")]);

#[tokio::test]
async fn a_resize_on_one_host() {
    let act = Act::Operate(&[PAIR]);
    run_on_one_host(flow("resize", Before::ActiveOnA, act, &["VERIFY_RESIZE"], &[&["ACTIVE"]]))
        .await;
}

#[tokio::test]
async fn a_confirmation_on_one_host() {
    let act = Act::Operate(&[CONFIRM]);
    run_on_one_host(flow("confirm here", RESIZED_TO_PAIR, act, &["ACTIVE"], &[&["VERIFY_RESIZE"]]))
        .await;
}

#[tokio::test]
async fn a_revert_on_one_host() {
    let act = Act::Operate(&[REVERT]);
    run_on_one_host(flow("revert here", RESIZED_TO_PAIR, act, &["ACTIVE"], &[&["VERIFY_RESIZE"]]))
        .await;
}

const SLOW_MIGRATION: &str = "times_ms = { migrate = 150 }";

#[tokio::test]
async fn an_aborted_live_migration() {
    let topology = || hosts(&[("a", &[GPU, SLOW_MIGRATION]), ("b", &[GPU])]);
    let flow = flow("live migration, aborted", Before::ActiveOnA, Act::Abort, &["ACTIVE"], &[]);
    matrix::run(Flow { topology, ..flow }).await;
}

#[tokio::test]
async fn a_live_migration_forced_to_complete() {
    let topology = || hosts(&[("a", &[GPU, SLOW_MIGRATION]), ("b", &[GPU])]);
    let flow = flow(
        "live migration, forced to complete",
        Before::ActiveOnA,
        Act::ForceComplete,
        &["ACTIVE"],
        &[],
    );
    matrix::run(Flow { topology, ..flow }).await;
}

#[tokio::test]
async fn an_unshelving_to_another_host() {
    const SHELVED: &[(&str, &str)] = &[(r#"{"shelve": null}"#, "SHELVED_OFFLOADED")];
    let act = Act::Operate(&[r#"{"unshelve": {"host": "b"}}"#]);
    let otherwise: &[&[&str]] = &[&["SHELVED_OFFLOADED"]];
    let flow =
        flow("unshelve elsewhere", Before::AfterActionsOnA(SHELVED), act, &["ACTIVE"], otherwise);
    matrix::run(flow).await;
}

#[tokio::test]
async fn a_live_migration() {
    let act = Act::Operate(&[LIVE]);
    matrix::run(flow("live migration", Before::ActiveOnA, act, &["ACTIVE"], &[])).await;
}

/// The guest arrives, and the source reports a failure.
async fn run_unacknowledged(guest: &'static str, topology: fn() -> Topology) {
    let act = Act::Operate(&[LIVE]);
    let flow = flow(guest, Before::ActiveOnA, act, &["ACTIVE"], &[]);
    matrix::run(Flow { topology, ..flow }).await;
}

#[tokio::test]
async fn a_live_migration_with_a_lost_acknowledgement() {
    run_unacknowledged("live migration, lost acknowledgement", || {
        let fail = "fail = [{ step = \"migrate\", guest = \"destination\" }]";
        hosts(&[("a", &[GPU, fail]), ("b", &[GPU])])
    })
    .await;
}

#[tokio::test]
async fn a_live_migration_that_leaves_the_guest_paused() {
    run_unacknowledged("live migration, guest left paused", || {
        let fail = "fail = [{ step = \"migrate\", guest = \"both\" }]";
        hosts(&[("a", &[GPU, fail]), ("b", &[GPU])])
    })
    .await;
}

#[tokio::test]
async fn a_live_migration_that_fails() {
    let topology = || hosts(&[("a", &[GPU, "fail = [{ step = \"migrate\" }]"]), ("b", &[GPU])]);
    let act = Act::Operate(&[LIVE]);
    let flow = flow("live migration that fails", Before::ActiveOnA, act, &["ACTIVE"], &[]);
    matrix::run(Flow { topology, ..flow }).await;
}

#[tokio::test]
async fn a_delete_during_a_live_migration() {
    let topology = || hosts(&[("a", &[GPU, SLOW]), ("b", &[GPU, SLOW])]);
    let act = Act::OperateAndDelete(LIVE);
    let flow = flow("delete during live migration", Before::ActiveOnA, act, &[], &[&["ACTIVE"]]);
    matrix::run(Flow { topology, ..flow }).await;
}

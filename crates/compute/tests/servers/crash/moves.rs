//! Moves that die on their way.

use kilonova_compute::Options;
use kilonova_node::topology::Topology;

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
async fn an_evacuation_that_fails_there() {
    let topology = || hosts(&[("a", &[GPU]), ("b", &[GPU, "fail = [{ step = \"start\" }]"])]);
    let flow = flow("evacuation that fails", Before::OnA, Act::Evacuate, &["ACTIVE"], &[]);
    matrix::run(Flow { topology, ..flow }).await;
}

/// On the only host, where the operator allows it.
async fn on_one_host(flow: Flow) {
    let options = Options { allow_resize_to_same_host: true, ..Options::default() };
    let topology = || hosts(&[("a", &[GPU])]);
    matrix::run_with(Flow { topology, ..flow }, options).await;
}

const PAIR: &str = r#"{"resize": {"flavorRef": "vgpu-pair"}}"#;
const PAIRED: Before = Before::DidOnA(&[(PAIR, "VERIFY_RESIZE")]);

#[tokio::test]
async fn a_resize_on_one_host() {
    let act = Act::Operate(&[PAIR]);
    on_one_host(flow("resize", Before::OnA, act, &["VERIFY_RESIZE"], &[&["ACTIVE"]])).await;
}

#[tokio::test]
async fn a_confirmation_on_one_host() {
    let act = Act::Operate(&[CONFIRM]);
    on_one_host(flow("confirm here", PAIRED, act, &["ACTIVE"], &[&["VERIFY_RESIZE"]])).await;
}

#[tokio::test]
async fn a_revert_on_one_host() {
    let act = Act::Operate(&[REVERT]);
    on_one_host(flow("revert here", PAIRED, act, &["ACTIVE"], &[&["VERIFY_RESIZE"]])).await;
}

const LASTING: &str = "times_ms = { migrate = 150 }";

#[tokio::test]
async fn a_live_migration_that_is_called_off() {
    let topology = || hosts(&[("a", &[GPU, LASTING]), ("b", &[GPU])]);
    let flow = flow("live migration, called off", Before::OnA, Act::Abort, &["ACTIVE"], &[]);
    matrix::run(Flow { topology, ..flow }).await;
}

#[tokio::test]
async fn a_live_migration_that_is_hurried() {
    let topology = || hosts(&[("a", &[GPU, LASTING]), ("b", &[GPU])]);
    let flow = flow("live migration, hurried", Before::OnA, Act::Hurry, &["ACTIVE"], &[]);
    matrix::run(Flow { topology, ..flow }).await;
}

#[tokio::test]
async fn an_unshelving_to_another_host() {
    const SHELVED: &[(&str, &str)] = &[(r#"{"shelve": null}"#, "SHELVED_OFFLOADED")];
    let act = Act::Operate(&[r#"{"unshelve": {"host": "b"}}"#]);
    let otherwise: &[&[&str]] = &[&["SHELVED_OFFLOADED"]];
    let flow = flow("unshelve elsewhere", Before::DidOnA(SHELVED), act, &["ACTIVE"], otherwise);
    matrix::run(flow).await;
}

#[tokio::test]
async fn a_live_migration() {
    let act = Act::Operate(&[LIVE]);
    matrix::run(flow("live migration", Before::OnA, act, &["ACTIVE"], &[])).await;
}

/// The guest arrives, and its old host says that it failed to send it.
async fn a_live_migration_that_goes_unheard(guest: &'static str, topology: fn() -> Topology) {
    let act = Act::Operate(&[LIVE]);
    let flow = flow(guest, Before::OnA, act, &["ACTIVE"], &[]);
    matrix::run(Flow { topology, ..flow }).await;
}

#[tokio::test]
async fn a_live_migration_whose_guest_goes_unheard() {
    a_live_migration_that_goes_unheard("live migration that goes unheard", || {
        let fail = "fail = [{ step = \"migrate\", guest = \"goes\" }]";
        hosts(&[("a", &[GPU, fail]), ("b", &[GPU])])
    })
    .await;
}

#[tokio::test]
async fn a_live_migration_whose_guest_is_left_standing() {
    a_live_migration_that_goes_unheard("live migration, left standing", || {
        let fail = "fail = [{ step = \"migrate\", guest = \"stands\" }]";
        hosts(&[("a", &[GPU, fail]), ("b", &[GPU])])
    })
    .await;
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

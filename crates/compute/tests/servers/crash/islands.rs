//! Servers that have an NVLink island to themselves, with crashes: no write leaves an island closed without a server,
//! or offers the other devices of a closed island.

use kilonova_node::topology::Topology;

use super::{Act, Before, Flow, matrix};
use crate::kit::hosts;
use crate::servers::gpu_topology::exclusive::{QUADS, VGPUS};

const MIGRATE: &str = r#"{"migrate": null}"#;
const CONFIRM: &str = r#"{"confirmResize": null}"#;
const REVERT: &str = r#"{"revertResize": null}"#;
const LIVE: &str = r#"{"os-migrateLive": {"host": null, "block_migration": "auto"}}"#;
const SHELVE: &str = r#"{"shelve": null}"#;
const UNSHELVE: &str = r#"{"unshelve": null}"#;
const REBUILD: &str = r#"{"rebuild": {"imageRef": "IMAGE"}}"#;

fn one_host() -> Topology {
    hosts(&[("a", &[QUADS])])
}

fn two_hosts() -> Topology {
    hosts(&[("a", &[QUADS]), ("b", &[QUADS])])
}

async fn run(
    name: &'static str,
    topology: fn() -> Topology,
    before: Before,
    act: Act,
    done: &'static [&'static str],
    otherwise: &'static [&'static [&'static str]],
) {
    matrix::run(Flow { name, topology, flavor: "alone", before, act, done, otherwise }).await;
}

#[tokio::test]
async fn a_boot_that_closes_an_island() {
    run("island: boot", one_host, Before::Nothing, Act::Boot, &["ACTIVE"], &[&[]]).await;
}

#[tokio::test]
async fn boots_that_close_three_islands() {
    let done = &["ACTIVE", "ACTIVE", "ACTIVE"];
    run("islands: boot", two_hosts, Before::Nothing, Act::BootThree, done, &[&[]]).await;
}

#[tokio::test]
async fn a_boot_that_leaves_an_island_for_another() {
    let topology = || {
        let bad = "fail = [{ step = \"start\" }]";
        hosts(&[("bad", &[QUADS, bad]), ("good", &[QUADS])])
    };
    run("island: another", topology, Before::Nothing, Act::Boot, &["ACTIVE"], &[&[]]).await;
}

#[tokio::test]
async fn a_delete_that_opens_an_island() {
    run("island: delete", one_host, Before::Active, Act::Delete, &[], &[&["ACTIVE"]]).await;
}

#[tokio::test]
async fn a_delete_on_a_lost_host_with_a_closed_island() {
    let act = Act::DeleteOnLostHost("a");
    run("island: lost", one_host, Before::Active, act, &[], &[&["ACTIVE"]]).await;
}

#[tokio::test]
async fn a_cold_migration_between_islands() {
    let act = Act::Operate(&[MIGRATE]);
    let otherwise: &[&[&str]] = &[&["ACTIVE"]];
    run("island: migrate", two_hosts, Before::ActiveOnA, act, &["VERIFY_RESIZE"], otherwise).await;
}

#[tokio::test]
async fn a_confirmation_that_opens_an_island() {
    let act = Act::Operate(&[CONFIRM]);
    let otherwise: &[&[&str]] = &[&["VERIFY_RESIZE"]];
    run("island: confirm", two_hosts, Before::Migrated, act, &["ACTIVE"], otherwise).await;
}

#[tokio::test]
async fn a_revert_that_opens_an_island() {
    let act = Act::Operate(&[REVERT]);
    let otherwise: &[&[&str]] = &[&["VERIFY_RESIZE"]];
    run("island: revert", two_hosts, Before::Migrated, act, &["ACTIVE"], otherwise).await;
}

/// Uses vGPUs, because a whole card does not live-migrate.
#[tokio::test]
async fn a_live_migration_between_islands() {
    matrix::run(Flow {
        name: "island: live migration",
        topology: || hosts(&[("a", &[VGPUS]), ("b", &[VGPUS])]),
        flavor: "alone-vgpu",
        before: Before::ActiveOnA,
        act: Act::Operate(&[LIVE]),
        done: &["ACTIVE"],
        otherwise: &[],
    })
    .await;
}

#[tokio::test]
async fn an_evacuation_to_another_island() {
    run("island: evacuate", two_hosts, Before::ActiveOnA, Act::Evacuate, &["ACTIVE"], &[]).await;
}

#[tokio::test]
async fn a_shelving_that_opens_an_island() {
    let act = Act::Actions(&[SHELVE]);
    let done = &["SHELVED_OFFLOADED"];
    run("island: shelve", one_host, Before::Active, act, done, &[&["ACTIVE"]]).await;
}

#[tokio::test]
async fn an_unshelving_that_closes_an_island() {
    let before = Before::AfterActions(&[(SHELVE, "SHELVED_OFFLOADED")]);
    let act = Act::Actions(&[UNSHELVE]);
    run("island: unshelve", one_host, before, act, &["ACTIVE"], &[&["SHELVED_OFFLOADED"]]).await;
}

#[tokio::test]
async fn a_rebuild_in_an_island() {
    run("island: rebuild", one_host, Before::Active, Act::Actions(&[REBUILD]), &["ACTIVE"], &[])
        .await;
}

//! Changes in place with crashes.

use jiff::SignedDuration;
use kilonova_compute_app::Options;

use super::{Act, Before, Flow, flow, matrix};
use crate::kit::{GPU, hosts};

const PAUSE: &str = r#"{"pause": null}"#;
const UNPAUSE: &str = r#"{"unpause": null}"#;
const SUSPEND: &str = r#"{"suspend": null}"#;
const RESUME: &str = r#"{"resume": null}"#;
const RESCUE: &str = r#"{"rescue": {}}"#;
const UNRESCUE: &str = r#"{"unrescue": null}"#;
const SHELVE: &str = r#"{"shelve": null}"#;
const UNSHELVE: &str = r#"{"unshelve": null}"#;
const IMAGE: &str = r#"{"createImage": {"name": "picture"}}"#;
const BACKUP: &str =
    r#"{"createBackup": {"name": "daily", "backup_type": "daily", "rotation": 1}}"#;
const DUMP: &str = r#"{"trigger_crash_dump": null}"#;
const REBUILD: &str = r#"{"rebuild": {"imageRef": "IMAGE"}}"#;
const RESTORE: &str = r#"{"restore": null}"#;
const HARD: &str = r#"{"reboot": {"type": "HARD"}}"#;

#[tokio::test]
async fn pause() {
    matrix::run(flow("pause", Before::Active, &[PAUSE], &["PAUSED"], &[&["ACTIVE"]])).await;
}

#[tokio::test]
async fn unpause() {
    let before = Before::AfterActions(&[(PAUSE, "PAUSED")]);
    matrix::run(flow("unpause", before, &[UNPAUSE], &["ACTIVE"], &[&["PAUSED"]])).await;
}

#[tokio::test]
async fn suspend() {
    matrix::run(flow("suspend", Before::Active, &[SUSPEND], &["SUSPENDED"], &[&["ACTIVE"]])).await;
}

#[tokio::test]
async fn resume() {
    let before = Before::AfterActions(&[(SUSPEND, "SUSPENDED")]);
    matrix::run(flow("resume", before, &[RESUME], &["ACTIVE"], &[&["SUSPENDED"]])).await;
}

#[tokio::test]
async fn rescue() {
    matrix::run(flow("rescue", Before::Active, &[RESCUE], &["RESCUE"], &[&["ACTIVE"]])).await;
}

#[tokio::test]
async fn unrescue() {
    let before = Before::AfterActions(&[(RESCUE, "RESCUE")]);
    matrix::run(flow("unrescue", before, &[UNRESCUE], &["ACTIVE"], &[&["RESCUE"]])).await;
}

#[tokio::test]
async fn create_image() {
    matrix::run(flow("image", Before::Active, &[IMAGE], &["ACTIVE"], &[])).await;
}

#[tokio::test]
async fn create_backup() {
    let before = Before::AfterActions(&[(BACKUP, "ACTIVE")]);
    matrix::run(flow("backup", before, &[BACKUP], &["ACTIVE"], &[])).await;
}

#[tokio::test]
async fn crash_dump() {
    matrix::run(flow("crash dump", Before::Active, &[DUMP], &["ACTIVE"], &[])).await;
}

#[tokio::test]
async fn shelve() {
    let done = &["SHELVED_OFFLOADED"];
    matrix::run(flow("shelve", Before::Active, &[SHELVE], done, &[&["ACTIVE"]])).await;
}

#[tokio::test]
async fn unshelve() {
    let before = Before::AfterActions(&[(SHELVE, "SHELVED_OFFLOADED")]);
    let otherwise: &[&[&str]] = &[&["SHELVED_OFFLOADED"]];
    matrix::run(flow("unshelve", before, &[UNSHELVE], &["ACTIVE"], otherwise)).await;
}

#[tokio::test]
async fn rebuild() {
    matrix::run(flow("rebuild", Before::Active, &[REBUILD], &["ACTIVE"], &[])).await;
}

#[tokio::test]
async fn rebuild_of_a_stopped_server() {
    let rebuild = flow("rebuild stopped", Before::Stopped, &[REBUILD], &["SHUTOFF"], &[]);
    matrix::run(rebuild).await;
}

#[tokio::test]
async fn soft_delete() {
    let delete = flow("soft delete", Before::Active, &[], &["SOFT_DELETED"], &[&["ACTIVE"]]);
    run_with_soft_delete(Flow { act: Act::Delete, ..delete }).await;
}

#[tokio::test]
async fn restore() {
    let otherwise: &[&[&str]] = &[&["SOFT_DELETED"]];
    run_with_soft_delete(flow("restore", Before::Deleted, &[RESTORE], &["ACTIVE"], otherwise))
        .await;
}

#[tokio::test]
async fn reclaim_soft_deleted() {
    let reclaim = flow("reclaim", Before::Deleted, &[], &[], &[&["SOFT_DELETED"]]);
    run_with_soft_delete(Flow { act: Act::Reclaim, ..reclaim }).await;
}

/// Runs with soft delete, reclaimed after an hour.
async fn run_with_soft_delete(flow: Flow) {
    let options = Options {
        reclaim_instance_interval: SignedDuration::from_secs(3600),
        ..Options::default()
    };
    matrix::run_with(flow, options).await;
}

#[tokio::test]
async fn hard_reboot_of_a_suspended_server() {
    let before = Before::AfterActions(&[(SUSPEND, "SUSPENDED")]);
    matrix::run(flow("reboot suspended", before, &[HARD], &["ACTIVE"], &[&["SUSPENDED"]])).await;
}

#[tokio::test]
async fn a_pause_that_fails() {
    let topology = || hosts(&[("a", &[GPU, "fail = [{ step = \"pause\" }]"])]);
    let pause = flow("pause that fails", Before::Active, &[PAUSE], &["ACTIVE"], &[]);
    matrix::run(Flow { topology, ..pause }).await;
}

#[tokio::test]
async fn a_snapshot_that_fails() {
    let topology = || hosts(&[("a", &[GPU, "fail = [{ step = \"snapshot\" }]"])]);
    let create_image = flow("image that fails", Before::Active, &[IMAGE], &["ACTIVE"], &[]);
    matrix::run(Flow { topology, ..create_image }).await;
}

#[tokio::test]
async fn create_image_in_glance() {
    let flow = flow("image in Glance", Before::Active, &[IMAGE], &["ACTIVE"], &[]);
    matrix::run_on_glance(flow).await;
}

#[tokio::test]
async fn create_backup_in_glance() {
    let before = Before::AfterActions(&[(BACKUP, "ACTIVE")]);
    let flow = flow("backup in Glance", before, &[BACKUP], &["ACTIVE"], &[]);
    matrix::run_on_glance(flow).await;
}

#[tokio::test]
async fn shelve_in_glance() {
    let end = &["SHELVED_OFFLOADED"];
    let others: &[&[&str]] = &[&["ACTIVE"]];
    matrix::run_on_glance(flow("shelve in Glance", Before::Active, &[SHELVE], end, others)).await;
}

#[tokio::test]
async fn unshelve_from_glance() {
    let before = Before::AfterActions(&[(SHELVE, "SHELVED_OFFLOADED")]);
    let others: &[&[&str]] = &[&["SHELVED_OFFLOADED"]];
    matrix::run_on_glance(flow("unshelve from Glance", before, &[UNSHELVE], &["ACTIVE"], others))
        .await;
}

//! Volumes of servers. A strict fake takes Cinder's place and fails on demand.

mod attach;
mod boot;
mod crash;
mod failures;
mod images;
mod moves;
mod rebuild;
mod rescue;

use std::time::Duration;

use kilonova_store::testing::{CrashPlan, Death};
use kilonova_testkit::Share;
use kilonova_testkit::cinder::FakeCinder;
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Answer, Cloud, GPU, RunningCloud, hosts, wait_until};

/// Running clouds with a Cinder, on these hosts.
async fn clouds(names: &[&str]) -> Vec<(Cloud, RunningCloud, FakeCinder)> {
    let mut all = Vec::new();
    let entries: Vec<(&str, &[&str])> = names.iter().map(|name| (*name, &[GPU][..])).collect();
    for mut cloud in Cloud::all(hosts(&entries)).await {
        let cinder = cloud.start_cinder().await;
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        all.push((cloud, running, cinder));
    }
    all
}

fn volume(cinder: &FakeCinder, more: Value) -> String {
    cinder.state().add_volume("red", 2, more)
}

fn attachments(id: &str) -> String {
    format!("/servers/{id}/os-volume_attachments")
}

async fn try_attach(running: &RunningCloud, id: &str, version: &str, more: Value) -> Answer {
    let path = format!("POST {}", attachments(id));
    running.call(ANN, version, &path, Some(json!({"volumeAttachment": more}))).await
}

async fn attach(running: &RunningCloud, cinder: &FakeCinder, id: &str, volume: &str) {
    try_attach(running, id, "2.90", json!({"volumeId": volume})).await.expect(200);
    wait_for(cinder, volume, "in-use").await;
}

async fn wait_for(cinder: &FakeCinder, volume: &str, status: &str) {
    wait_until(&format!("volume {volume} is {status}"), async || {
        cinder.state().status(volume) == status
    })
    .await;
}

async fn try_detach(running: &RunningCloud, id: &str, volume: &str) -> Answer {
    let path = format!("DELETE {}/{volume}", attachments(id));
    running.call(ANN, "2.90", &path, None).await
}

async fn shown(running: &RunningCloud, id: &str, version: &str) -> Value {
    running.get(ANN, version, &attachments(id)).await.expect(200)["volumeAttachments"].clone()
}

async fn operate(running: &RunningCloud, id: &str, action: Value) {
    let path = format!("POST /servers/{id}/action");
    let answer = running.call(ADMIN, "2.90", &path, Some(action)).await;
    assert!(answer.status.is_success(), "{} {}", answer.status, answer.body);
}

/// The hosts of the attachments of a volume.
fn hosts_of(cinder: &FakeCinder, volume: &str) -> Vec<String> {
    let all = cinder.state().attachments_of(volume);
    let host = |one: &Value| one["host"].as_str().unwrap_or("-").to_owned();
    all.iter().map(|(_, one)| host(&one.connector)).collect()
}

/// Waits until nothing is left to do for any server.
async fn settled(cloud: &Cloud) {
    wait_until("nothing is due", async || {
        cloud
            .column("SELECT server_id FROM volume_servers WHERE due_at IS NOT NULL")
            .await
            .is_empty()
    })
    .await;
}

/// The host of a server, and the other one.
async fn hosts_around(running: &RunningCloud, id: &str) -> (String, String) {
    let host = running.server(id).await["OS-EXT-SRV-ATTR:host"].clone();
    let host = host.as_str().expect("a host").to_owned();
    let other = if host == "a" { "b" } else { "a" };
    (host, other.to_owned())
}

/// Checks that nothing is left of any server, here or in Cinder.
async fn finish(cloud: &Cloud, running: &RunningCloud, cinder: &FakeCinder, when: &str) {
    cloud.teardown(running, when).await;
    cloud.finish_volume_work(running).await;
    for (table, sql) in [
        ("block_devices", "SELECT id FROM block_devices"),
        ("volume_attachments", "SELECT id FROM volume_attachments"),
        ("volume_servers", "SELECT server_id FROM volume_servers"),
    ] {
        assert_eq!(cloud.column(sql).await, [""; 0], "{when}: {table}");
    }
    let state = cinder.state();
    assert!(state.attachments().is_empty(), "{when}: {:?}", state.attachments());
    for (id, volume) in state.volumes() {
        assert_eq!(volume.status, "available", "{when}: {id}");
    }
}

/// The messages of a server's actions of a kind, newest first; empty for one that succeeded.
async fn actions_of(running: &RunningCloud, id: &str, kind: &str) -> Vec<String> {
    let path = format!("/servers/{id}/os-instance-actions");
    let all = running.get(ANN, "2.90", &path).await.expect(200)["instanceActions"].clone();
    let all = all.as_array().expect("a list").iter();
    let message = |one: &Value| one["message"].as_str().unwrap_or_default().to_owned();
    all.filter(|one| one["action"] == kind).map(message).collect()
}

/// The events of the newest action of a kind, with their results.
async fn events_of(running: &RunningCloud, id: &str, kind: &str) -> Vec<(String, String)> {
    let path = format!("/servers/{id}/os-instance-actions");
    let all = running.get(ADMIN, "2.90", &path).await.expect(200)["instanceActions"].clone();
    let found = all.as_array().expect("a list").iter().find(|one| one["action"] == kind);
    let request = found.expect("the action exists")["request_id"].as_str().expect("a text");
    let shown = running.get(ADMIN, "2.90", &format!("{path}/{request}")).await.expect(200);
    let events = shown["instanceAction"]["events"].as_array().expect("a list").iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    events.map(|one| (text(&one["event"]), text(&one["result"]))).collect()
}

fn uuid_like() -> String {
    kilonova_ids::VolumeId::new_v4().to_string()
}

/// True if a document has the password of the fake's iSCSI targets.
async fn has_password(cloud: &Cloud) -> bool {
    cloud.column("SELECT body FROM documents").await.concat().contains("chap-secret-of")
}

/// A request for a server with these disks and no image.
fn with_disks(running: &RunningCloud, cloud: &Cloud, disks: Value) -> Value {
    let mut request = running.boot_request(cloud, "one", "plain");
    request["server"]["imageRef"] = json!("");
    request["server"]["block_device_mapping_v2"] = disks;
    request
}

async fn try_boot(running: &RunningCloud, request: Value) -> Answer {
    running.call(ANN, "2.90", "POST /servers", Some(request)).await
}

async fn boot(running: &RunningCloud, request: Value) -> String {
    let answer = try_boot(running, request).await.expect(202);
    answer["server"]["id"].as_str().expect("the answer has an id").to_owned()
}

fn root(source: &str, more: Value) -> Value {
    let mut entry = json!({"source_type": source, "destination_type": "volume", "boot_index": 0});
    for (key, value) in more.as_object().into_iter().flatten() {
        entry[key] = value.clone();
    }
    entry
}

/// Calls `run` with a crash at each write in turn, before and after its commit, until no crash happens. If the stores
/// share the crashes, each runs one of the two at a write, and the other one at the next write. `run` returns true if
/// everything has died. A store that runs all crashes must reach at least `least` of them.
async fn crash_points(
    share: Share,
    (least, most): (u32, u64),
    mut run: impl AsyncFnMut(CrashPlan, String) -> bool,
) {
    let mut points = 0;
    for at in 0.. {
        assert!(at < most, "no end");
        let mut died = false;
        for (n, death) in [Death::BeforeCommit, Death::AfterCommit].into_iter().enumerate() {
            if share.has(at as usize + n) {
                let crashed = run(CrashPlan::at(at, death), format!("{at} {death:?}")).await;
                points += u32::from(crashed);
                died |= crashed;
            }
        }
        if !died {
            break;
        }
    }
    assert!(points >= share.least(least), "{points} crash points");
}

/// Starts everything again with a crash, sends a request, waits until everything has died or the request `is_done`, and
/// starts everything again. Returns whether the request was accepted, and whether everything has died.
async fn through_crash(
    cloud: &Cloud,
    mut running: RunningCloud,
    plan: CrashPlan,
    send: impl AsyncFnOnce(&RunningCloud) -> Answer,
    mut is_done: impl AsyncFnMut() -> bool,
) -> (RunningCloud, bool, bool) {
    running.kill().await;
    running = cloud.start_with_plan(plan.clone()).await;
    running.wait_for_hosts().await;
    let accepted = send(&running).await.status.is_success();
    for _ in 0..400 {
        if plan.is_dead() || (accepted && is_done().await) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let died = plan.is_dead();
    running.kill().await;
    running = cloud.start().await;
    running.wait_for_hosts().await;
    (running, accepted, died)
}

/// True if no operation is in progress.
async fn is_idle(cloud: &Cloud) -> bool {
    cloud.column("SELECT id FROM operations WHERE outcome = 'open'").await.is_empty()
}

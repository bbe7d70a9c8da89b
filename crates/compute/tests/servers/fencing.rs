//! Epochs fence agents: a replaced agent cannot change anything.

use kilonova_ids::{HostName, ServerId};
use kilonova_node_api::{ControlPlane, Observation, Outcome, Refusal};
use kilonova_store::params;
use serde_json::json;

use crate::kit::{Cloud, GPU, RunningCloud, hosts};

/// All rows that an agent's report could change.
async fn rows(cloud: &Cloud) -> Vec<String> {
    let mut all = Vec::new();
    for sql in [
        "SELECT id || vm_state || COALESCE(task_state, '') FROM servers ORDER BY id",
        "SELECT server_id || body FROM documents ORDER BY server_id",
        "SELECT id || step || outcome FROM operations ORDER BY id",
        "SELECT uuid || state FROM attach_handles ORDER BY uuid",
        "SELECT consumer_id || provider_id || class FROM allocations
            ORDER BY consumer_id, provider_id, class",
    ] {
        all.extend(cloud.column(sql).await);
    }
    all
}

async fn generation(cloud: &Cloud, server: ServerId) -> i64 {
    let sql = "SELECT generation FROM documents WHERE server_id = ?1";
    let row =
        cloud.store.read(move |tx| tx.row(sql, params![server])).await.expect("the query succeeds");
    row.expect("the document exists").int(0).expect("the value is a number")
}

fn named(host: &str) -> HostName {
    HostName::verbatim(host)
}

fn epoch(running: &RunningCloud, host: &str) -> i64 {
    running.compute.fleet.by_name(&named(host)).expect("the host is known").epoch()
}

#[tokio::test]
async fn a_report_of_an_old_session_changes_nothing() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let link = kilonova_compute_nodes::Link(running.compute.clone());
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let server: ServerId = id.parse().expect("the id is a UUID");
        let old = epoch(&running, "a");
        running.restart_nodes(&cloud, async |_| ()).await;
        running.wait_for_hosts().await;
        assert!(epoch(&running, "a") > old);
        running.nodes.kill("a").await;
        for action in [json!({"os-stop": null}), json!({"forceDelete": null})] {
            running.act(&id, action).await;
            let before = rows(&cloud).await;
            let generation = generation(&cloud, server).await;
            let failed = || Outcome::Failed { step: "start".into(), message: "old".into() };
            for outcome in [Outcome::Stopped, Outcome::Running, Outcome::Absent, failed()] {
                let report = vec![Observation::new(server, generation, outcome)];
                assert_eq!(link.observed(&named("a"), old, report).await, Err(Refusal::Fenced));
            }
            assert_eq!(link.desired(&named("a"), old, 0).await, Err(Refusal::Fenced));
            assert_eq!(rows(&cloud).await, before);
        }
        running.start_node(&cloud, "a").await;
        running.wait_until_gone(&id).await;
        cloud.assert_empty(&running, "after the fence").await;
    }
}

#[tokio::test]
async fn a_report_on_an_older_document_changes_nothing() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let link = kilonova_compute_nodes::Link(running.compute.clone());
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let server: ServerId = id.parse().expect("the id is a UUID");
        let old = generation(&cloud, server).await;
        running.nodes.kill("a").await;
        running.delete(&id).await;
        let before = rows(&cloud).await;
        for outcome in [Outcome::Stopped, Outcome::Running, Outcome::Absent] {
            let report = vec![Observation::new(server, old, outcome)];
            assert_eq!(link.observed(&named("a"), epoch(&running, "a"), report).await, Ok(()));
        }
        assert_eq!(rows(&cloud).await, before);
        running.start_node(&cloud, "a").await;
        running.wait_until_gone(&id).await;
        cloud.assert_empty(&running, "after the old report").await;
    }
}

#[tokio::test]
async fn reports_on_what_is_unknown_change_nothing() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let link = kilonova_compute_nodes::Link(running.compute.clone());
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let server: ServerId = id.parse().expect("the id is a UUID");
        let generation = generation(&cloud, server).await;
        let on = running.server(&id).await["OS-EXT-SRV-ATTR:host"].clone();
        let other = if on == "a" { "b" } else { "a" };
        let before = rows(&cloud).await;
        for (host, server) in [(other, server), ("a", ServerId::new_v4())] {
            let outcome = Outcome::Absent;
            let report = vec![Observation::new(server, generation, outcome)];
            assert_eq!(link.observed(&named(host), epoch(&running, host), report).await, Ok(()));
        }
        let stranger = link.observed(&named("stranger"), 1, Vec::new()).await;
        assert!(matches!(stranger, Err(Refusal::Rejected(_))), "{stranger:?}");
        assert_eq!(rows(&cloud).await, before);
        cloud.teardown(&running, "unknown server").await;
    }
}

#[tokio::test]
async fn a_second_process_for_a_host_stops_the_first() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let second = running.nodes.for_same_hosts();
        let mut first = std::mem::replace(&mut running.nodes, second);
        running.start_node(&cloud, "a").await;
        running.act(&id, json!({"os-stop": null})).await;
        running.wait_for_status(&id, "SHUTOFF").await;
        let end = first.outcome_of("a").await;
        assert!(matches!(end, kilonova_node::Error::Fenced { .. }), "{end}");
        cloud.assert_consistent(&running, "second agent").await;
        cloud.teardown(&running, "second agent").await;
    }
}

#[tokio::test]
async fn a_node_that_was_away_catches_up() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let stays = running.active_server(&cloud, "stays", "vgpu").await;
        let stops = running.active_server(&cloud, "stops", "vgpu").await;
        let goes = running.active_server(&cloud, "goes", "vgpu").await;
        running.nodes.kill("a").await;
        running.act(&stops, json!({"os-stop": null})).await;
        running.delete(&goes).await;
        let comes = running.boot(&cloud, "comes", "vgpu").await;
        cloud.audit("the host is down").await;
        running.start_node(&cloud, "a").await;
        running.wait_until_gone(&goes).await;
        running.wait_for_status(&stops, "SHUTOFF").await;
        running.wait_for_status(&comes, "ACTIVE").await;
        running.wait_for_status(&stays, "ACTIVE").await;
        cloud.assert_consistent(&running, "the host is back").await;
        cloud.teardown(&running, "the host is back").await;
    }
}

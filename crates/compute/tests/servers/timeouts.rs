//! Timeouts of builds, reboots and rescues.

use jiff::SignedDuration;
use kilonova_compute_app::Options;
use kilonova_compute_app::reconcile::{rest, slow};
use serde_json::{Value, json};

use crate::kit::{ANN, Cloud, GPU, RunningCloud, fault, hosts, wait_until};
use crate::servers::instance_actions::actions;

/// A cloud on each store with these options.
async fn clouds(options: Options, entry: &'static str) -> Vec<(Cloud, RunningCloud)> {
    let mut clouds = Vec::new();
    for mut cloud in Cloud::all(hosts(&[("a", &[GPU, entry])])).await {
        cloud.options = options.clone();
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        clouds.push((cloud, running));
    }
    clouds
}

#[tokio::test]
async fn a_build_past_its_timeout_fails_and_releases_its_claims() {
    let options =
        Options { instance_build_timeout: SignedDuration::from_secs(1000), ..Options::default() };
    for (cloud, mut running) in clouds(options, "").await {
        let network = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        running.nodes.kill("a").await;
        let connected = json!({"networks": [{"uuid": network}]});
        let id = running.boot_with(&cloud, "one", "vgpu", connected).await;
        slow::run(running.compute.clone()).await.expect("the periodic task succeeds");
        assert_eq!(running.server(&id).await["status"], "BUILD", "the build is within its timeout");
        cloud.execute("UPDATE servers SET created_at = created_at - 1001000000").await;
        slow::run(running.compute.clone()).await.expect("the periodic task succeeds");
        let server = running.wait_for_status(&id, "ERROR").await;
        assert!(fault(&server).contains("took longer than 1000 s (instance_build_timeout)"));
        assert_eq!(server["OS-EXT-SRV-ATTR:host"], Value::Null);
        cloud.audit("timed out").await;
        assert!(
            cloud.column("SELECT class FROM allocations").await.is_empty(),
            "the server has no allocations"
        );
        let listed = running.get(ANN, "2.90", "/servers/detail").await.expect(200);
        assert_eq!(listed["servers"][0]["addresses"], json!({}), "its ports are deleted");
        slow::run(running.compute.clone()).await.expect("the periodic task succeeds");

        running.start_node(&cloud, "a").await;
        running.wait_for_host_cleanup(&cloud).await;
        assert_eq!(cloud.used("VGPU").await, 0, "the host has dropped the guest");
        cloud.assert_consistent(&running, "dropped").await;
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        cloud.teardown(&running, "deleted").await;
    }
}

#[tokio::test]
async fn a_soft_reboot_that_takes_too_long_becomes_a_hard_one() {
    let options = Options { reboot_timeout: SignedDuration::from_secs(60), ..Options::default() };
    for (cloud, mut running) in clouds(options, "").await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.nodes.kill("a").await;
        running.act(&id, json!({"reboot": {"type": "SOFT"}})).await;
        slow::run(running.compute.clone()).await.expect("the periodic task succeeds");
        assert_eq!(running.server(&id).await["status"], "REBOOT");
        cloud.execute("UPDATE operations SET created_at = created_at - 61000000").await;
        slow::run(running.compute.clone()).await.expect("the periodic task succeeds");
        assert_eq!(running.server(&id).await["status"], "HARD_REBOOT");
        slow::run(running.compute.clone()).await.expect("the periodic task succeeds");
        running.start_node(&cloud, "a").await;
        running.wait_for_status(&id, "ACTIVE").await;
        let kinds: Vec<String> =
            actions(&running, &id).await.into_iter().map(|(kind, _, _)| kind).collect();
        assert_eq!(kinds, ["create", "reboot", "reboot"]);
        cloud.assert_consistent(&running, "rebooted").await;
        cloud.teardown(&running, "rebooted").await;
    }
}

#[tokio::test]
async fn a_rescue_that_takes_too_long_is_ended() {
    let options = Options { rescue_timeout: SignedDuration::from_secs(60), ..Options::default() };
    for (cloud, running) in clouds(options, "").await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.try_act(&id, json!({"rescue": null})).await.expect(200);
        running.wait_for_status(&id, "RESCUE").await;
        rest::run(running.compute.clone()).await.expect("the periodic task succeeds");
        running.wait_for_status(&id, "RESCUE").await;
        cloud.execute("UPDATE resting SET since = since - 61000000").await;
        rest::run(running.compute.clone()).await.expect("the periodic task succeeds");
        running.wait_for_status(&id, "ACTIVE").await;
        assert!(cloud.column("SELECT server_id FROM resting").await.is_empty());
        cloud.assert_consistent(&running, "unrescued").await;
        cloud.teardown(&running, "unrescued").await;
    }
}

/// The task states that a server shows while its host works, in order.
async fn task_states(running: &RunningCloud, id: &str, action: Value) -> Vec<String> {
    running.try_act(id, action).await;
    let mut seen: Vec<String> = Vec::new();
    wait_until("the operation has ended", async || {
        let task = running.server(id).await["OS-EXT-STS:task_state"].clone();
        match task.as_str() {
            None => return true,
            Some(task) if seen.last().is_none_or(|last| last != task) => seen.push(task.into()),
            Some(_) => {}
        }
        false
    })
    .await;
    seen
}

#[tokio::test]
async fn task_states_follow_the_host() {
    const SLOW: &str = "times_ms = { snapshot = 700, image = 700, start = 700 }";
    for (cloud, running) in clouds(Options::default(), SLOW).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let image = json!({"createImage": {"name": "picture"}});
        let seen = task_states(&running, &id, image).await;
        assert!(seen.contains(&"image_snapshot".into()), "{seen:?}");
        let seen = task_states(&running, &id, json!({"rebuild": {"imageRef": cloud.image}})).await;
        assert!(seen.contains(&"rebuild_spawning".into()), "{seen:?}");
        let seen = task_states(&running, &id, json!({"shelve": null})).await;
        assert!(seen.contains(&"shelving_image_pending_upload".into()), "{seen:?}");
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        cloud.teardown(&running, "shelved").await;
    }
}

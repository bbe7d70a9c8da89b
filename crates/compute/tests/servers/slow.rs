//! What takes too long, and what operators want done about it.

use kilonova_compute::Options;
use kilonova_compute::reconcile::{rest, slow};
use serde_json::{Value, json};

use crate::kit::{Cloud, GPU, Up, fault, hosts, patiently};
use crate::servers::actions::actions;

/// A cloud on each store whose operator has decided something.
async fn with(options: Options, entry: &'static str) -> Vec<(Cloud, Up)> {
    let mut clouds = Vec::new();
    for mut cloud in Cloud::all(hosts(&[("a", &[GPU, entry])])).await {
        cloud.options = options.clone();
        let up = cloud.start().await;
        up.hosts_are_there().await;
        clouds.push((cloud, up));
    }
    clouds
}

#[tokio::test]
async fn a_build_that_takes_too_long_has_failed_and_holds_nothing() {
    let options = Options { instance_build_timeout: 1000, ..Options::default() };
    for (cloud, mut up) in with(options, "").await {
        up.nodes.kill("a").await;
        let id = up.boot(&cloud, "one", "vgpu").await;
        slow::run(up.compute.clone()).await.expect("looks");
        assert_eq!(up.server(&id).await["status"], "BUILD", "it has time");
        cloud.execute("UPDATE servers SET created_at = created_at - 1001000000").await;
        slow::run(up.compute.clone()).await.expect("looks");
        let server = up.becomes(&id, "ERROR").await;
        assert!(fault(&server).contains("took longer than 1000 s (instance_build_timeout)"));
        assert_eq!(server["OS-EXT-SRV-ATTR:host"], Value::Null);
        cloud.audit("given up").await;
        assert!(cloud.column("SELECT class FROM allocations").await.is_empty(), "it holds nothing");
        slow::run(up.compute.clone()).await.expect("looks again");

        up.start_node(&cloud, "a").await;
        up.hosts_have_dropped(&cloud).await;
        assert_eq!(cloud.used("VGPU").await, 0, "the host has dropped it");
        cloud.sound(&up, "dropped").await;
        up.delete(&id).await;
        up.goes(&id).await;
        cloud.sweep(&up, "deleted").await;
    }
}

#[tokio::test]
async fn a_soft_reboot_that_takes_too_long_becomes_a_hard_one() {
    let options = Options { reboot_timeout: 60, ..Options::default() };
    for (cloud, mut up) in with(options, "").await {
        let id = up.active(&cloud, "one", "vgpu").await;
        up.nodes.kill("a").await;
        up.act(&id, json!({"reboot": {"type": "SOFT"}})).await;
        slow::run(up.compute.clone()).await.expect("looks");
        assert_eq!(up.server(&id).await["status"], "REBOOT");
        cloud.execute("UPDATE operations SET created_at = created_at - 61000000").await;
        slow::run(up.compute.clone()).await.expect("looks");
        assert_eq!(up.server(&id).await["status"], "HARD_REBOOT");
        slow::run(up.compute.clone()).await.expect("looks again");
        up.start_node(&cloud, "a").await;
        up.becomes(&id, "ACTIVE").await;
        let kinds: Vec<String> =
            actions(&up, &id).await.into_iter().map(|(kind, _, _)| kind).collect();
        assert_eq!(kinds, ["create", "reboot", "reboot"]);
        cloud.sound(&up, "rebooted").await;
        cloud.sweep(&up, "rebooted").await;
    }
}

#[tokio::test]
async fn a_rescue_that_takes_too_long_is_ended() {
    let options = Options { rescue_timeout: 60, ..Options::default() };
    for (cloud, up) in with(options, "").await {
        let id = up.active(&cloud, "one", "vgpu").await;
        up.try_act(&id, json!({"rescue": null})).await.expect(200);
        up.becomes(&id, "RESCUE").await;
        rest::run(up.compute.clone()).await.expect("looks");
        up.becomes(&id, "RESCUE").await;
        cloud.execute("UPDATE resting SET since = since - 61000000").await;
        rest::run(up.compute.clone()).await.expect("looks");
        up.becomes(&id, "ACTIVE").await;
        assert!(cloud.column("SELECT server_id FROM resting").await.is_empty());
        cloud.sound(&up, "unrescued").await;
        cloud.sweep(&up, "unrescued").await;
    }
}

/// The tasks that a server shows while its host works, in order.
async fn tasks(up: &Up, id: &str, action: Value) -> Vec<String> {
    up.try_act(id, action).await;
    let mut seen: Vec<String> = Vec::new();
    patiently("the end", async || {
        let task = up.server(id).await["OS-EXT-STS:task_state"].clone();
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
async fn tasks_say_what_a_host_is_at() {
    const SLOW: &str = "times_ms = { snapshot = 700, image = 700, start = 700 }";
    for (cloud, up) in with(Options::default(), SLOW).await {
        let id = up.active(&cloud, "one", "vgpu").await;
        let image = json!({"createImage": {"name": "picture"}});
        let seen = tasks(&up, &id, image).await;
        assert!(seen.contains(&"image_snapshot".into()), "{seen:?}");
        let seen = tasks(&up, &id, json!({"rebuild": {"imageRef": cloud.image}})).await;
        assert!(seen.contains(&"rebuild_spawning".into()), "{seen:?}");
        let seen = tasks(&up, &id, json!({"shelve": null})).await;
        assert!(seen.contains(&"shelving_image_pending_upload".into()), "{seen:?}");
        up.becomes(&id, "SHELVED_OFFLOADED").await;
        cloud.sweep(&up, "shelved").await;
    }
}
